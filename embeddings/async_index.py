"""The vector index as the event loop uses it: small work at once, large work on threads, and its snapshot."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from embeddings.protocols import (
    AnswerStore,
    Entry,
    FloatMatrix,
    FloatVector,
    IdArray,
    StoreError,
    VectorIndex,
)

INLINE_VECTORS = 16_384
"""Index work on partitions of up to so many vectors runs on the event loop: a search of 16,384 takes 0.2 ms
at 384 dimensions, and reaching a thread 0.1 ms. Larger work goes to a thread."""
MIN_SAVED = 20_000
"""Fewer new vectors than this are read from the store at a start in less than a second."""

T = TypeVar("T")


class AsyncIndex:
    """Owns the index's threads. All calls but `close` come from one event loop and raise StoreError only."""

    def __init__(self, index: VectorIndex, snapshot: Path | None = None) -> None:
        """`snapshot` is where a large index is saved, so that the next start need not read every vector."""
        self._index = index
        self._snapshot = snapshot
        self._changes = 0  # vectors that came or left since the index was saved
        # two threads: a search of a large partition must not wait behind the writes to small ones
        self._searcher = ThreadPoolExecutor(1, "lockgate-search")
        self._writer = ThreadPoolExecutor(1, "lockgate-index")
        self._writes = 0  # on their way to the thread or in it

    async def fill(
        self,
        store: AnswerStore,
        space: str,
        now: float,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """From the snapshot, as far as the store agrees with it, and from the store.
        `on_progress(done, total)` after each batch of vectors read from the store."""
        index = self._index
        if self._snapshot is not None:
            await self._run(self._writer, index.load, self._snapshot, await _label(store, space))
        indexed, stored = index.ids(), await store.vector_ids(space, now)
        await self.remove(np.setdiff1d(indexed, stored))
        missing = np.setdiff1d(stored, indexed) if len(indexed) else None
        total = len(stored) if missing is None else len(missing)
        if not total:
            return
        done = 0
        async for ids, vectors, partitions in store.vectors(space, now, missing):
            await self._write(INLINE_VECTORS + 1, index.add, ids, vectors, partitions)
            self._changes += len(ids)
            done += len(ids)
            if on_progress is not None:
                on_progress(done, total)

    async def save(self, store: AnswerStore, space: str) -> bool:
        """Save the index where it has changed so much that a start would notice. Whether it was saved."""
        path = self._snapshot
        if path is None or self._changes < max(MIN_SAVED, len(self._index) // 10):
            return False
        changes = self._changes
        try:
            await asyncio.to_thread(self._index.save, path, await _label(store, space))
        except OSError as error:
            raise StoreError(f"cannot save the index {path}: {error.strerror or error}") from error
        self._changes -= changes
        return True

    async def search(self, vector: FloatVector, k: int, partition: bytes) -> tuple[FloatVector, IdArray]:
        """Of one query, float32 (D,): similarities (k,) and ids (k,), as `VectorIndex.search` has them."""
        query: FloatMatrix = vector.reshape(1, -1)
        if self._index.partition_size(partition) <= INLINE_VECTORS:
            similarity, ids = _translated(self._index.search, query, k, partition)
        else:
            similarity, ids = await self._run(self._searcher, self._index.search, query, k, partition)
        return similarity[0], ids[0]

    async def add(self, entry_id: int, vector: FloatVector, partition: bytes) -> None:
        ids = np.array([entry_id], dtype=np.int64)
        vectors: FloatMatrix = np.ascontiguousarray(vector.reshape(1, -1))
        self._changes += 1
        size = self._index.partition_size(partition)
        await self._write(size, self._index.add, ids, vectors, [partition])

    async def put_right(self, doubted: dict[int, Entry | None]) -> None:
        """Have the index say of these ids what their entries say; who is None is gone."""
        await self.remove(np.array(list(doubted), dtype=np.int64))
        for entry_id, entry in doubted.items():
            if entry is not None and entry.vector is not None:
                await self.add(entry_id, entry.vector, entry.partition)

    async def remove(self, ids: IdArray) -> None:
        if not len(ids):
            return
        self._changes += len(ids)
        # a removal costs about as much as a search does for 256 vectors
        await self._write(256 * len(ids), self._index.remove, ids)

    def close(self) -> None:
        """Blocks until what is running has ended."""
        for executor in (self._searcher, self._writer):
            executor.shutdown()

    async def _write(self, size: int, function: Callable[..., T], *arguments: Any) -> T:
        """`size`: of the partition, or of one whose search costs the same. Writes exclude each other, so
        while the thread has one the event loop must not begin another: it would wait for it."""
        if size <= INLINE_VECTORS and not self._writes:
            return _translated(function, *arguments)
        self._writes += 1
        try:
            return await self._run(self._writer, function, *arguments)
        finally:
            self._writes -= 1

    async def _run(self, executor: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any) -> T:
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(executor, _translated, function, *arguments)
        except RuntimeError as error:
            raise StoreError("the cache is closed") from error


async def _label(store: AnswerStore, space: str) -> str:
    """Of a snapshot: whose vectors these are. Another store has another secret."""
    digest = hashlib.blake2b(await store.secret(), digest_size=16, person=b"lockgate-index")
    return f"{space} {digest.hexdigest()}"


def _translated(function: Callable[..., T], *arguments: Any) -> T:
    """The index's errors as the contract's."""
    try:
        return function(*arguments)
    except (ValueError, RuntimeError, MemoryError) as error:
        raise StoreError(f"the vector index failed: {error}") from error
