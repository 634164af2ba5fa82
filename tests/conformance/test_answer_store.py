"""What every answer store must do."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from embeddings.memory_store import MemoryStore
from embeddings.protocols import AnswerStore, Entry, StoreError
from embeddings.sqlite_store import SqliteStore
from tests.entries import SPACE, exact_key, make_entry

OpenStore = Callable[[Path, int], AnswerStore]
OPENERS: dict[str, OpenStore] = {
    "memory": lambda folder, max_entries: MemoryStore(max_entries),
    "sqlite": lambda folder, max_entries: SqliteStore.open(folder / "cache.db", max_entries),
}
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
    assert await store.count() == 0


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
    assert await store.count() == 1


async def test_expires_at_its_very_second(store: AnswerStore) -> None:
    entry = make_entry(created_at=1000.0, ttl_s=60.0)
    new_id, _ = await store.put(entry)
    for now, there in ((1059.999, True), (1060.0, False), (1060.001, False), (9e9, False)):
        assert (await store.find(entry.exact_key, now) is not None) is there
        assert (await store.get(new_id, now) is not None) is there
        assert [i async for ids, _, _ in store.vectors(SPACE, now) for i in ids] == [new_id] * there
    assert (await store.expire(1059.999)).tolist() == []
    assert (await store.expire(1060.0)).tolist() == [new_id]
    assert await store.count() == 0


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
    assert await store.count() == 2


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
    assert await store.count() == 0


async def test_full_store_evicts_what_was_used_longest_ago(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(tmp_path, 3)
    a, b, c = [(await store.put(make_entry(name, created_at=1000.0 + n)))[0] for n, name in enumerate("abc")]
    store.touch(a, 1010.0)
    d, gone = await store.put(make_entry("d", created_at=1011.0))
    assert gone.tolist() == [b]
    e, gone = await store.put(make_entry("e", created_at=1012.0))
    assert gone.tolist() == [c]
    assert await store.count() == 3
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
    assert await store.count() == 2
    await store.aclose()


async def test_touching_what_is_not_there_does_nothing(store: AnswerStore) -> None:
    store.touch(77, NOW)
    await store.put(make_entry())
    assert await store.count() == 1


def test_a_store_needs_room(open_store: OpenStore, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_entries"):
        open_store(tmp_path, 0)


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
    assert await store.count() == 20


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
    assert await store.count() == 2


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
        lambda: store.count(),
        lambda: anext(store.vectors(SPACE, NOW)),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="closed"):
            await call()


NAMES = "abcdefgh"
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(NAMES), st.sampled_from([2.0, 5.0, 100.0])),
        st.tuples(st.just("touch"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("remove"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("expire"), st.none(), st.none()),
    ),
    max_size=40,
)


class Model:
    """The contract in a few lines: an ordered dict, the least recently used first."""

    def __init__(self, max_entries: int) -> None:
        self.max_entries = max_entries
        self.entries: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def put(self, name: str, new_id: int, expires_at: float, now: float) -> set[int]:
        gone = set()
        if name in self.entries:
            gone.add(self.entries.pop(name)[0])
        self.entries[name] = new_id, expires_at
        if len(self.entries) > self.max_entries:
            gone |= self.expire(now)
        while len(self.entries) > self.max_entries:
            gone.add(self.entries.popitem(last=False)[1][0])
        return gone

    def expire(self, now: float) -> set[int]:
        expired = {
            name: entry_id for name, (entry_id, expires_at) in self.entries.items() if expires_at <= now
        }
        for name in expired:
            del self.entries[name]
        return set(expired.values())


async def check_against_model(store: AnswerStore, operations: list[tuple[Any, Any, Any]]) -> None:
    model = Model(5)
    for step, (operation, name, ttl_s) in enumerate(operations):
        now = 1000.0 + step
        if operation == "put":
            new_id, gone = await store.put(make_entry(name, created_at=now, ttl_s=ttl_s))
            assert set(gone.tolist()) == model.put(name, new_id, now + ttl_s, now)
        elif operation == "expire":
            assert set((await store.expire(now)).tolist()) == model.expire(now)
        elif name in model.entries:
            entry_id = model.entries[name][0]
            if operation == "touch":
                store.touch(entry_id, now)
                model.entries.move_to_end(name)
            else:
                assert (await store.remove([entry_id])).tolist() == [entry_id]
                del model.entries[name]
        assert await store.count() == len(model.entries)
    now = 1000.0 + len(operations)
    expected = {name: i for name, (i, expires_at) in model.entries.items() if now < expires_at}
    found = {name: await store.find(exact_key(name), now) for name in NAMES}
    assert {name: entry.id for name, entry in found.items() if entry is not None} == expected
    listed = [i async for ids, _, _ in store.vectors(SPACE, now) for i in ids.tolist()]
    assert sorted(listed) == sorted(expected.values())


@pytest.mark.parametrize("kind", list(OPENERS))
@settings(max_examples=40, deadline=None)
@given(operations=OPERATIONS)
def test_any_order_of_operations(kind: str, operations: list[tuple[Any, Any, Any]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = OPENERS[kind](Path(folder), 5)
            try:
                await check_against_model(store, operations)
            finally:
                await store.aclose()

    asyncio.run(run())
