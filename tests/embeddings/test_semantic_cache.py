from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embeddings import async_index
from embeddings.engine_thread import EngineThread
from embeddings.faiss_index import FaissIndex
from embeddings.memory_store import MemoryStore
from embeddings.protocols import (
    AnswerStore,
    EmbedderError,
    Entry,
    FloatMatrix,
    IdArray,
    SemanticCache,
    StoreError,
)
from embeddings.semantic_cache import LocalSemanticCache
from embeddings.sqlite_store import SqliteStore
from tests.entries import DIMENSION, PARTITION, SPACE, FakeEmbedder, exact_key, make_entry, unit_vector

NOW = 1001.0


class FakeHeldStore(MemoryStore):
    """Does its work at once and can hold back the result, as a store across a network may."""

    def __init__(self, max_entries: int = 1000) -> None:
        super().__init__(max_entries)
        self.held: dict[str, asyncio.Event] = {}
        self.reached: dict[str, asyncio.Event] = {}

    def hold(self, *operations: str) -> None:
        for operation in operations:
            self.held[operation], self.reached[operation] = asyncio.Event(), asyncio.Event()

    async def _result(self, operation: str) -> None:
        held = self.held.pop(operation, None)
        if held is not None:
            self.reached[operation].set()
            await held.wait()

    async def put(self, entry: Entry) -> tuple[int, IdArray]:
        result = await super().put(entry)
        await self._result("put")
        return result

    async def find(self, exact_key: bytes, now: float) -> Entry | None:
        result = await super().find(exact_key, now)
        await self._result("find")
        return result


class FakeFailingIndex(FaissIndex):
    def add(self, ids: IdArray, vectors: FloatMatrix, partitions: Any) -> None:
        raise MemoryError("no room")

    def search(self, vectors: FloatMatrix, k: int, partition: bytes) -> tuple[FloatMatrix, IdArray]:
        raise RuntimeError("broken")


