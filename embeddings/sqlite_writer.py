"""The one thread that writes the SQLite file: whatever waits goes into one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from embeddings.capacity import Capacity
from embeddings.entry_record import EntryRecord
from embeddings.protocols import IdArray, StoreError, StoreSize
from embeddings.sqlite_entries import SqliteEntries
from embeddings.sqlite_schema import connect, unusable

MAX_WAITING = 10_000
MAX_BATCH = 512
MAX_TOUCHED = 4096

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Write:
    run: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class SqliteWriter:
    """Group commit. A write returns once its transaction is committed; when the transaction fails, each
    write in it raises StoreError and none of it has happened. `size` is of what is committed."""

    def __init__(self, path: Path, capacity: Capacity) -> None:
        """Raises sqlite3.Error."""
        self._path = path
        self._capacity = capacity
        self._connection = connect(path)
        try:
            self._entries = SqliteEntries(self._connection, capacity)
        except sqlite3.Error:
            self._connection.close()
            raise
        self.size: StoreSize = self._entries.size()
        self._condition = threading.Condition()
        self._waiting: deque[_Write] = deque()
        self._touched: dict[int, tuple[float, int]] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="lockgate-sqlite-writer", daemon=True)
        self._thread.start()

    async def put(self, record: EntryRecord) -> tuple[int, IdArray]:
        self._capacity.check(record)
        new_id, gone = await self._write(lambda: self._entries.put(record))
        return new_id, _ids(gone)

    async def remove(self, ids: list[int]) -> IdArray:
        return _ids(await self._write(lambda: self._entries.remove(ids)))

    async def expire(self, now: float, limit: int) -> IdArray:
        return _ids(await self._write(lambda: self._entries.expire(now, limit)))

    async def judged(self, entry_id: int, *, right: bool) -> bool:
        return await self._write(lambda: self._entries.judged(entry_id, right=right))

    async def withdraw(self, entry_id: int) -> bool:
        return await self._write(lambda: self._entries.withdraw(entry_id))

    async def write_notes(self) -> None:
        """Write the notes of use that wait, if there are any."""
        if self._touched:
            await self._write(lambda: None)

    def touch(self, entry_id: int, now: float) -> None:
        """Kept in memory until the next transaction, or until there are many."""
        with self._condition:
            last, hits = self._touched.get(entry_id, (now, 0))
            self._touched[entry_id] = max(last, now), hits + 1
            if len(self._touched) == MAX_TOUCHED:
                self._condition.notify()

    def close(self) -> None:
        """Write what waits and end the thread. Blocks."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()

    async def _write(self, run: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._condition:
            if self._closing:
                raise StoreError(f"the cache file {self._path} is closed")
            if len(self._waiting) >= MAX_WAITING:
                raise StoreError(f"the cache file {self._path} cannot keep up: {MAX_WAITING} writes wait")
            self._waiting.append(_Write(run, loop, future))
            self._condition.notify()
        return await future

    def _work(self) -> None:
        try:
            while self._step():
                pass
            with contextlib.suppress(sqlite3.Error):  # the next opening does the same
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self._connection.close()

    def _step(self) -> bool:
        """One transaction. False when there is nothing left to do, ever."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._closing or self._waiting or len(self._touched) >= MAX_TOUCHED
            )
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]
            touched, self._touched = self._touched, {}
            if not taken and not touched:
                return False
        writes = [write for write in taken if not write.future.cancelled()]
        try:
            results = self._commit(writes, touched)
        except Exception as error:  # noqa: BLE001 - the thread's edge: each waiter gets it
            failure = self._roll_back(error)
            if not writes:
                logger.warning("notes of use were lost: %s", failure)
            _resolve(writes, [failure] * len(writes))
        else:
            self.size = self._entries.size()
            _resolve(writes, results)
        return True

    def _commit(self, writes: list[_Write], touched: dict[int, tuple[float, int]]) -> list[Any]:
        self._connection.execute("BEGIN IMMEDIATE")
        for entry_id, (last_used_at, hits) in touched.items():  # they count when a put makes room
            self._entries.touch(entry_id, last_used_at, hits)
        results = [write.run() for write in writes]
        self._connection.execute("COMMIT")
        return results

    def _roll_back(self, error: Exception) -> StoreError:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._entries.reload()
        except sqlite3.Error as second:
            logger.warning("rolling back failed: %s", second)
        if isinstance(error, sqlite3.Error):
            return unusable(self._path, error)
        return StoreError(f"cannot write the cache file {self._path}: {error!r}")


def _ids(ids: Iterable[int]) -> IdArray:
    return np.array(list(ids), dtype=np.int64)


def _resolve(writes: list[_Write], results: list[Any]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for write, result in zip(writes, results, strict=True):
        by_loop.setdefault(write.loop, []).append((write.future, result))
    for loop, outcomes in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop has been closed: no one waits any more
            loop.call_soon_threadsafe(_deliver, outcomes)


def _deliver(outcomes: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in outcomes:
        if future.done():
            continue
        if isinstance(result, StoreError):
            future.set_exception(StoreError(str(result)))  # not shared: each is raised with its own traceback
        else:
            future.set_result(result)
