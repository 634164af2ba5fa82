"""What every answer store must do."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from embeddings.capacity import MAX_BYTES
from embeddings.entry_record import to_record
from embeddings.memory_store import MemoryStore
from embeddings.protocols import EVERY_ENTRY, AnswerStore, Entry, EntryFilter, EntryUse, StoreError, StoreSize
from embeddings.sqlite_store import SqliteStore
from policies.eviction import EntryWorth, GreedyDual
from tests.entries import DIMENSION, SPACE, exact_key, make_entry, unit_vector


class OpenStore(Protocol):
    def __call__(self, folder: Path, max_entries: int, max_bytes: int = MAX_BYTES) -> AnswerStore: ...


def open_memory(folder: Path, max_entries: int, max_bytes: int = MAX_BYTES) -> AnswerStore:
    return MemoryStore(max_entries, max_bytes)


def open_sqlite(folder: Path, max_entries: int, max_bytes: int = MAX_BYTES) -> AnswerStore:
    return SqliteStore.open(folder / "cache.db", max_entries, max_bytes)


OPENERS: dict[str, OpenStore] = {"memory": open_memory, "sqlite": open_sqlite}
VECTOR_BYTES = 2 * DIMENSION
NOW = 1001.0


@pytest.fixture(params=list(OPENERS))
def open_store(request: pytest.FixtureRequest) -> OpenStore:
    return OPENERS[request.param]


@pytest.fixture
async def store(open_store: OpenStore, tmp_path: Path) -> AsyncIterator[AnswerStore]:
    store = open_store(tmp_path, 1000)
    yield store
    await store.aclose()


async def test_secret_is_made_once(store: AnswerStore) -> None:
    secret = await store.secret()
    assert len(secret) == 32
    assert len(set(secret)) > 8
    assert await store.secret() == secret


async def test_gives_back_what_was_put(store: AnswerStore) -> None:
    entry = make_entry("질문 ☃ \x00", content="답 " * 100_000)
    entry.answer.body["x_unknown"] = {"kept": [1, None, 2.5, True]}  # type: ignore[index]
    new_id, gone = await store.put(entry)
    assert new_id > 0
    assert gone.dtype == np.int64
    assert gone.tolist() == []
    for found in (await store.find(entry.exact_key, NOW), await store.get(new_id, NOW)):
        assert found is not None
        assert found.vector is not None
        assert entry.vector is not None
        assert found.vector.dtype == np.float32
        assert abs(np.linalg.norm(found.vector) - 1) < 1e-6
        assert float(found.vector @ entry.vector) > 0.99999
        assert dataclasses.replace(found, vector=None) == dataclasses.replace(entry, id=new_id, vector=None)


async def test_exact_only_entry_has_no_vector(store: AnswerStore) -> None:
    new_id, _ = await store.put(make_entry(semantic=False))
    found = await store.get(new_id, NOW)
    assert found is not None
    assert (found.text, found.space, found.vector) == (None, None, None)


async def test_what_is_not_there(store: AnswerStore) -> None:
    assert await store.find(exact_key("unknown"), NOW) is None
    assert await store.get(1, NOW) is None
    assert await store.get(-1, NOW) is None
    assert (await store.remove([1, 2])).tolist() == []
    assert (await store.expire(NOW)).tolist() == []
    assert (await store.size()).entries == 0


async def test_stored_body_is_a_copy(store: AnswerStore) -> None:
    entry = make_entry()
    expected = copy.deepcopy(entry.answer.body)
    new_id, _ = await store.put(entry)
    entry.answer.body["choices"].clear()
    found = await store.get(new_id, NOW)
    assert found is not None
    assert found.answer.body == expected


async def test_put_replaces_under_the_same_key(store: AnswerStore) -> None:
    old_id, _ = await store.put(make_entry("q", content="old"))
    new_id, gone = await store.put(make_entry("q", content="new"))
    assert new_id > old_id
    assert gone.tolist() == [old_id]
    assert await store.get(old_id, NOW) is None
    found = await store.find(exact_key("q"), NOW)
    assert found is not None
    assert found.id == new_id
    assert found.answer.body["choices"][0]["message"]["content"] == "new"
    assert (await store.size()).entries == 1


async def test_expires_at_its_very_second(store: AnswerStore) -> None:
    entry = make_entry(created_at=1000.0, ttl_s=60.0)
    new_id, _ = await store.put(entry)
    for now, there in ((1059.999, True), (1060.0, False), (1060.001, False), (9e9, False)):
        assert (await store.find(entry.exact_key, now) is not None) is there
        assert (await store.get(new_id, now) is not None) is there
        assert [i async for ids, _, _ in store.vectors(SPACE, now) for i in ids] == [new_id] * there
    assert (await store.expire(1059.999)).tolist() == []
    assert (await store.expire(1060.0)).tolist() == [new_id]
    assert (await store.size()).entries == 0


async def test_expired_entry_can_be_replaced(store: AnswerStore) -> None:
    old_id, _ = await store.put(make_entry("q", created_at=1000.0, ttl_s=60.0))
    new_id, gone = await store.put(make_entry("q", created_at=2000.0))
    assert gone.tolist() == [old_id]
    found = await store.find(exact_key("q"), 2001.0)
    assert found is not None
    assert found.id == new_id


async def test_remove(store: AnswerStore) -> None:
    ids = [(await store.put(make_entry(f"q{n}")))[0] for n in range(4)]
    assert (await store.remove([ids[1], 10_000, ids[3], ids[1]])).tolist() == [ids[1], ids[3]]
    assert [await store.get(i, NOW) is not None for i in ids] == [True, False, True, False]
    assert (await store.size()).entries == 2


async def test_ids_are_never_used_again(store: AnswerStore) -> None:
    seen = set()
    for round_ in range(5):
        new_id, _ = await store.put(make_entry("q", created_at=1000.0 + round_, ttl_s=10.0))
        assert new_id not in seen
        seen.add(new_id)
        if round_ % 2:
            await store.remove([new_id])
        else:
            await store.expire(5000.0)
    assert (await store.size()).entries == 0


async def test_full_store_evicts_what_was_used_longest_ago(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(tmp_path, 3)
    a, b, c = [(await store.put(make_entry(name, created_at=1000.0 + n)))[0] for n, name in enumerate("abc")]
    store.touch(a, 1010.0)
    d, gone = await store.put(make_entry("d", created_at=1011.0))
    assert gone.tolist() == [b]
    e, gone = await store.put(make_entry("e", created_at=1012.0))
    assert gone.tolist() == [c]
    assert (await store.size()).entries == 3
    assert [await store.get(i, 1013.0) is not None for i in (a, b, c, d, e)] == [
        True,
        False,
        False,
        True,
        True,
    ]
    await store.aclose()


async def test_full_store_evicts_what_has_expired_first(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(tmp_path, 3)
    a, _ = await store.put(make_entry("a", created_at=1000.0))
    b, _ = await store.put(make_entry("b", created_at=1001.0, ttl_s=5.0))
    c, _ = await store.put(make_entry("c", created_at=1002.0, ttl_s=5.0))
    _, gone = await store.put(make_entry("d", created_at=1010.0))
    assert sorted(gone.tolist()) == [b, c]
    assert await store.get(a, 1010.0) is not None
    await store.aclose()


async def test_new_entry_is_not_its_own_victim(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(tmp_path, 1)
    first, _ = await store.put(make_entry("first", created_at=2000.0))
    second, gone = await store.put(make_entry("second", created_at=1000.0))
    assert gone.tolist() == [first]
    assert await store.get(second, NOW) is not None
    await store.aclose()


async def test_replacing_in_a_full_store_evicts_no_other(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(tmp_path, 2)
    await store.put(make_entry("a"))
    b, _ = await store.put(make_entry("b"))
    _, gone = await store.put(make_entry("b", created_at=1001.0))
    assert gone.tolist() == [b]
    assert (await store.size()).entries == 2
    await store.aclose()


async def test_touching_what_is_not_there_does_nothing(store: AnswerStore) -> None:
    store.touch(77, NOW)
    await store.put(make_entry())
    assert (await store.size()).entries == 1


def test_a_store_needs_room(open_store: OpenStore, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_entries"):
        open_store(tmp_path, 0)
    with pytest.raises(ValueError, match="max_bytes"):
        open_store(tmp_path, 1, 0)


async def test_vectors_come_in_batches(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(tmp_path, 100_000)
    partitions = [bytes([n]) * 16 for n in range(7)]
    puts = [store.put(make_entry(f"q{n}", partition=partitions[n % 7])) for n in range(5000)]
    puts += [store.put(make_entry(f"other {n}", space="another")) for n in range(5)]
    puts += [store.put(make_entry(f"exact {n}", semantic=False)) for n in range(5)]
    puts += [store.put(make_entry(f"expired {n}", ttl_s=0.5)) for n in range(5)]
    ids = [new_id for new_id, _ in await asyncio.gather(*puts)]
    seen: dict[int, tuple[np.ndarray[Any, Any], bytes]] = {}
    sizes = []
    async for batch_ids, vectors, batch_partitions in store.vectors(SPACE, NOW):
        assert batch_ids.dtype == np.int64
        assert vectors.dtype == np.float32
        assert vectors.flags.c_contiguous
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
        sizes.append(len(batch_ids))
        seen.update(zip(batch_ids.tolist(), zip(vectors, batch_partitions, strict=True), strict=True))
    assert sum(sizes) == 5000 == len(seen)
    assert max(sizes) <= 4096
    assert set(seen) == set(ids[:5000])
    for n in (0, 17, 4999):
        vector, partition = seen[ids[n]]
        expected = make_entry(f"q{n}").vector
        assert expected is not None
        assert float(vector @ expected) > 0.9999
        assert partition == partitions[n % 7]
    await store.aclose()


async def test_concurrent_puts_lose_no_id(store: AnswerStore) -> None:
    puts = [store.put(make_entry(f"q{n % 20}", content=str(n))) for n in range(400)]
    results = await asyncio.gather(*puts)
    given = {new_id for new_id, _ in results}
    gone = [int(i) for _, left in results for i in left]
    assert len(given) == 400
    assert len(gone) == len(set(gone)) == 380
    alive = given - set(gone)
    assert {i for i in given if await store.get(i, NOW) is not None} == alive
    found = [await store.find(exact_key(f"q{n}"), NOW) for n in range(20)]
    assert {entry.id for entry in found if entry is not None} == alive
    assert (await store.size()).entries == 20


def unstorable() -> dict[str, Entry]:
    entry = make_entry()
    answer = entry.answer
    assert entry.vector is not None
    replace = dataclasses.replace
    return {
        "body": replace(entry, answer=structs.replace(answer, body={"x": {1, 2}})),
        "integer": replace(entry, answer=structs.replace(answer, body={"x": 2**70})),
        "surrogate": replace(entry, text="\ud800"),
        "tenant": replace(entry, tenant="\ud800"),
        "model": replace(entry, model="\ud800"),
        "tag": replace(entry, tags=("fine", "\ud800")),
        "tokens": replace(entry, answer=structs.replace(answer, prompt_tokens=-1)),
        "many tokens": replace(entry, answer=structs.replace(answer, completion_tokens=2**63)),
        "cost": replace(entry, answer=structs.replace(answer, cost_usd=float("nan"))),
        "expiry": replace(entry, expires_at=float("inf")),
        "norm": replace(entry, vector=entry.vector * 2),
        "nan": replace(entry, vector=entry.vector * np.float32("nan")),
        "dtype": replace(entry, vector=entry.vector.astype(np.float64)),
        "shape": replace(entry, vector=entry.vector.reshape(1, -1)),
        "no text": replace(entry, text=None),
        "no space": replace(entry, space=None),
    }


@pytest.mark.parametrize("what", list(unstorable()))
async def test_refuses_what_it_could_not_give_back(store: AnswerStore, what: str) -> None:
    good, bad, other = make_entry("good"), unstorable()[what], make_entry("other")
    results = await asyncio.gather(*map(store.put, (good, bad, other)), return_exceptions=True)
    assert isinstance(results[1], StoreError)
    assert "cannot be stored" in str(results[1])
    assert not isinstance(results[0], BaseException)
    assert not isinstance(results[2], BaseException)
    assert (await store.size()).entries == 2


async def test_closed_store_says_so(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(tmp_path, 10)
    new_id, _ = await store.put(make_entry())
    await store.aclose()
    await store.aclose()
    store.touch(new_id, NOW)
    calls: list[Callable[[], Any]] = [
        lambda: store.find(exact_key("q"), NOW),
        lambda: store.get(new_id, NOW),
        lambda: store.put(make_entry()),
        lambda: store.remove([new_id]),
        lambda: store.expire(NOW),
        lambda: store.inspect(new_id, NOW),
        lambda: store.listed(EVERY_ENTRY, NOW),
        lambda: store.matching(EVERY_ENTRY, NOW),
        lambda: store.judged(new_id, right=True),
        lambda: store.withdraw(new_id),
        lambda: store.vector_ids(SPACE, NOW),
        lambda: store.size(),
        lambda: anext(store.vectors(SPACE, NOW)),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="closed"):
            await call()


async def fill_for_filters(store: AnswerStore) -> dict[str, int]:
    entries = {
        "a": make_entry("Where is STRASSE 7?", tenant="t1", model="m1", tags=("x", "y")),
        "b": make_entry("where is straße 8?", tenant="t1", model="m2", tags=("x",), api="messages"),
        "c": make_entry("100% of it", tenant="t2", model="m1"),
        "d": make_entry("exact only", tenant="t2", model="m1", tags=("y",), semantic=False),
        "e": make_entry("expired", tenant="t1", model="m1", tags=("x",), ttl_s=0.5),
        "f": make_entry("from the future", tenant="t1", tags=("x",), created_at=NOW + 61.0),
    }
    return {name: (await store.put(entry))[0] for name, entry in entries.items()}


FILTERS = {
    "abcd": EVERY_ENTRY,
    "ab": EntryFilter(tenant="t1"),
    "acd": EntryFilter(model="m1"),
    "abcd ": EntryFilter(model="upstream-model"),
    "b": EntryFilter(api="messages"),
    "ab ": EntryFilter(tag="x"),
    "ad": EntryFilter(tag="y"),
    "a": EntryFilter(tag="y", tenant="t1", model="m1", api="chat", text="where"),
    "": EntryFilter(tag="y", tenant="t1", model="m2"),
    " ": EntryFilter(tag="X"),
    "  ": EntryFilter(tag="tag=x"),
    "   ": EntryFilter(tenant="t"),
    "ab  ": EntryFilter(text="Straße"),
    "c": EntryFilter(text="0% OF"),
    "    ": EntryFilter(text="1_0"),
    "abc": EntryFilter(text=""),
}


@pytest.mark.parametrize("names", list(FILTERS))
async def test_filters(store: AnswerStore, names: str) -> None:
    ids = await fill_for_filters(store)
    expected = [ids[name] for name in names.strip()]
    found = await store.matching(FILTERS[names], NOW)
    assert found.dtype == np.int64
    assert found.tolist() == expected
    listed = await store.listed(FILTERS[names], NOW)
    assert [entry.id for entry, _ in listed] == expected[::-1]


async def test_listing_in_pages(store: AnswerStore) -> None:
    ids = [(await store.put(make_entry(f"q{n}", tags=("even",) if n % 2 == 0 else ())))[0] for n in range(9)]
    await store.remove([ids[4]])
    pages, before = [], None
    while page := await store.listed(EntryFilter(tag="even"), NOW, before=before, limit=2):
        pages.append([entry.id for entry, _ in page])
        before = pages[-1][-1]
    assert pages == [[ids[8], ids[6]], [ids[2], ids[0]]]
    assert await store.listed(EVERY_ENTRY, NOW, limit=0) == []
    assert len(await store.listed(EVERY_ENTRY, NOW, before=2**70)) == 8


async def test_labels_leave_with_their_entry(store: AnswerStore) -> None:
    for tags in (("old", "kept"), ("new", "kept", "new")):
        await store.put(make_entry("q", tags=tags))
    assert len(await store.matching(EntryFilter(tag="old"), NOW)) == 0
    [(entry, _)] = await store.listed(EntryFilter(tag="new"), NOW)
    assert entry.tags == ("new", "kept", "new")


async def test_what_has_become_of_an_entry(store: AnswerStore) -> None:
    entry = make_entry(semantic=False)
    new_id, _ = await store.put(entry)
    size = (await store.size()).stored_bytes
    assert size > len(entry.request) + len(str(entry.answer.body))
    unused = EntryUse(hits=0, last_used_at=1000.0, judged_right=0, judged_wrong=0, stored_bytes=size)
    assert await store.inspect(new_id, NOW) == (await store.get(new_id, NOW), unused)
    store.touch(new_id, 1010.0)
    store.touch(new_id, 1005.0)
    assert await store.judged(new_id, right=True)
    assert await store.judged(new_id, right=False)
    assert await store.judged(new_id, right=True)
    found = await store.inspect(new_id, NOW)
    used = EntryUse(hits=2, last_used_at=1010.0, judged_right=2, judged_wrong=1, stored_bytes=size)
    assert found is not None
    assert found[1] == used
    store.touch(new_id, 1011.0)
    assert [use.hits for _, use in await store.listed(EVERY_ENTRY, NOW)] == [3]
    await store.put(entry)
    [(_, use)] = await store.listed(EVERY_ENTRY, NOW)
    assert use == unused


async def test_ids_nobody_has(store: AnswerStore) -> None:
    await store.put(make_entry())
    for entry_id in (0, -1, 2, 2**63 - 1, 2**63, -(2**70)):
        store.touch(entry_id, NOW)
        assert await store.get(entry_id, NOW) is None
        assert await store.inspect(entry_id, NOW) is None
        assert await store.judged(entry_id, right=True) is False
        assert await store.withdraw(entry_id) is False
        assert (await store.remove([entry_id])).tolist() == []
    assert (await store.size()).entries == 1


async def test_a_withdrawn_entry_is_found_by_its_key_only(store: AnswerStore) -> None:
    entry = make_entry("q")
    new_id, _ = await store.put(entry)
    before = (await store.size()).stored_bytes
    for _ in range(2):
        assert await store.withdraw(new_id)
        found = await store.find(entry.exact_key, NOW)
        assert found is not None
        assert (found.text, found.space, found.vector) == ("q", None, None)
        assert found.answer == entry.answer
        assert (await store.vector_ids(SPACE, NOW)).tolist() == []
        assert [batch async for batch in store.vectors(SPACE, NOW)] == []
        assert (await store.size()).stored_bytes == before - VECTOR_BYTES
    assert (await store.matching(EntryFilter(text="Q"), NOW)).tolist() == [new_id]


async def test_vectors_of_some_ids(store: AnswerStore) -> None:
    ids = [(await store.put(make_entry(f"q{n}", partition=bytes([n]) * 16)))[0] for n in range(8)]
    await store.withdraw(ids[3])
    other, _ = await store.put(make_entry("other", space="another"))
    expired, _ = await store.put(make_entry("expired", ttl_s=0.5))
    assert (await store.vector_ids(SPACE, NOW)).tolist() == [*ids[:3], *ids[4:]]
    wanted = np.array([ids[1], ids[3], ids[6], other, expired, 10_000], dtype=np.int64)
    [(found, vectors, partitions)] = [batch async for batch in store.vectors(SPACE, NOW, wanted)]
    assert found.tolist() == [ids[1], ids[6]]
    assert partitions == [bytes([1]) * 16, bytes([6]) * 16]
    for vector, name in zip(vectors, ("q1", "q6"), strict=True):
        assert float(vector @ unit_vector(name)) > 0.9999
    nothing = np.array([], dtype=np.int64)
    assert [batch async for batch in store.vectors(SPACE, NOW, nothing)] == []


async def test_an_answer_from_the_future_is_kept_and_not_served(store: AnswerStore) -> None:
    """The clock was set back: how old it is, nobody knows."""
    entry = make_entry("q", created_at=5000.0, ttl_s=60.0)
    new_id, _ = await store.put(entry)
    for now, there in ((4939.999, False), (4940.0, True), (5000.0, True), (0.0, False)):
        assert (await store.find(entry.exact_key, now) is not None) is there
        assert (await store.get(new_id, now) is not None) is there
        assert (await store.inspect(new_id, now) is not None) is there
        assert len(await store.listed(EVERY_ENTRY, now)) == there
        assert (await store.matching(EVERY_ENTRY, now)).tolist() == [new_id] * there
        assert (await store.vector_ids(SPACE, now)).tolist() == [new_id] * there
        assert [i async for ids, _, _ in store.vectors(SPACE, now) for i in ids] == [new_id] * there
        assert (await store.expire(now)).tolist() == []
    assert (await store.size()).entries == 1


async def test_room_in_bytes(open_store: OpenStore, tmp_path: Path) -> None:
    size = to_record(make_entry("a", content="x" * 1000)).stored_bytes
    store = open_store(tmp_path, 1000, 3 * size)
    a, b, c = [
        (await store.put(make_entry(name, created_at=1000.0 + n, content="x" * 1000)))[0]
        for n, name in enumerate("abc")
    ]
    assert await store.size() == StoreSize(entries=3, stored_bytes=3 * size)
    _, gone = await store.put(make_entry("d", created_at=1010.0, content="x" * (1000 + size)))
    assert gone.tolist() == [a, b]
    with pytest.raises(StoreError, match=rf"alone takes \d+ bytes, the cache may hold {3 * size}"):
        await store.put(make_entry("c", content="x" * 3 * size))
    assert await store.get(c, 1011.0) is not None
    await store.aclose()


async def test_an_answer_worth_more_stays(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(tmp_path, 3)
    dear, _ = await store.put(make_entry("d", cost_usd=0.5))
    cheap, _ = await store.put(make_entry("c", cost_usd=0.001))
    long, _ = await store.put(make_entry("l", cost_usd=0.001, content="x" * 10_000))
    left = [int(i) for n in range(3) for i in (await store.put(make_entry(f"{n}", cost_usd=0.1)))[1]]
    assert left[:2] == [long, cheap]
    assert left[2] != dear
    await store.aclose()


async def test_what_was_once_worth_much_leaves_in_the_end(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(tmp_path, 3)
    dear, _ = await store.put(make_entry("dear", cost_usd=1.0))
    for n in range(100):
        await store.put(make_entry(f"q{n}", cost_usd=0.1))
    assert await store.get(dear, NOW) is None
    await store.aclose()


class Model:
    """The contract in a few lines: no index, no heap, everything looked at every time."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self.policy = GreedyDual()
        self.clock = 0.0
        self.entries: dict[str, Kept] = {}

    def put(self, name: str, new_id: int, entry: Entry) -> set[int]:
        size = to_record(entry).stored_bytes
        gone = {self.entries.pop(name).entry_id} if name in self.entries else set()
        if self.is_full(size):
            gone |= self.expire(entry.answer.created_at)
        while self.is_full(size):
            lowest = min(self.entries, key=lambda each: self.entries[each].rank())
            left = self.entries.pop(lowest)
            self.clock = max(self.clock, left.priority)
            gone.add(left.entry_id)
        worth = EntryWorth(
            cost_usd=entry.answer.cost_usd,
            prompt_tokens=entry.answer.prompt_tokens,
            completion_tokens=entry.answer.completion_tokens,
            room=size / self.max_bytes + 1 / self.max_entries,
        )
        density = self.policy.density(worth)
        self.entries[name] = Kept(
            new_id, size, entry.expires_at, density, self.policy.priority(self.clock, density, 0)
        )
        return gone

    def is_full(self, size: int) -> bool:
        return len(self.entries) >= self.max_entries or self.stored_bytes() + size > self.max_bytes

    def stored_bytes(self) -> int:
        return sum(kept.size for kept in self.entries.values())

    def touch(self, name: str) -> None:
        kept = self.entries[name]
        kept.hits += 1
        kept.priority = self.policy.priority(self.clock, kept.density, kept.hits)

    def withdraw(self, name: str) -> None:
        kept = self.entries[name]
        kept.size -= 0 if kept.withdrawn else VECTOR_BYTES
        kept.withdrawn = True

    def expire(self, now: float) -> set[int]:
        expired = {name: kept.entry_id for name, kept in self.entries.items() if kept.expires_at <= now}
        for name in expired:
            del self.entries[name]
        return set(expired.values())


