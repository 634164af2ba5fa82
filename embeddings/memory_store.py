"""The answer store in memory: for tests, and for caches that need not outlive the process."""

from __future__ import annotations

import asyncio
import heapq
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

import numpy as np

from embeddings.entry_record import EntryRecord, to_entry, to_record, to_vectors
from embeddings.protocols import Entry, FloatMatrix, IdArray, StoreError

VECTOR_BATCH = 4096


class MemoryStore:
    """`AnswerStore` that a kill empties. Used from one event loop."""

    def __init__(self, max_entries: int) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries must be at least 1, got {max_entries}")
        self._max_entries = max_entries
        self._secret = os.urandom(32)
        self._records: OrderedDict[int, EntryRecord] = OrderedDict()  # least recently used first
        self._id_by_key: dict[bytes, int] = {}
        self._expiries: list[tuple[float, int]] = []  # a heap; ids that have left stay until they surface
        self._last_id = 0
        self._closed = False

    async def secret(self) -> bytes:
        return self._secret

    async def find(self, exact_key: bytes, now: float) -> Entry | None:
        return await self.get(self._id_by_key.get(exact_key, 0), now)

    async def get(self, entry_id: int, now: float) -> Entry | None:
        self._check_open()
        record = self._records.get(entry_id)
        return to_entry(entry_id, record) if record is not None and now < record.expires_at else None

    async def put(self, entry: Entry) -> tuple[int, IdArray]:
        self._check_open()
        record = to_record(entry)
        gone = self._drop([self._id_by_key[record.exact_key]]) if record.exact_key in self._id_by_key else []
        self._last_id += 1
        new_id = self._last_id
        self._records[new_id] = record
        self._id_by_key[record.exact_key] = new_id
        heapq.heappush(self._expiries, (record.expires_at, new_id))
        if len(self._records) > self._max_entries:
            # what had expired when this answer was made has expired now
            gone += [i for i in self._drop(self._expired(record.created_at)) if i != new_id]
        while len(self._records) > self._max_entries:
            gone += self._drop([next(iter(self._records))])
        if len(self._expiries) > 2 * len(self._records) + 64:
            self._expiries = [(kept.expires_at, i) for i, kept in self._records.items()]
            heapq.heapify(self._expiries)
        return new_id, np.array(gone, dtype=np.int64)

    def touch(self, entry_id: int, now: float) -> None:
        if entry_id in self._records:
            self._records.move_to_end(entry_id)

    async def remove(self, ids: Sequence[int]) -> IdArray:
        self._check_open()
        return np.array(self._drop(ids), dtype=np.int64)

    async def expire(self, now: float) -> IdArray:
        self._check_open()
        return np.array(self._drop(self._expired(now)), dtype=np.int64)

    async def vectors(
        self, space: str, now: float
    ) -> AsyncIterator[tuple[IdArray, FloatMatrix, list[bytes]]]:
        self._check_open()
        every_id = list(self._records)
        for start in range(0, len(every_id), VECTOR_BATCH):
            ids, blobs, partitions = [], [], []
            for entry_id in every_id[start : start + VECTOR_BATCH]:
                record = self._records.get(entry_id)
                if record is None or record.vector is None or record.space != space:
                    continue
                if now < record.expires_at:
                    ids.append(entry_id)
                    blobs.append(record.vector)
                    partitions.append(record.partition)
            if ids:
                yield np.array(ids, dtype=np.int64), to_vectors(blobs), partitions
            await asyncio.sleep(0)

    async def count(self) -> int:
        self._check_open()
        return len(self._records)

    async def aclose(self) -> None:
        self._closed = True
        self._records.clear()
        self._id_by_key.clear()
        self._expiries.clear()

    def _expired(self, now: float) -> list[int]:
        expired = []
        while self._expiries and self._expiries[0][0] <= now:
            expired.append(heapq.heappop(self._expiries)[1])
        return expired

    def _drop(self, ids: Sequence[int]) -> list[int]:
        dropped = []
        for entry_id in ids:
            record = self._records.pop(entry_id, None)
            if record is not None:
                del self._id_by_key[record.exact_key]
                dropped.append(entry_id)
        return dropped

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the memory store is closed")
