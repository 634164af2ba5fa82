"""The answer store in one SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embeddings.entry_record import EntryRecord, to_entry, to_record, to_vectors
from embeddings.protocols import Entry, FloatMatrix, IdArray, StoreError
from embeddings.sqlite_schema import COLUMNS, FileLock, connect, prepare, unusable
from embeddings.sqlite_writer import SqliteWriter

VECTOR_BATCH = 4096
_FIND = f"SELECT id, {COLUMNS} FROM entries WHERE exact_key = ? AND expires_at > ?"
_GET = f"SELECT id, {COLUMNS} FROM entries WHERE id = ? AND expires_at > ?"
_VECTORS = (
    "SELECT id, partition, vector FROM entries"
    f" WHERE id > ? AND space = ? AND expires_at > ? AND vector IS NOT NULL ORDER BY id LIMIT {VECTOR_BATCH}"
)


class SqliteStore:
    """`AnswerStore` in a file that one process opens at a time.

    Reads run on the caller's thread, tens of microseconds each; writes share transactions on a thread of
    their own. Open it with `SqliteStore.open`, from whatever thread.
    """

    def __init__(self, path: Path, lock: FileLock, writer: SqliteWriter, reader: sqlite3.Connection) -> None:
        self._path = path
        self._lock = lock
        self._writer = writer
        self._reader: sqlite3.Connection | None = reader
        self._reading = threading.Lock()

    @classmethod
    def open(cls, path: str | Path, max_entries: int) -> SqliteStore:
        """Open or make the file. Raises StoreError, saying what to do, when it is in use, damaged, newer
        than this program, or cannot be written; ValueError when `max_entries` is less than 1."""
        if max_entries < 1:
            raise ValueError(f"max_entries must be at least 1, got {max_entries}")
        path = Path(path).expanduser().resolve()
        lock = FileLock(path)
        try:
            prepare(path)
            try:
                reader = connect(path, read_only=True)
                try:
                    writer = SqliteWriter(path, max_entries)
                except BaseException:
                    reader.close()
                    raise
            except sqlite3.Error as error:
                raise unusable(path, error) from error
        except BaseException:
            lock.release()
            raise
        return cls(path, lock, writer, reader)

    async def secret(self) -> bytes:
        rows = self._read("SELECT value FROM meta WHERE name = 'secret'", ())
        if not rows:
            raise StoreError(f"the cache file {self._path} lacks its secret: move it away to start anew")
        return bytes(rows[0][0])

    async def find(self, exact_key: bytes, now: float) -> Entry | None:
        return self._one(_FIND, (exact_key, now))

    async def get(self, entry_id: int, now: float) -> Entry | None:
        return self._one(_GET, (entry_id, now))

    async def put(self, entry: Entry) -> tuple[int, IdArray]:
        return await self._writer.put(to_record(entry))

    def touch(self, entry_id: int, now: float) -> None:
        self._writer.touch(entry_id, now)

    async def remove(self, ids: Sequence[int]) -> IdArray:
        return await self._writer.remove(list(ids))

    async def expire(self, now: float) -> IdArray:
        return await self._writer.expire(now)

    async def vectors(
        self, space: str, now: float
    ) -> AsyncIterator[tuple[IdArray, FloatMatrix, list[bytes]]]:
        """As `AnswerStore.vectors`, each batch read on another thread."""
        last_id = 0
        while self._reader is not None:
            batch = await asyncio.to_thread(self._vector_batch, space, now, last_id)
            if batch is None:
                return
            last_id = int(batch[0][-1])
            yield batch
        raise self._closed()

    async def count(self) -> int:
        if self._reader is None:
            raise self._closed()
        return self._writer.count

    async def aclose(self) -> None:
        """Write what waits, then release the file. Closing again does nothing."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.close()
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
            self._lock.release()

    def _one(self, sql: str, arguments: tuple[object, ...]) -> Entry | None:
        rows = self._read(sql, arguments)
        return to_entry(rows[0][0], EntryRecord._make(rows[0][1:])) if rows else None

    def _read(self, sql: str, arguments: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with self._reading:
            if self._reader is None:
                raise self._closed()
            try:
                # all rows, so that the statement ends and its snapshot with it
                return self._reader.execute(sql, arguments).fetchall()
            except sqlite3.Error as error:
                raise unusable(self._path, error) from error

    def _vector_batch(
        self, space: str, now: float, last_id: int
    ) -> tuple[IdArray, FloatMatrix, list[bytes]] | None:
        try:
            connection = connect(self._path, read_only=True)
            try:
                rows = connection.execute(_VECTORS, (last_id, space, now)).fetchall()
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise unusable(self._path, error) from error
        if not rows:
            return None
        ids = np.array([row[0] for row in rows], dtype=np.int64)
        return ids, to_vectors([row[2] for row in rows]), [row[1] for row in rows]

    def _closed(self) -> StoreError:
        return StoreError(f"the cache file {self._path} is closed")