@dataclasses.dataclass
class Kept:
    entry_id: int
    size: int
    expires_at: float
    density: float
    priority: float
    hits: int = 0
    withdrawn: bool = False

    def rank(self) -> tuple[float, int]:
        return self.priority, self.entry_id


NAMES = "abcdefgh"
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.sampled_from(NAMES),
            st.sampled_from([2.0, 5.0, 100.0]),  # time to live
            st.sampled_from([0.0, 0.001, 0.25]),  # cost
            st.integers(0, 1500),  # length
        ),
        st.tuples(st.just("touch"), st.sampled_from(NAMES), st.integers(1, 5)),
        st.tuples(st.sampled_from(["remove", "withdraw"]), st.sampled_from(NAMES)),
        st.tuples(st.sampled_from(["expire", "restart"])),
    ),
    max_size=60,
)


async def check_against_model(folder: Path, kind: str, operations: list[tuple[Any, ...]]) -> None:
    limits = 5, 5000
    model = Model(*limits)
    store = OPENERS[kind](folder, *limits)
    for step, (operation, *arguments) in enumerate(operations):
        now = 1000.0 + step
        name = arguments[0] if arguments else ""
        if operation == "put":
            _, ttl_s, cost_usd, length = arguments
            entry = make_entry(name, created_at=now, ttl_s=ttl_s, cost_usd=cost_usd, content="x" * length)
            new_id, gone = await store.put(entry)
            assert sorted(gone.tolist()) == sorted(model.put(name, new_id, entry))
        elif operation == "expire":
            assert set((await store.expire(now)).tolist()) == model.expire(now)
        elif operation == "restart" and kind != "memory":
            await store.aclose()
            store = OPENERS[kind](folder, *limits)
        elif name in model.entries:
            entry_id = model.entries[name].entry_id
            if operation == "touch":
                for _ in range(arguments[1]):
                    store.touch(entry_id, now)
                    model.touch(name)
            elif operation == "withdraw":
                assert await store.withdraw(entry_id)
                model.withdraw(name)
            else:
                assert (await store.remove([entry_id])).tolist() == [entry_id]
                del model.entries[name]
        size = StoreSize(entries=len(model.entries), stored_bytes=model.stored_bytes())
        assert await store.size() == size
    await check_reading(store, model, 1000.0 + len(operations))
    await store.aclose()


