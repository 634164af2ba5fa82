from __future__ import annotations

import dataclasses

import pytest

from embeddings.hot_entries import HotEntries
from embeddings.protocols import Entry
from tests.entries import exact_key, make_entry

NOW = 1001.0


def hot_entry(entry_id: int, name: str, *, content: str = "x", ttl_s: float = 60.0) -> Entry:
    return dataclasses.replace(make_entry(name, content=content, ttl_s=ttl_s), id=entry_id)


def test_finds_by_key_and_id() -> None:
    hot = HotEntries(10_000)
    entry = hot_entry(1, "a")
    hot.add(entry, hot.generation)
    assert hot.find(exact_key("a"), NOW) is entry
    assert hot.get(1, NOW) is entry
    assert hot.find(exact_key("b"), NOW) is None
    assert hot.get(2, NOW) is None


def test_expires_at_its_very_second() -> None:
    hot = HotEntries(10_000)
    hot.add(hot_entry(1, "a", ttl_s=60.0), hot.generation)
    assert hot.find(exact_key("a"), 1059.999) is not None
    assert hot.find(exact_key("a"), 1060.0) is None
    assert len(hot) == 0


def test_keeps_within_its_bytes_dropping_what_was_served_longest_ago() -> None:
    hot = HotEntries(10_000)
    for entry_id, name in enumerate("abc", start=1):
        hot.add(hot_entry(entry_id, name, content="x" * 2000), hot.generation)
    assert hot.find(exact_key("a"), NOW) is not None
    hot.add(hot_entry(4, "d", content="x" * 2000), hot.generation)
    assert [hot.get(i, NOW) is not None for i in (1, 2, 3, 4)] == [True, False, True, True]


def test_counts_vector_and_text() -> None:
    hot = HotEntries(2500)
    text = "t" * 2000
    hot.add(hot_entry(1, text), hot.generation)
    assert len(hot) == 0
    hot.add(dataclasses.replace(hot_entry(1, text), text="t", vector=None), hot.generation)
    assert len(hot) == 1


def test_what_is_too_large_is_not_kept_and_displaces_nothing() -> None:
    hot = HotEntries(5000)
    hot.add(hot_entry(1, "a"), hot.generation)
    hot.add(hot_entry(2, "b", content="x" * 5000), hot.generation)
    assert hot.get(1, NOW) is not None
    assert hot.get(2, NOW) is None


def test_many_changes_leave_no_bytes_behind() -> None:
    hot = HotEntries(6000)
    for entry_id in range(1, 500):
        hot.add(hot_entry(entry_id, f"q{entry_id % 7}", content="x" * (entry_id % 900)), hot.generation)
        if entry_id % 5 == 0:
            hot.drop([entry_id])
    hot.drop(range(500))
    assert len(hot) == 0
    assert hot._bytes == 0
    assert not hot._id_by_key


def test_a_replacing_entry_takes_the_place() -> None:
    hot = HotEntries(10_000)
    hot.add(hot_entry(1, "a"), hot.generation)
    hot.add(hot_entry(2, "a"), hot.generation)
    found = hot.find(exact_key("a"), NOW)
    assert found is not None
    assert found.id == 2
    assert hot.get(1, NOW) is None
    hot.drop([1])
    assert hot.find(exact_key("a"), NOW) is found


@pytest.mark.parametrize("ids", [[1], [99], []])
def test_what_was_read_before_a_drop_is_refused(ids: list[int]) -> None:
    hot = HotEntries(10_000)
    generation = hot.generation
    hot.drop(ids)
    hot.add(hot_entry(1, "a"), generation)
    assert len(hot) == 0
    hot.add(hot_entry(1, "a"), hot.generation)
    assert len(hot) == 1
