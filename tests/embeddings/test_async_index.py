"""The index against its store: snapshots, and what it says otherwise than the store does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embeddings import async_index
from embeddings.engine_thread import EngineThread
from embeddings.faiss_index import FaissIndex
from embeddings.protocols import FloatMatrix, StoreError
from embeddings.semantic_cache import LocalSemanticCache
from embeddings.sqlite_store import SqliteStore
from tests.entries import DIMENSION, PARTITION, FakeEmbedder, make_entry, unit_vector

NOW = 1001.0


@pytest.fixture(autouse=True)
def save_small_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_index, "MIN_SAVED", 1)


def opened(folder: Path, name: str = "cache.db", index: FaissIndex | None = None) -> LocalSemanticCache:
    index = FaissIndex(DIMENSION) if index is None else index
    store = SqliteStore.open(folder / name, 1000)
    return LocalSemanticCache(store, index, EngineThread(FakeEmbedder()), snapshot=folder / "cache.index")


async def texts(cache: LocalSemanticCache, now: float = NOW) -> set[str]:
    return {candidate.text for candidate in await cache.search(unit_vector("a"), PARTITION, 100, now)}


async def started(cache: LocalSemanticCache) -> list[tuple[int, int]]:
    progress: list[tuple[int, int]] = []
    await cache.start(NOW, lambda done, total: progress.append((done, total)))
    return progress


async def test_a_start_reads_only_what_the_snapshot_lacks(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    assert await started(cache) == []
    ids = {name: await cache.put(make_entry(name)) for name in "abcdef"}
    await cache.aclose()
    assert (tmp_path / "cache.index").stat().st_mode & 0o077 == 0

    store = SqliteStore.open(tmp_path / "cache.db", 1000)  # changed without the index
    await store.remove([ids["a"]])
    await store.withdraw(ids["b"])
    await store.put(make_entry("c", content="another answer"))
    await store.put(make_entry("g"))
    await store.aclose()

    cache = opened(tmp_path)
    assert await started(cache) == [(2, 2)]
    assert await texts(cache) == set("cdefg")
    await cache.aclose()

    cache = opened(tmp_path)
    assert await started(cache) == []
    assert await texts(cache) == set("cdefg")
    await cache.aclose()


async def test_the_snapshot_of_another_cache_is_not_taken(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    await started(cache)
    await cache.put(make_entry("a"))
    await cache.aclose()
    cache = opened(tmp_path, "another.db")
    await started(cache)
    await cache._store.put(make_entry("b"))
    assert await texts(cache) == set()
    await cache.aclose()


async def test_a_damaged_snapshot_is_read_from_the_store_instead(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    await started(cache)
    for name in "abc":
        await cache.put(make_entry(name))
    await cache.aclose()
    snapshot = tmp_path / "cache.index"
    snapshot.write_bytes(snapshot.read_bytes()[:-7])
    cache = opened(tmp_path)
    assert await started(cache) == [(3, 3)]
    assert await texts(cache) == set("abc")
    await cache.aclose()


async def test_little_news_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_index, "MIN_SAVED", 3)
    cache = opened(tmp_path)
    await started(cache)
    await cache.put(make_entry("a"))
    await cache.put(make_entry("b"))
    assert not await cache.save_index()
    await cache.put(make_entry("c"))
    assert await cache.save_index()
    assert not await cache.save_index()
    await cache.aclose()


async def test_a_folder_that_cannot_be_written_costs_the_snapshot_only(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    (tmp_path / "cache.index").mkdir()
    ((tmp_path / "cache.index") / "in the way").touch()
    await started(cache)
    await cache.put(make_entry("a"))
    with pytest.raises(StoreError, match="cannot save the index"):
        await cache.save_index()
    assert await texts(cache) == {"a"}
    await cache.aclose()


async def test_the_store_has_the_last_word_on_partition_and_vector(tmp_path: Path) -> None:
    """As after an older file was put back: its ids mean other entries than the index has them for."""
    index = FaissIndex(DIMENSION)
    cache = opened(tmp_path, index=index)
    await started(cache)
    mine = await cache.put(make_entry("a"))
    moved = await cache.put(make_entry("b", partition=b"q" * 16))
    near_a: FloatMatrix = np.stack([unit_vector("z"), unit_vector("a")])
    index.add(np.array([mine, moved], dtype=np.int64), near_a, [PARTITION, PARTITION])
    found = await cache.search(unit_vector("a"), PARTITION, 5, NOW)
    assert [(one.entry_id, round(one.similarity, 3)) for one in found] == [(mine, 1.0)]
    elsewhere = await cache.search(unit_vector("b"), b"q" * 16, 5, NOW)
    assert [one.entry_id for one in elsewhere] == [moved]
    await cache.aclose()


async def test_a_search_ends_though_its_index_keeps_contradicting_the_store(tmp_path: Path) -> None:
    class FakeLyingIndex(FaissIndex):
        def search(self, vectors, k, partition):  # type: ignore[no-untyped-def]
            similarity, ids = super().search(vectors, k, partition)
            return np.full_like(similarity, 0.5), ids

    cache = opened(tmp_path, index=FakeLyingIndex(DIMENSION))
    await started(cache)
    await cache.put(make_entry("a"))
    assert await cache.search(unit_vector("a"), PARTITION, 1, NOW) == []
    await cache.aclose()


async def test_what_was_judged_wrong_is_not_served_so_again(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    await started(cache)
    ids = {name: await cache.put(make_entry(name)) for name in "abc"}
    assert await cache.judge(ids["a"], right=False, by_similarity=True)
    assert await cache.judge(ids["b"], right=False, by_similarity=False)
    assert await cache.judge(ids["c"], right=True, by_similarity=True)
    assert not await cache.judge(999, right=False, by_similarity=True)
    assert await texts(cache) == {"c"}
    entry = await cache.find(make_entry("a").exact_key, NOW)
    assert entry is not None
    assert await cache.find(make_entry("b").exact_key, NOW) is None
    kept = await cache.inspect(ids["a"], NOW)
    assert kept is not None
    assert (kept[1].judged_wrong, kept[1].judged_right) == (1, 0)
    await cache.aclose()