async def check_reading(store: AnswerStore, model: Model, now: float) -> None:
    served = {name: kept for name, kept in model.entries.items() if now < kept.expires_at}
    ids = {name: kept.entry_id for name, kept in served.items()}
    found = {name: await store.find(exact_key(name), now) for name in NAMES}
    assert {name: entry.id for name, entry in found.items() if entry is not None} == ids
    listed = await store.listed(EVERY_ENTRY, now)
    assert [entry.id for entry, _ in listed] == sorted(ids.values(), reverse=True)
    assert {entry.id: (use.hits, use.stored_bytes) for entry, use in listed} == {
        kept.entry_id: (kept.hits, kept.size) for kept in served.values()
    }
    assert (await store.matching(EntryFilter(tenant="tenant"), now)).tolist() == sorted(ids.values())
    semantic = sorted(kept.entry_id for kept in served.values() if not kept.withdrawn)
    assert (await store.vector_ids(SPACE, now)).tolist() == semantic
    assert [i async for batch, _, _ in store.vectors(SPACE, now) for i in batch.tolist()] == semantic


@pytest.mark.parametrize("kind", list(OPENERS))
@settings(max_examples=60, deadline=None)
@given(operations=OPERATIONS)
def test_any_order_of_operations(kind: str, operations: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check_against_model(Path(folder), kind, operations))
