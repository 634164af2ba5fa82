"""The semantic cache of one process: store, index and embedder behind one contract."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from embeddings.engine_thread import EngineThread
from embeddings.hot_entries import HotEntries
from embeddings.protocols import (
    AnswerStore,
    EmbedderError,
    EncodedText,
    Entry,
    FloatMatrix,
    FloatVector,
    IdArray,
    StoreError,
    StoreSize,
    VectorIndex,
)
from policies.types import Candidate

INLINE_VECTORS = 4096
"""Index work that goes through up to so many vectors runs on the event loop: a search of 4096 takes 0.3 ms
at 384 dimensions, and reaching a thread 0.1 ms. Larger work goes to a thread."""
HOT_BYTES = 32 * 2**20

T = TypeVar("T")
logger = logging.getLogger(__name__)


class LocalSemanticCache:
    """`SemanticCache` over a store, an index derived from it, and an embedder's thread. Owns all three.

    The store is written first and the index after it; what the index holds too much is found out against
    the store and taken out, so the two may disagree for a moment but never in an answer.
    """

    def __init__(
        self,
        store: AnswerStore,
        index: VectorIndex | None = None,
        engine: EngineThread | None = None,
        *,
        hot_bytes: int = HOT_BYTES,
    ) -> None:
        """Call `start` before use. Without index and engine the cache finds by exact key only."""
        if (index is None) != (engine is None):
            raise ValueError("an index needs an engine and an engine an index")
        self._store = store
        self._index = index
        self._engine = engine
        self._hot = HotEntries(hot_bytes)
        # two threads: a search of a large partition must not wait behind the writes to small ones
        self._searcher = ThreadPoolExecutor(1, "lockgate-search")
        self._indexer = ThreadPoolExecutor(1, "lockgate-index")
        self._index_writes = 0  # on their way to the thread or in it
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def space(self) -> str | None:
        return None if self._engine is None else self._engine.space

    async def start(self, now: float, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Fill the index from the store. `on_progress(done, total)` after each batch; `total` counts all
        entries, so entries without a vector, or of another space, leave `done` short of it: those are
        found by exact key only. Raises StoreError."""
        if self._index is None or self._engine is None:
            return
        total = (await self._store.size()).entries
        done = 0
        async for ids, vectors, partitions in self._store.vectors(self._engine.space, now):
            await self._write_index(INLINE_VECTORS + 1, self._index.add, ids, vectors, partitions)
            done += len(ids)
            if on_progress is not None:
                on_progress(done, total)

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

    async def embed(self, text: str) -> EncodedText:
        if self._engine is None:
            raise EmbedderError("this cache has no embedder: it finds by exact key only")
        return await self._engine.encode(text)

    async def search(self, vector: FloatVector, partition: bytes, k: int, now: float) -> list[Candidate]:
        """As `SemanticCache.search`. What the index still holds of expired entries is taken out and the
        search repeated, so `k` candidates come back whenever there are as many."""
        index = self._index
        if index is None:
            return []
        query = vector.reshape(1, -1)
        while True:
            if index.partition_size(partition) <= INLINE_VECTORS:
                similarity, ids = _translated(index.search, query, k, partition)
            else:
                similarity, ids = await self._run(self._searcher, index.search, query, k, partition)
            candidates, stale = await self._candidates(similarity[0], ids[0], now)
            if not stale:
                return candidates
            await self._unindex(np.array(stale, dtype=np.int64))

    async def put(self, entry: Entry) -> int:
        self._check(entry)
        return await self._finish(self._put(entry))

    async def remove(self, ids: Sequence[int]) -> int:
        return await self._finish(self._forget(self._store.remove(ids)))

    async def sweep(self, now: float) -> int:
        return await self._finish(self._forget(self._store.expire(now)))

    async def size(self) -> StoreSize:
        return await self._store.size()

    async def aclose(self) -> None:
        """Let the writes in hand finish, then close embedder and store."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._hot = HotEntries(0)
        try:
            if self._engine is not None:
                await asyncio.to_thread(self._engine.close)
            for executor in (self._searcher, self._indexer):
                await asyncio.to_thread(executor.shutdown)
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
        self, similarity: FloatVector, ids: IdArray, now: float
    ) -> tuple[list[Candidate], list[int]]:
        """The unexpired of `ids`, and those that the store no longer has."""
        candidates: list[Candidate] = []
        stale: list[int] = []
        for entry_id, cosine in zip(ids.tolist(), similarity.tolist(), strict=True):
            if entry_id < 0:
                break
            entry = await self._look_up(entry_id, now)
            if entry is None or entry.text is None:
                stale.append(entry_id)
                continue
            candidates.append(
                Candidate(
                    entry_id=entry_id,
                    similarity=cosine,
                    text=entry.text,
                    created_at=entry.answer.created_at,
                )
            )
        return candidates, stale

    async def _put(self, entry: Entry) -> int:
        new_id, gone = await self._store.put(entry)
        self._hot.drop(gone.tolist())
        if self._index is None:
            return new_id
        if entry.vector is not None:
            ids = np.array([new_id], dtype=np.int64)
            vectors: FloatMatrix = np.ascontiguousarray(entry.vector.reshape(1, -1))
            size = self._index.partition_size(entry.partition)
            await self._write_index(size, self._index.add, ids, vectors, [entry.partition])
            # Another put or remove may have taken it from the store, and from the index before it was
            # there. One that comes after this look takes it from the index itself.
            if await self._store.get(new_id, entry.answer.created_at) is None:
                gone = np.append(gone, ids)
        await self._unindex(gone)
        return new_id

    async def _forget(self, removal: Coroutine[Any, Any, IdArray]) -> int:
        gone = await removal
        self._hot.drop(gone.tolist())
        await self._unindex(gone)
        return len(gone)

    async def _unindex(self, ids: IdArray) -> None:
        if self._index is not None and len(ids):
            # a removal scans its partition 16 times as fast as a search, and costs about as much a vector
            # of its own as a search does for 64
            size = len(self._index) // 16 + 64 * len(ids)
            await self._write_index(size, self._index.remove, ids)

    async def _write_index(self, size: int, function: Callable[..., T], *arguments: Any) -> T:
        """`size`: how many vectors a search of the same cost goes through. Writes exclude each other, so
        while the thread has one the event loop must not begin another: it would wait for it."""
        if size <= INLINE_VECTORS and not self._index_writes:
            return _translated(function, *arguments)
        self._index_writes += 1
        try:
            return await self._run(self._indexer, function, *arguments)
        finally:
            self._index_writes -= 1

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

    async def _run(self, executor: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any) -> T:
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(executor, _translated, function, *arguments)
        except RuntimeError as error:
            raise StoreError("the cache is closed") from error

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


def _translated(function: Callable[..., T], *arguments: Any) -> T:
    """The index's errors as the contract's."""
    try:
        return function(*arguments)
    except (ValueError, RuntimeError, MemoryError) as error:
        raise StoreError(f"the vector index failed: {error}") from error
