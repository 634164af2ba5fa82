"""The answer store in one SQLite file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from embeddings.capacity import EVICTION, MAX_BYTES, Capacity
from embeddings.entry_record import INT64_MAX, EntryRecord, sound_vectors, to_entry, to_record
from embeddings.protocols import Entry, EntryFilter, EntryUse, FloatMatrix, IdArray, StoreError, StoreSize
from embeddings.sqlite_filters import SERVED, register, selection
from embeddings.sqlite_migrations import COLUMNS
from embeddings.sqlite_schema import FileLock, connect, prepare, unusable
from embeddings.sqlite_writer import SqliteWriter
from policies.eviction import EvictionPolicy

logger = logging.getLogger(__name__)

VECTOR_BATCH = 4096
REMOVE_BATCH = 1024  # takes some 100 ms, which a put may have to wait
_USE = "hits, last_used_at, judged_right, judged_wrong, stored_bytes"
_FIND = f"SELECT id, {COLUMNS} FROM entries WHERE exact_key = :key AND {SERVED}"
_GET = f"SELECT id, {COLUMNS} FROM entries WHERE id = :id AND {SERVED}"
_VECTOR_IDS = f"SELECT id FROM entries WHERE space = :space AND {SERVED} ORDER BY id"
_VECTORS = (
    "SELECT id, partition, vector FROM entries NOT INDEXED"  # by id, that is
    f" WHERE id IN (SELECT value FROM json_each(:ids)) AND space = :space AND {SERVED} ORDER BY id"
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
    def open(
        cls,
        path: str | Path,
        max_entries: int,
        max_bytes: int = MAX_BYTES,
        eviction: EvictionPolicy = EVICTION,
    ) -> SqliteStore:
        """Open or make the file; one of an older version is brought up to date. Raises StoreError, saying
        what to do, when it is in use, damaged, newer than this program, or cannot be written; ValueError
        when a limit is less than 1."""
        capacity = Capacity(max_entries, max_bytes, eviction)
        path = Path(path).expanduser().resolve()
        lock = FileLock(path)
        try:
            prepare(path, capacity)
            try:
                reader = connect(path, read_only=True)
                try:
                    writer = SqliteWriter(path, capacity)
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
        rows = self._read("SELECT value FROM meta WHERE name = 'secret'", {})
        if not rows:
            raise StoreError(f"the cache file {self._path} lacks its secret: move it away to start anew")
        return bytes(rows[0][0])

    async def find(self, exact_key: bytes, now: float) -> Entry | None:
        return self._one(_FIND, {"key": exact_key, "now": now})

    async def get(self, entry_id: int, now: float) -> Entry | None:
        return self._one(_GET, {"id": _id(entry_id), "now": now})

    async def inspect(self, entry_id: int, now: float) -> tuple[Entry, EntryUse] | None:
        await self._settle()
        sql = f"SELECT id, {_USE}, {COLUMNS} FROM entries WHERE id = :id AND {SERVED}"
        rows = self._read(sql, {"id": _id(entry_id), "now": now})
        return _with_use(rows[0]) if rows else None

    async def listed(
        self, which: EntryFilter, now: float, *, before: int | None = None, limit: int = 50
    ) -> list[tuple[Entry, EntryUse]]:
        await self._settle()
        chosen = selection(which)
        sql = (
            f"SELECT entries.id, {_USE}, {COLUMNS} FROM {chosen.rows} AND {chosen.id} < :before"
            f" ORDER BY {chosen.id} DESC LIMIT :limit"
        )
        parameters = chosen.parameters | {
            "now": now,
            "before": INT64_MAX if before is None else min(before, INT64_MAX),
            "limit": limit,
        }
        return [_with_use(row) for row in await asyncio.to_thread(self._read_apart, sql, parameters)]

    async def matching(self, which: EntryFilter, now: float) -> IdArray:
        chosen = selection(which)
        sql = f"SELECT {chosen.id} FROM {chosen.rows} ORDER BY {chosen.id}"
        return _ids(await asyncio.to_thread(self._read_apart, sql, chosen.parameters | {"now": now}))

    async def put(self, entry: Entry) -> tuple[int, IdArray]:
        return await self._writer.put(to_record(entry))

    def touch(self, entry_id: int, now: float) -> None:
        self._writer.touch(_id(entry_id), now)

    async def judged(self, entry_id: int, *, right: bool) -> bool:
        return await self._writer.judged(_id(entry_id), right=right)

    async def withdraw(self, entry_id: int) -> bool:
        return await self._writer.withdraw(_id(entry_id))

    async def remove(self, ids: Sequence[int]) -> IdArray:
        """As `AnswerStore.remove`, many of them in several transactions, so that other writes get their
        turn: when it fails, some may have been removed."""
        known = [_id(entry_id) for entry_id in ids]
        starts = range(0, max(len(known), 1), REMOVE_BATCH)
        return np.concatenate([await self._writer.remove(known[i : i + REMOVE_BATCH]) for i in starts])

    async def expire(self, now: float) -> IdArray:
        """As `AnswerStore.expire`; many at once as `remove` does."""
        gone = [await self._writer.expire(now, REMOVE_BATCH)]
        while len(gone[-1]) == REMOVE_BATCH:
            gone.append(await self._writer.expire(now, REMOVE_BATCH))
        return np.concatenate(gone)

    async def vector_ids(self, space: str, now: float) -> IdArray:
        rows = await asyncio.to_thread(self._read_apart, _VECTOR_IDS, {"space": space, "now": now})
        return _ids(rows)

    async def vectors(
        self, space: str, now: float, ids: IdArray | None = None
    ) -> AsyncIterator[tuple[IdArray, FloatMatrix, list[bytes]]]:
        """As `AnswerStore.vectors`, each batch read on another thread."""
        if ids is None:
            ids = await self.vector_ids(space, now)
        for start in range(0, len(ids), VECTOR_BATCH):
            batch = orjson.dumps(ids[start : start + VECTOR_BATCH].tolist()).decode()
            parameters = {"space": space, "now": now, "ids": batch}
            rows = await asyncio.to_thread(self._read_apart, _VECTORS, parameters)
            if rows:
                vectors, sound = sound_vectors([row[2] for row in rows])
                if not sound.all():
                    logger.warning("%s: %d vectors are damaged and left out", self._path, int((~sound).sum()))
                    rows = list(compress(rows, sound))
                if rows:
                    yield _ids(rows), vectors, [row[1] for row in rows]

    async def size(self) -> StoreSize:
        if self._reader is None:
            raise self._closed()
        return self._writer.size

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

    async def _settle(self) -> None:
        """Have the notes of use written, so that reading sees them. A file that cannot be written is read
        as it is."""
        with contextlib.suppress(StoreError):
            await self._writer.write_notes()

    def _one(self, sql: str, parameters: dict[str, object]) -> Entry | None:
        rows = self._read(sql, parameters)
        return _entry(rows[0][0], rows[0][1:]) if rows else None

    def _read(self, sql: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        with self._reading:
            if self._reader is None:
                raise self._closed()
            try:
                # all rows, so that the statement ends and its snapshot with it
                return self._reader.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise unusable(self._path, error) from error

    def _read_apart(self, sql: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """As `_read` on a connection of its own: for what takes long, on another thread."""
        if self._reader is None:
            raise self._closed()
        try:
            connection = connect(self._path, read_only=True)
            try:
                register(connection)
                return connection.execute(sql, parameters).fetchall()
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise unusable(self._path, error) from error

    def _closed(self) -> StoreError:
        return StoreError(f"the cache file {self._path} is closed")


def _id(entry_id: int) -> int:
    """0, which no entry has, for what SQLite could not take as a number."""
    return int(entry_id) if 0 < entry_id <= INT64_MAX else 0


def _ids(rows: list[tuple[Any, ...]]) -> IdArray:
    return np.array([row[0] for row in rows], dtype=np.int64)


def _entry(entry_id: int, columns: tuple[Any, ...]) -> Entry:
    return to_entry(entry_id, EntryRecord._make(columns))


def _with_use(row: tuple[Any, ...]) -> tuple[Entry, EntryUse]:
    entry_id, hits, last_used_at, judged_right, judged_wrong, stored_bytes, *columns = row
    use = EntryUse(
        hits=hits,
        last_used_at=last_used_at,
        judged_right=judged_right,
        judged_wrong=judged_wrong,
        stored_bytes=stored_bytes,
    )
    return _entry(entry_id, tuple(columns)), use
