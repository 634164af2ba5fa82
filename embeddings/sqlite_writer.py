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
from typing import Any

import numpy as np

from embeddings.entry_record import EntryRecord
from embeddings.protocols import IdArray, StoreError
from embeddings.sqlite_schema import COLUMNS, connect, unusable

MAX_WAITING = 10_000
MAX_BATCH = 512
MAX_TOUCHED = 4096
_PUT = (
    f"INSERT INTO entries ({COLUMNS}, last_used_at)"
    f" VALUES ({', '.join('?' * (len(EntryRecord._fields) + 1))}) RETURNING id"
)
_DELETE_KEY = "DELETE FROM entries WHERE exact_key = ? RETURNING id"
_DELETE_ID = "DELETE FROM entries WHERE id = ? RETURNING id"
_DELETE_EXPIRED = "DELETE FROM entries WHERE expires_at <= ? RETURNING id"
_DELETE_OLDEST = (
    "DELETE FROM entries WHERE id IN"
    " (SELECT id FROM entries WHERE id <> ? ORDER BY last_used_at, id LIMIT ?) RETURNING id"
)
_TOUCH = "UPDATE entries SET last_used_at = max(last_used_at, ?), hits = hits + ? WHERE id = ?"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Write:
    run: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class SqliteWriter:
    """Group commit. A write returns once its transaction is committed; when the transaction fails, each
    write in it raises StoreError and none of it has happened. `count` is the number of committed entries.
    """

    def __init__(self, path: Path, max_entries: int) -> None:
        """Raises sqlite3.Error."""
        self._path = path
        self._max_entries = max_entries
        self._connection = connect(path)
        try:
            self._count = self.count = self._count_rows()
        except sqlite3.Error:
            self._connection.close()
            raise
        self._condition = threading.Condition()
        self._waiting: deque[_Write] = deque()
        self._touched: dict[int, tuple[float, int]] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="lockgate-sqlite-writer", daemon=True)
        self._thread.start()

    async def put(self, record: EntryRecord) -> tuple[int, IdArray]:
        put: tuple[int, IdArray] = await self._write(lambda: self._put(record))
        return put

    async def remove(self, ids: list[int]) -> IdArray:
        return _ids(
            await self._write(lambda: [i for entry_id in ids for i in self._delete(_DELETE_ID, entry_id)])
        )

    async def expire(self, now: float) -> IdArray:
        return _ids(await self._write(lambda: self._delete(_DELETE_EXPIRED, now)))

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

    async def _write(self, run: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
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
            self.count = self._count
            _resolve(writes, results)
        return True

    def _commit(self, writes: list[_Write], touched: dict[int, tuple[float, int]]) -> list[Any]:
        self._connection.execute("BEGIN IMMEDIATE")
        if touched:
            rows = [(last, hits, entry_id) for entry_id, (last, hits) in touched.items()]
            self._connection.executemany(_TOUCH, rows)
        results = [write.run() for write in writes]
        self._connection.execute("COMMIT")
        return results

    def _roll_back(self, error: Exception) -> StoreError:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._count = self._count_rows()
        except sqlite3.Error as second:
            logger.warning("rolling back failed: %s", second)
        if isinstance(error, sqlite3.Error):
            return unusable(self._path, error)
        return StoreError(f"cannot write the cache file {self._path}: {error!r}")

    def _put(self, record: EntryRecord) -> tuple[int, IdArray]:
        gone = self._delete(_DELETE_KEY, record.exact_key)
        [(new_id,)] = self._connection.execute(_PUT, (*record, record.created_at)).fetchall()
        self._count += 1
        if self._count > self._max_entries:
            # what had expired when this answer was made has expired now
            gone += [i for i in self._delete(_DELETE_EXPIRED, record.created_at) if i != new_id]
        if self._count > self._max_entries:
            gone += self._delete(_DELETE_OLDEST, new_id, self._count - self._max_entries)
        return int(new_id), _ids(gone)

    def _delete(self, sql: str, *arguments: object) -> list[int]:
        ids = [row[0] for row in self._connection.execute(sql, arguments).fetchall()]
        self._count -= len(ids)
        return ids

    def _count_rows(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM entries").fetchone()[0])


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
