"""The answer store in memory: for tests, and for caches that need not outlive the process."""

from __future__ import annotations

import asyncio
import heapq
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from embeddings.capacity import EVICTION, MAX_BYTES, Capacity
from embeddings.entry_record import EntryRecord, fits, is_served, to_entry, to_record, to_vectors
from embeddings.protocols import Entry, EntryFilter, EntryUse, FloatMatrix, IdArray, StoreError, StoreSize
from policies.eviction import EvictionPolicy

SCAN_BATCH = 4096  # other tasks run after so many


@dataclass(slots=True)
class _Kept:
    """What the store knows of an entry."""

    record: EntryRecord
    density: float
    priority: float
    last_used_at: float
    hits: int = 0
    judged_right: int = 0
    judged_wrong: int = 0

    def use(self) -> EntryUse:
        return EntryUse(
            hits=self.hits,
            last_used_at=self.last_used_at,
            judged_right=self.judged_right,
            judged_wrong=self.judged_wrong,
            stored_bytes=self.record.stored_bytes,
        )


class MemoryStore:
    """`AnswerStore` that a kill empties. Used from one event loop."""

    def __init__(
        self, max_entries: int, max_bytes: int = MAX_BYTES, eviction: EvictionPolicy = EVICTION
    ) -> None:
        """Raises ValueError when a limit is less than 1."""
        self._capacity = Capacity(max_entries, max_bytes, eviction)
        self._secret = os.urandom(32)
        self._kept: dict[int, _Kept] = {}  # by ascending id
        self._id_by_key: dict[bytes, int] = {}
        self._stored_bytes = 0
        self._clock = 0.0
        # heaps of (when, id) and (priority, id): what holds no more stays until it surfaces
        self._expiries: list[tuple[float, int]] = []
        self._priorities: list[tuple[float, int]] = []
        self._last_id = 0
        self._closed = False

    async def secret(self) -> bytes:
        return self._secret

    async def find(self, exact_key: bytes, now: float) -> Entry | None:
        return await self.get(self._id_by_key.get(exact_key, 0), now)

    async def get(self, entry_id: int, now: float) -> Entry | None:
        kept = self._served(entry_id, now)
        return None if kept is None else to_entry(entry_id, kept.record)

    async def inspect(self, entry_id: int, now: float) -> tuple[Entry, EntryUse] | None:
        kept = self._served(entry_id, now)
        return None if kept is None else (to_entry(entry_id, kept.record), kept.use())

    async def listed(
        self, which: EntryFilter, now: float, *, before: int | None = None, limit: int = 50
    ) -> list[tuple[Entry, EntryUse]]:
        ids = [i for i in reversed(self._kept) if before is None or i < before]
        found = await self._fitting(ids, which, now, limit)
        return [(to_entry(entry_id, kept.record), kept.use()) for entry_id, kept in found]

    async def matching(self, which: EntryFilter, now: float) -> IdArray:
        found = await self._fitting(list(self._kept), which, now, len(self._kept))
        return _ids(entry_id for entry_id, _ in found)

    async def put(self, entry: Entry) -> tuple[int, IdArray]:
        self._check_open()
        record = to_record(entry)
        self._capacity.check(record)
        gone = self._drop([self._id_by_key[record.exact_key]]) if record.exact_key in self._id_by_key else []
        gone += self._make_room(record)
        self._last_id += 1
        new_id = self._last_id
        density = self._capacity.density_of(record)
        priority = self._capacity.eviction.priority(self._clock, density, 0)
        self._kept[new_id] = _Kept(record, density, priority, record.created_at)
        self._id_by_key[record.exact_key] = new_id
        self._stored_bytes += record.stored_bytes
        heapq.heappush(self._expiries, (record.expires_at, new_id))
        heapq.heappush(self._priorities, (priority, new_id))
        self._trim_heaps()
        return new_id, _ids(gone)

    def touch(self, entry_id: int, now: float) -> None:
        kept = self._kept.get(entry_id)
        if kept is None:
            return
        kept.hits += 1
        kept.last_used_at = max(kept.last_used_at, now)
        kept.priority = self._capacity.eviction.priority(self._clock, kept.density, kept.hits)
        heapq.heappush(self._priorities, (kept.priority, entry_id))
        self._trim_heaps()

    async def judged(self, entry_id: int, *, right: bool) -> bool:
        self._check_open()
        kept = self._kept.get(entry_id)
        if kept is None:
            return False
        kept.judged_right += right
        kept.judged_wrong += not right
        return True

    async def withdraw(self, entry_id: int) -> bool:
        self._check_open()
        kept = self._kept.get(entry_id)
        if kept is None:
            return False
        vector_bytes = len(kept.record.vector or b"")
        stored_bytes = kept.record.stored_bytes - vector_bytes
        kept.record = kept.record._replace(vector=None, space=None, stored_bytes=stored_bytes)
        self._stored_bytes -= vector_bytes
        return True

    async def remove(self, ids: Sequence[int]) -> IdArray:
        self._check_open()
        return _ids(self._drop(ids))

    async def expire(self, now: float) -> IdArray:
        self._check_open()
        return _ids(self._drop(self._expired(now)))

    async def vector_ids(self, space: str, now: float) -> IdArray:
        self._check_open()
        return _ids(
            [
                entry_id
                for entry_id, kept in self._kept.items()
                if kept.record.space == space and is_served(kept.record, now)
            ]
        )

    async def vectors(
        self, space: str, now: float, ids: IdArray | None = None
    ) -> AsyncIterator[tuple[IdArray, FloatMatrix, list[bytes]]]:
        self._check_open()
        every_id = list(self._kept) if ids is None else ids.tolist()
        for start in range(0, len(every_id), SCAN_BATCH):
            found, blobs, partitions = [], [], []
            for entry_id in every_id[start : start + SCAN_BATCH]:
                kept = self._served(entry_id, now)
                if kept is not None and kept.record.vector is not None and kept.record.space == space:
                    found.append(entry_id)
                    blobs.append(kept.record.vector)
                    partitions.append(kept.record.partition)
            if found:
                yield _ids(found), to_vectors(blobs), partitions
            await asyncio.sleep(0)

    async def size(self) -> StoreSize:
        self._check_open()
        return StoreSize(entries=len(self._kept), stored_bytes=self._stored_bytes)

    async def aclose(self) -> None:
        self._closed = True
        self._kept.clear()
        self._id_by_key.clear()
        self._expiries.clear()
        self._priorities.clear()

    def _served(self, entry_id: int, now: float) -> _Kept | None:
        self._check_open()
        kept = self._kept.get(entry_id)
        return kept if kept is not None and is_served(kept.record, now) else None

    async def _fitting(
        self, ids: Sequence[int], which: EntryFilter, now: float, limit: int
    ) -> list[tuple[int, _Kept]]:
        """The first `limit` of `ids` that are served and fit."""
        self._check_open()
        found: list[tuple[int, _Kept]] = []
        for position, entry_id in enumerate(ids, 1):
            if len(found) >= limit:
                break
            kept = self._served(entry_id, now)
            if kept is not None and fits(kept.record, which):
                found.append((entry_id, kept))
            if position % SCAN_BATCH == 0:
                await asyncio.sleep(0)
        return found

    def _make_room(self, record: EntryRecord) -> list[int]:
        gone: list[int] = []
        if self._lacks_room(record):
            # what had expired when this answer was made has expired now
            gone += self._drop(self._expired(record.created_at))
        while self._lacks_room(record):
            priority, entry_id = heapq.heappop(self._priorities)
            kept = self._kept.get(entry_id)
            if kept is not None and kept.priority == priority:
                gone += self._drop([entry_id])
                self._clock = max(self._clock, priority)
        return gone

    def _lacks_room(self, record: EntryRecord) -> bool:
        return self._capacity.is_exceeded(len(self._kept) + 1, self._stored_bytes + record.stored_bytes)

    def _expired(self, now: float) -> list[int]:
        expired = []
        while self._expiries and self._expiries[0][0] <= now:
            expired.append(heapq.heappop(self._expiries)[1])
        return expired

    def _drop(self, ids: Iterable[int]) -> list[int]:
        dropped = []
        for entry_id in ids:
            kept = self._kept.pop(entry_id, None)
            if kept is not None:
                del self._id_by_key[kept.record.exact_key]
                self._stored_bytes -= kept.record.stored_bytes
                dropped.append(entry_id)
        return dropped

    def _trim_heaps(self) -> None:
        bound = 2 * len(self._kept) + 64
        if len(self._expiries) > bound:
            self._expiries = [(kept.record.expires_at, i) for i, kept in self._kept.items()]
            heapq.heapify(self._expiries)
        if len(self._priorities) > bound:
            self._priorities = [(kept.priority, i) for i, kept in self._kept.items()]
            heapq.heapify(self._priorities)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the memory store is closed")


def _ids(ids: Iterable[int]) -> IdArray:
    return np.array(list(ids), dtype=np.int64)