class FakeThreadNamingIndex(FaissIndex):
    """Notes which thread searched."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self.threads: list[str] = []

    def search(self, vectors: FloatMatrix, k: int, partition: bytes) -> tuple[FloatMatrix, IdArray]:
        self.threads.append(threading.current_thread().name)
        return super().search(vectors, k, partition)


def build(store: AnswerStore, index: FaissIndex | None = None, **options: Any) -> LocalSemanticCache:
    index = FaissIndex(DIMENSION) if index is None else index
    return LocalSemanticCache(store, index, EngineThread(FakeEmbedder()), **options)


OPENERS: dict[str, Callable[[Path, int], AnswerStore]] = {
    "memory": lambda folder, max_entries: MemoryStore(max_entries),
    "sqlite": lambda folder, max_entries: SqliteStore.open(folder / "cache.db", max_entries),
}


@pytest.fixture(params=list(OPENERS))
async def cache(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalSemanticCache]:
    cache = build(OPENERS[request.param](tmp_path, 1000))
    await cache.start(NOW)
    yield cache
    await cache.aclose()


def index_of(cache: LocalSemanticCache) -> FaissIndex:
    assert cache._index is not None
    index = cache._index._index
    assert isinstance(index, FaissIndex)
    return index


async def ids_in_store(cache: LocalSemanticCache, now: float = NOW) -> set[int]:
    return {int(i) async for ids, _, _ in cache._store.vectors(SPACE, now) for i in ids}


async def nearest(cache: LocalSemanticCache, text: str, k: int = 1, now: float = NOW) -> list[str]:
    return [candidate.text for candidate in await cache.search(unit_vector(text), PARTITION, k, now)]


async def test_is_a_semantic_cache(cache: LocalSemanticCache) -> None:
    contract: SemanticCache = cache
    assert contract.space == SPACE


async def test_finds_by_key_and_by_similarity(cache: LocalSemanticCache) -> None:
    ids = {name: await cache.put(make_entry(name, created_at=1000.0 + n)) for n, name in enumerate("abcdef")}
    assert (await cache.size()).entries == 6
    found = await cache.find(exact_key("c"), 1010.0)
    assert found is not None
    assert found.id == ids["c"]
    assert (await cache.get(ids["c"], 1010.0)) is found
    assert await cache.find(exact_key("z"), 1010.0) is None

    encoded = await cache.embed("c")
    candidates = await cache.search(encoded.vector, PARTITION, 4, 1010.0)
    assert len(candidates) == 4
    best = candidates[0]
    assert (best.entry_id, best.text, best.created_at) == (ids["c"], "c", 1002.0)
    assert best.similarity == pytest.approx(1, abs=1e-5)
    similarities = [candidate.similarity for candidate in candidates]
    assert similarities == sorted(similarities, reverse=True)
    assert await cache.search(encoded.vector, b"q" * 16, 4, 1010.0) == []


async def test_replacing_moves_the_vector(cache: LocalSemanticCache) -> None:
    old = await cache.put(make_entry("q"))
    new = await cache.put(make_entry("q", content="new", partition=b"q" * 16))
    assert await nearest(cache, "q") == []
    (candidate,) = await cache.search(unit_vector("q"), b"q" * 16, 3, NOW)
    assert candidate.entry_id == new
    assert await cache.get(old, NOW) is None
    assert len(index_of(cache)) == 1


async def test_entry_without_a_vector_is_found_by_key_only(cache: LocalSemanticCache) -> None:
    await cache.put(dataclasses.replace(make_entry("w " * 20), vector=None))
    await cache.put(make_entry("exact", semantic=False))
    assert await cache.find(exact_key("w " * 20), NOW) is not None
    assert await cache.find(exact_key("exact"), NOW) is not None
    assert len(index_of(cache)) == 0


async def test_removed_entries_are_gone_everywhere(cache: LocalSemanticCache) -> None:
    ids = [await cache.put(make_entry(name)) for name in "abc"]
    for name in "abc":
        assert await cache.find(exact_key(name), NOW) is not None
    assert await cache.remove([ids[0], ids[2], 999]) == 2
    assert await cache.remove([ids[0]]) == 0
    assert await cache.find(exact_key("a"), NOW) is None
    assert await cache.get(ids[2], NOW) is None
    assert await nearest(cache, "a", 5) == ["b"]
    assert len(index_of(cache)) == (await cache.size()).entries == 1


async def test_expired_entries_are_not_served_and_leave_the_index(cache: LocalSemanticCache) -> None:
    short = [await cache.put(make_entry(f"short {n}", ttl_s=60.0)) for n in range(7)]
    await cache.put(make_entry("long", ttl_s=600.0))
    assert await cache.find(exact_key("short 0"), 1059.9) is not None
    assert len(await nearest(cache, "short 0", 3, now=1059.9)) == 3
    assert await cache.find(exact_key("short 0"), 1060.0) is None
    assert await cache.get(short[0], 1060.0) is None
    assert await nearest(cache, "short 0", 3, now=1060.0) == ["long"]
    assert len(index_of(cache)) == 1
    assert (await cache.size()).entries == 8
    assert await cache.sweep(1060.0) == 7
    assert await cache.sweep(1060.0) == 0
    assert (await cache.size()).entries == 1


async def test_sweep_takes_expired_vectors_from_the_index(cache: LocalSemanticCache) -> None:
    for n in range(10):
        await cache.put(make_entry(f"q{n}", ttl_s=10.0 if n % 2 else 100.0))
    assert await cache.sweep(1010.0) == 5
    assert len(index_of(cache)) == 5


async def test_eviction_spares_what_is_used_and_takes_vectors_along(tmp_path: Path) -> None:
    for open_store in OPENERS.values():
        cache = build(open_store(tmp_path, 3))
        for n, name in enumerate("abc"):
            await cache.put(make_entry(name, created_at=1000.0 + n))
        assert await cache.find(exact_key("a"), 1010.0) is not None
        assert await cache.find(exact_key("a"), 1011.0) is not None
        await cache.put(make_entry("d", created_at=1012.0))
        assert await cache.find(exact_key("b"), 1013.0) is None
        assert sorted(await nearest(cache, "a", 5, now=1013.0)) == ["a", "c", "d"]
        assert len(index_of(cache)) == 3
        await cache.aclose()


async def test_starts_from_what_the_store_holds(tmp_path: Path) -> None:
    cache = build(SqliteStore.open(tmp_path / "cache.db", 100_000))
    await asyncio.gather(*(cache.put(make_entry(f"q{n}")) for n in range(4200)))
    await cache.put(make_entry("exact", semantic=False))
    await cache.put(make_entry("expired", ttl_s=0.5))
    await cache.aclose()
    store = SqliteStore.open(tmp_path / "cache.db", 100_000)
    await store.put(make_entry("of another embedder", space="another"))

    cache = build(store)
    progress: list[tuple[int, int]] = []
    await cache.start(NOW, lambda done, total: progress.append((done, total)))
    assert progress == [(4096, 4200), (4200, 4200)]
    assert len(index_of(cache)) == 4200
    assert await nearest(cache, "q4199") == ["q4199"]
    assert await cache.find(exact_key("of another embedder"), NOW) is not None
    await cache.aclose()


async def test_an_index_of_another_dimension_is_a_store_error(tmp_path: Path) -> None:
    store = MemoryStore(10)
    await store.put(make_entry("q"))
    cache = build(store, FaissIndex(DIMENSION + 1))
    with pytest.raises(StoreError, match="vector index failed"):
        await cache.start(NOW)
    await cache.aclose()


async def test_a_cancelled_put_reaches_the_index() -> None:
    store = FakeHeldStore()
    cache = build(store)
    store.hold("put")
    released = store.held["put"]
    putting = asyncio.get_running_loop().create_task(cache.put(make_entry("q")))
    await store.reached["put"].wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    released.set()
    await asyncio.gather(*cache._tasks)
    assert await nearest(cache, "q") == ["q"]
    await cache.aclose()


async def test_a_put_that_fails_after_its_caller_left_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    store = FakeHeldStore()
    cache = build(store, FakeFailingIndex(DIMENSION))
    store.hold("put")
    released = store.held["put"]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await cache.put(make_entry("q"))
    released.set()
    with caplog.at_level(logging.WARNING):
        await cache.aclose()
    assert "whose caller had left failed: the vector index failed: no room" in caplog.text


async def test_closing_waits_for_writes_in_hand(tmp_path: Path) -> None:
    store = FakeHeldStore()
    cache = build(store)
    store.hold("put")
    released = store.held["put"]
    loop = asyncio.get_running_loop()
    putting = loop.create_task(cache.put(make_entry("q")))
    await store.reached["put"].wait()
    closing = loop.create_task(cache.aclose())
    await asyncio.sleep(0)
    released.set()
    await closing
    assert await putting == 1
    assert len(index_of(cache)) == 1


async def test_an_id_that_left_while_it_was_put_does_not_stay_in_the_index() -> None:
    store = FakeHeldStore()
    cache = build(store)
    store.hold("put")
    released = store.held["put"]
    slow = asyncio.get_running_loop().create_task(cache.put(make_entry("q")))
    await store.reached["put"].wait()
    new = await cache.put(make_entry("q", content="new"))
    released.set()
    old = await slow
    assert old < new
    assert len(index_of(cache)) == 1
    (candidate,) = await cache.search(unit_vector("q"), PARTITION, 5, NOW)
    assert candidate.entry_id == new
    await cache.aclose()


async def test_a_slow_read_does_not_bring_back_what_was_removed() -> None:
    store = FakeHeldStore()
    cache = build(store)
    new_id = await cache.put(make_entry("q"))
    store.hold("find")
    released = store.held["find"]
    finding = asyncio.get_running_loop().create_task(cache.find(exact_key("q"), NOW))
    await store.reached["find"].wait()
    await cache.remove([new_id])
    released.set()
    assert await finding is not None  # it was there when it was read
    assert await cache.find(exact_key("q"), NOW) is None
    await cache.aclose()


async def test_a_hot_answer_is_served_without_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(10)
    cache = build(store)
    new_id = await cache.put(make_entry("q", ttl_s=60.0))
    first = await cache.find(exact_key("q"), NOW)
    with monkeypatch.context() as patch:
        patch.delattr(MemoryStore, "find")
        patch.delattr(MemoryStore, "get")
        assert await cache.find(exact_key("q"), NOW) is first
        assert await cache.get(new_id, NOW) is first
    assert await cache.find(exact_key("q"), 1060.0) is None
    await cache.put(make_entry("q", content="new"))
    second = await cache.find(exact_key("q"), NOW)
    assert second is not None
    assert second.id > new_id
    await cache.aclose()


async def test_large_partitions_are_searched_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_index, "INLINE_VECTORS", 2)
    index = FakeThreadNamingIndex(DIMENSION)
    cache = build(MemoryStore(10), index)
    for name in "abc":
        await cache.put(make_entry(name))
        assert await nearest(cache, name) == [name]
    own = threading.current_thread().name
    assert index.threads[:2] == [own, own]
    assert index.threads[2].startswith("lockgate-search")
    await cache.aclose()


async def test_a_broken_index_is_a_store_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = build(MemoryStore(10), FakeFailingIndex(DIMENSION))
    with pytest.raises(StoreError, match="no room"):
        await cache.put(make_entry("q"))
    for limit in (10, -1):
        monkeypatch.setattr(async_index, "INLINE_VECTORS", limit)
        with pytest.raises(StoreError, match="broken"):
            await cache.search(unit_vector("q"), PARTITION, 1, NOW)
    await cache.aclose()


async def test_a_bad_query_is_a_store_error(cache: LocalSemanticCache) -> None:
    with pytest.raises(StoreError, match="unit norm"):
        await cache.search(unit_vector("q") * 2, PARTITION, 1, NOW)


async def test_refuses_vectors_that_are_not_its_own(cache: LocalSemanticCache) -> None:
    with pytest.raises(StoreError, match="space"):
        await cache.put(make_entry("q", space="another"))
    with pytest.raises(StoreError, match="shape"):
        await cache.put(dataclasses.replace(make_entry("q"), vector=unit_vector("q", 17)))
    with pytest.raises(StoreError, match="unit norm"):
        await cache.put(dataclasses.replace(make_entry("q"), vector=unit_vector("q") * np.float32("nan")))
    assert (await cache.size()).entries == 0


async def test_without_an_embedder_it_finds_by_key() -> None:
    cache = LocalSemanticCache(MemoryStore(10))
    await cache.start(NOW)
    assert cache.space is None
    new_id = await cache.put(make_entry("q", semantic=False))
    assert await cache.find(exact_key("q"), NOW) is not None
    assert await cache.search(unit_vector("q"), PARTITION, 1, NOW) == []
    with pytest.raises(EmbedderError, match="exact key only"):
        await cache.embed("q")
    with pytest.raises(StoreError, match="space"):
        await cache.put(make_entry("q"))
    assert await cache.remove([new_id]) == 1
    await cache.aclose()
    with pytest.raises(ValueError, match="index needs an engine"):
        LocalSemanticCache(MemoryStore(10), FaissIndex(DIMENSION))


async def test_closed_cache_says_so(cache: LocalSemanticCache) -> None:
    new_id = await cache.put(make_entry("q"))
    assert await cache.find(exact_key("q"), NOW) is not None
    await cache.aclose()
    await cache.aclose()
    calls: list[Callable[[], Any]] = [
        lambda: cache.find(exact_key("q"), NOW),
        lambda: cache.get(new_id, NOW),
        lambda: cache.put(make_entry("q2")),
        lambda: cache.remove([new_id]),
        lambda: cache.sweep(NOW),
        lambda: cache.size(),
        lambda: cache.search(unit_vector("q"), PARTITION, 1, NOW),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="closed"):
            await call()
    with pytest.raises(EmbedderError, match="closed"):
        await cache.embed("q")


async def test_store_and_index_agree_after_any_mix(cache: LocalSemanticCache) -> None:
    """Writers, removers, sweepers and searchers at once, some cancelled at random moments."""
    rng = random.Random(11)
    names = [f"q{n}" for n in range(12)]
    seen: list[int] = []

    async def one(step: int) -> None:
        name = rng.choice(names)
        match rng.randrange(6):
            case 0 | 1:
                ttl_s = rng.choice([6.0, 5000.0])
                seen.append(await cache.put(make_entry(name, created_at=1000.0 + step / 8, ttl_s=ttl_s)))
            case 2 if seen:
                await cache.remove(rng.sample(seen, min(3, len(seen))))
            case 3:
                await cache.sweep(1000.0 + step / 8)
            case 4:
                await cache.find(exact_key(name), 1000.0 + step / 8)
            case _:
                for candidate in await cache.search(unit_vector(name), PARTITION, 5, 1000.0 + step / 8):
                    assert candidate.similarity == pytest.approx(
                        float(unit_vector(name) @ unit_vector(candidate.text)), abs=1e-2
                    )

    async def worker(start: int) -> None:
        for step in range(start, 400, 8):
            try:
                async with asyncio.timeout(rng.choice([0, 0.0001, 0.001, 60])):
                    await one(step)
            except TimeoutError:
                continue

    async with asyncio.TaskGroup() as group:
        for start in range(8):
            group.create_task(worker(start))
    while cache._tasks:
        await asyncio.wait(cache._tasks)
    await cache.sweep(1400.0)
    stored = await ids_in_store(cache, 1400.0)
    found: set[int] = set()
    for name in names:
        found |= {c.entry_id for c in await cache.search(unit_vector(name), PARTITION, 50, 1400.0)}
    assert found == stored
    assert len(index_of(cache)) == len(stored) == (await cache.size()).entries
    for name in names:
        hot, cold = (
            await cache.find(exact_key(name), 1400.0),
            await cache._store.find(exact_key(name), 1400.0),
        )
        assert (hot and hot.id) == (cold and cold.id)
