from __future__ import annotations

import pytest

from embeddings.memory_store import MemoryStore
from embeddings.protocols import StoreError
from tests.entries import SPACE, exact_key, make_entry


async def test_bookkeeping_stays_in_proportion() -> None:
    store = MemoryStore(10)
    for n in range(3000):
        await store.put(make_entry(f"q{n % 25}", created_at=1000.0 + n, ttl_s=1e6))
    assert (await store.size()).entries == 10
    assert len(store._id_by_key) == 10
    for _ in range(1000):
        store.touch(1 + 2999, 5000.0)
    assert len(store._expiries) <= 2 * 10 + 64 + 1
    assert len(store._priorities) <= 2 * 10 + 64 + 1


async def test_entries_that_leave_while_vectors_are_listed_are_left_out() -> None:
    store = MemoryStore(10_000)
    for n in range(5000):
        await store.put(make_entry(f"q{n}"))
    listing = store.vectors(SPACE, 1001.0)
    first, _, _ = await anext(listing)
    assert len(first) == 4096
    await store.remove(range(4097, 5000))
    rest, vectors, partitions = await anext(listing)
    assert rest.tolist() == [5000]
    assert len(vectors) == len(partitions) == 1


async def test_closing_frees_the_entries() -> None:
    store = MemoryStore(10)
    await store.put(make_entry("q"))
    await store.aclose()
    assert not store._kept
    with pytest.raises(StoreError, match="closed"):
        await store.find(exact_key("q"), 1001.0)
