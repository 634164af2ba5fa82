"""The semantic cache of one process: store, index and embedder behind one contract."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from embeddings.async_index import AsyncIndex
from embeddings.engine_thread import EngineThread
from embeddings.hot_entries import HotEntries
from embeddings.protocols import (
    EVERY_ENTRY,
    AnswerStore,
    EmbedderError,
    EncodedText,
    Entry,
    EntryFilter,
    EntryUse,
    FloatVector,
    IdArray,
    StoreError,
    StoreSize,
    VectorIndex,
)
from policies.types import Candidate

HOT_BYTES = 32 * 2**20
COSINE_TOLERANCE = 2e-3
"""How far an index may be from the store's own vectors: float16 rounding moves a cosine by 1e-4."""
MAX_SEARCHES = 100
"""A search among entries that expired unswept may need some; one more than that is a fault of the index."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class LocalSemanticCache:
    """`SemanticCache` over a store, an index derived from it, and an embedder's thread. Owns all three.

    The store is written first and the index after it; what the index holds too much, or says otherwise than
    the store, is found out against the store and put right, so the two may disagree for a moment but never
    in an answer.
    """

    def __init__(
        self,
        store: AnswerStore,
        index: VectorIndex | None = None,
        engine: EngineThread | None = None,
        *,
        snapshot: Path | None = None,
        hot_bytes: int = HOT_BYTES,
    ) -> None:
        """Call `start` before use. Without index and engine the cache finds by exact key only. `snapshot` is
        where a large index is saved."""
        if (index is None) != (engine is None):
            raise ValueError("an index needs an engine and an engine an index")
        self._store = store
        self._index = None if index is None else AsyncIndex(index, snapshot)
        self._engine = engine
        self._hot = HotEntries(hot_bytes)
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def space(self) -> str | None:
        return None if self._engine is None else self._engine.space

    async def start(self, now: float, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Fill the index. `on_progress(done, total)` after each batch of vectors that had to be read from the
        store. Raises StoreError."""
        if self._index is not None and self._engine is not None:
            await self._index.fill(self._store, self._engine.space, now, on_progress)

    async def save_index(self) -> bool:
        """Save the index where it has changed so much that a start would notice. Whether it was saved. Raises
        StoreError."""
        if self._index is None or self._engine is None:
            return False
        return await self._index.save(self._store, self._engine.space)

    def at_hand(self, exact_key: bytes, now: float) -> Entry | None:
        return self._served(self._hot.find(exact_key, now), now)

    async def find(self, exact_key: bytes, now: float) -> Entry | None:
        entry = self._hot.find(exact_key, now)
        if entry is None:
            generation = self._hot.generation
            entry = await self._store.find(exact_key, now)
            if entry is not None:
                self._hot.add(entry, generation)
        return self._served(entry, now)

    async def get(self, entry_id: int, now: float) -> Entry | None:
        return self._served(await self._look_up(entry_id, now), now)

    async def inspect(self, entry_id: int, now: float) -> tuple[Entry, EntryUse] | None:
        return await self._store.inspect(entry_id, now)

    async def listed(
        self, which: EntryFilter, now: float, *, before: int | None = None, limit: int = 50
    ) -> list[tuple[Entry, EntryUse]]:
        return await self._store.listed(which, now, before=before, limit=limit)

    async def matching(self, which: EntryFilter, now: float) -> IdArray:
        return await self._store.matching(which, now)

    async def similar(
        self, vector: FloatVector, min_similarity: float, which: EntryFilter, now: float
    ) -> list[tuple[int, float]]:
        if self._engine is None:
            return []
        allowed = None if which == EVERY_ENTRY else await self._store.matching(which, now)
        found: list[tuple[int, float]] = []
        async for ids, vectors, _ in self._store.vectors(self._engine.space, now, allowed):
            cosines = await asyncio.to_thread(np.matmul, vectors, vector)
            near = np.flatnonzero(cosines >= min_similarity)
            found += zip(ids[near].tolist(), np.clip(cosines[near], -1, 1).tolist(), strict=True)
        return sorted(found, key=lambda one: -one[1])

    async def embed(self, text: str) -> EncodedText:
        if self._engine is None:
            raise EmbedderError("this cache has no embedder: it finds by exact key only")
        return await self._engine.encode(text)

    async def search(self, vector: FloatVector, partition: bytes, k: int, now: float) -> list[Candidate]:
        """As `SemanticCache.search`. What the index holds of expired entries, or says otherwise than the
        store, is put right and the search repeated, so `k` candidates come back if there are as many."""
        candidates: list[Candidate] = []
        for _ in range(MAX_SEARCHES if self._index is not None else 0):
            assert self._index is not None
            similarity, ids = await self._index.search(vector, k, partition)
            candidates, doubted = await self._candidates(vector, partition, similarity, ids, now)
            if not doubted:
                break
            await self._index.put_right(doubted)
        return candidates

    async def put(self, entry: Entry) -> int:
        self._check(entry)
        return await self._finish(self._put(entry))

    async def judge(self, entry_id: int, *, right: bool, by_similarity: bool) -> bool:
        return await self._finish(self._judge(entry_id, right=right, by_similarity=by_similarity))

    async def note(self, entry_id: int, *, right: bool) -> bool:
        return await self._store.judged(entry_id, right=right)

    async def withdraw(self, entry_id: int) -> bool:
        return await self._finish(self._withdraw(entry_id))

    async def remove(self, ids: Sequence[int]) -> int:
        try:
            return await self._finish(self._forget(self._store.remove(ids)))
        except StoreError:
            self._hot.drop(ids)  # some may be gone all the same
            raise

    async def sweep(self, now: float) -> int:
        return await self._finish(self._forget(self._store.expire(now)))

    async def size(self) -> StoreSize:
        return await self._store.size()

    async def aclose(self) -> None:
        """Let the writes in hand finish, save the index, then close embedder and store."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._hot = HotEntries(0)
        try:
            await self.save_index()
        except StoreError as error:
            logger.warning("%s: the next start reads the vectors from the store", error)
        try:
            if self._engine is not None:
                await asyncio.to_thread(self._engine.close)
            if self._index is not None:
                await asyncio.to_thread(self._index.close)
        finally:
            await self._store.aclose()

    async def _look_up(self, entry_id: int, now: float) -> Entry | None:
        entry = self._hot.get(entry_id, now)
        if entry is None:
            generation = self._hot.generation
            entry = await self._store.get(entry_id, now)
            if entry is not None:
                self._hot.add(entry, generation)
        return entry

    def _served(self, entry: Entry | None, now: float) -> Entry | None:
        if entry is not None:
            self._store.touch(entry.id, now)
        return entry

    async def _candidates(
        self, query: FloatVector, partition: bytes, similarity: FloatVector, ids: IdArray, now: float
    ) -> tuple[list[Candidate], dict[int, Entry | None]]:
        """The unexpired of `ids` by similarity, and those of which the index says otherwise than the store:
        on the partition or on the vector."""
        candidates: list[Candidate] = []
        doubted: dict[int, Entry | None] = {}
        for entry_id, cosine in zip(ids.tolist(), similarity.tolist(), strict=True):
            if entry_id < 0:
                break
            entry = await self._look_up(entry_id, now)
            if entry is None or entry.text is None or entry.vector is None:
                doubted[entry_id] = None
                continue
            stored_cosine = max(-1.0, min(1.0, float(query @ entry.vector)))
            if entry.partition != partition or abs(stored_cosine - cosine) > COSINE_TOLERANCE:
                doubted[entry_id] = entry
                continue
            candidates.append(
                Candidate(
                    entry_id=entry_id,
                    similarity=stored_cosine,
                    text=entry.text,
                    created_at=entry.answer.created_at,
                )
            )
        candidates.sort(key=lambda one: -one.similarity)
        return candidates, doubted

    async def _put(self, entry: Entry) -> int:
        new_id, gone = await self._store.put(entry)
        self._hot.drop(gone.tolist())
        if self._index is None:
            return new_id
        if entry.vector is not None:
            await self._index.add(new_id, entry.vector, entry.partition)
            # Another put or remove may have taken it from the store, and from the index before it was
            # there. One that comes after this look takes it from the index itself.
            if await self._store.get(new_id, entry.answer.created_at) is None:
                gone = np.append(gone, np.int64(new_id))
        await self._index.remove(gone)
        return new_id

    async def _judge(self, entry_id: int, *, right: bool, by_similarity: bool) -> bool:
        if not await self._store.judged(entry_id, right=right):
            return False
        if right:
            return True
        if not by_similarity:
            return await self._forget(self._store.remove([entry_id])) == 1
        return await self._withdraw(entry_id)

    async def _withdraw(self, entry_id: int) -> bool:
        there = await self._store.withdraw(entry_id)
        self._hot.drop([entry_id])
        if self._index is not None:
            await self._index.remove(np.array([entry_id], dtype=np.int64))
        return there

    async def _forget(self, removal: Coroutine[Any, Any, IdArray]) -> int:
        gone = await removal
        self._hot.drop(gone.tolist())
        if self._index is not None:
            await self._index.remove(gone)
        return len(gone)

    async def _finish(self, write: Coroutine[Any, Any, T]) -> T:
        """Run to the end even when the caller is cancelled, lest store and index part."""
        task = asyncio.get_running_loop().create_task(write)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_report)
            raise

    def _check(self, entry: Entry) -> None:
        if entry.vector is None:
            return
        if self._engine is None or entry.space != self._engine.space:
            raise StoreError(f"the vector's space is {entry.space!r}, this cache's is {self.space!r}")
        if entry.vector.shape != (self._engine.dimension,):
            raise StoreError(f"the vector has shape {entry.vector.shape}, not ({self._engine.dimension},)")


def _report(task: asyncio.Task[Any]) -> None:
    """Log what no caller waits to hear."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("a write whose caller had left failed: %s", error)
