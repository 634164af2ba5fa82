"""The SQLite file of the answer store as it is at one moment, read while a gateway may be running."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embeddings.entry_record import EntryRecord, to_entry
from embeddings.protocols import Entry, EntryFilter, StoreError
from embeddings.sqlite_filters import SERVED, register, selection
from embeddings.sqlite_migrations import APPLICATION_ID, COLUMNS, SCHEMA_VERSION
from embeddings.sqlite_schema import connect, unusable

ROWS_AT_ONCE = 64
_KNOWN = "length(request) > 0"
"""Entries that came from version 1 of the file serve on, but nobody knows what was asked."""


class SqliteReader:
    """A snapshot that takes no lock: who writes goes on writing, and is not seen. Until it is closed the
    file's write-ahead log grows. Every method raises StoreError; call them one at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    @classmethod
    def open(cls, path: str | Path) -> SqliteReader:
        """Raises StoreError, saying what to do, when the file is not there or cannot be read."""
        path = Path(path).expanduser().resolve()
        if not path.is_file():
            raise StoreError(f"there is no cache file {path}: set cache.path to the gateway's")
        try:
            connection = connect(path, read_only=True)
        except sqlite3.Error as error:
            raise unusable(path, error) from error
        try:
            register(connection)
            connection.execute("BEGIN")
            _check(path, connection)
        except sqlite3.Error as error:
            connection.close()
            raise unusable(path, error) from error
        except BaseException:
            connection.close()
            raise
        return cls(path, connection)

    def close(self) -> None:
        self._connection.close()

    def secret(self) -> bytes:
        rows = self._read("SELECT value FROM meta WHERE name = 'secret'", {})
        if not rows:
            raise StoreError(f"the cache file {self._path} lacks its secret: move it away to start anew")
        return bytes(rows[0][0])

    def newest_space(self) -> str | None:
        """The embedding space of the newest vector."""
        rows = self._read("SELECT space FROM entries WHERE vector IS NOT NULL ORDER BY id DESC LIMIT 1", {})
        return rows[0][0] if rows else None

    def count(self, which: EntryFilter, now: float) -> tuple[int, int]:
        """How many unexpired entries fit: of those that `entries` gives, and of those whose request is not
        known."""
        chosen = selection(which)
        sql = f"SELECT count(*), coalesce(sum({_KNOWN}), 0) FROM {chosen.rows}"
        [(total, known)] = self._read(sql, chosen.parameters | {"now": now})
        return known, total - known

    def find(self, exact_key: bytes, now: float) -> Entry | None:
        """The unexpired entry under this key."""
        sql = f"SELECT id, {COLUMNS} FROM entries WHERE exact_key = :key AND {SERVED}"
        rows = self._read(sql, {"key": exact_key, "now": now})
        return _entry(*rows[0]) if rows else None

    def entries(self, which: EntryFilter, now: float) -> Iterator[tuple[Entry, bool]]:
        """Every unexpired entry that fits and whose request is known, oldest (lowest id) first; and whether
        it was withdrawn from being found by similarity."""
        chosen = selection(which)
        columns = f"vector IS NULL AND judged_wrong > 0, entries.id, {COLUMNS}"
        sql = f"SELECT {columns} FROM {chosen.rows} AND {_KNOWN} ORDER BY {chosen.id}"
        try:
            cursor = self._connection.execute(sql, chosen.parameters | {"now": now})
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                for withdrawn, *row in rows:
                    yield _entry(*row), bool(withdrawn)
        except sqlite3.Error as error:
            raise unusable(self._path, error) from error

    def _read(self, sql: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise unusable(self._path, error) from error


def _check(path: Path, connection: sqlite3.Connection) -> None:
    [(owner,)] = connection.execute("PRAGMA application_id").fetchall()
    [(version,)] = connection.execute("PRAGMA user_version").fetchall()
    if owner != APPLICATION_ID:
        raise StoreError(f"{path} is not a cache file: set cache.path to the gateway's")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"the cache file {path} has schema version {version}, this lockgate knows up to "
            f"{SCHEMA_VERSION}: upgrade lockgate"
        )
    if version < SCHEMA_VERSION:
        raise StoreError(
            f"the cache file {path} has schema version {version}, an older one: start `lockgate serve` once, "
            f"which brings it to version {SCHEMA_VERSION}"
        )


def _entry(entry_id: int, *columns: Any) -> Entry:
    return to_entry(entry_id, EntryRecord._make(columns))
