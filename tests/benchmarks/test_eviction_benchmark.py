"""The eviction benchmark: its rivals are what they are called, its requests are the seed's."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.eviction import (
    POLICIES,
    SERIES,
    FirstInFirstOut,
    LeastRecentlyUsed,
    Limits,
    clairvoyant,
    draw,
    main,
    make_entries,
    measure,
    replay,
    table,
)
from policies.eviction import EvictionPolicy, GreedyDual

ENTRIES = make_entries([f"question {n}" for n in range(200)], seed=1, large_share=0.3)


def hits(policy: EvictionPolicy, order: str, max_entries: int = 3) -> int:
    numbers = [ord(name) - ord("a") for name in order]
    found = asyncio.run(replay(ENTRIES, numbers, Limits("", max_entries, 10**9), policy))
    return round(found["hit_rate"] * len(order))


@pytest.mark.parametrize(
    ("order", "lru", "fifo"),
    [
        ("abcabc", 3, 3),
        ("abcada", 2, 1),  # d takes the place of b, or of a although it was just asked for
        ("abcabdab", 4, 2),
        ("abcdabcd", 0, 0),
        ("aaaa", 3, 3),
    ],
)
def test_the_rivals_are_what_they_are_called(order: str, lru: int, fifo: int) -> None:
    assert hits(LeastRecentlyUsed(), order) == lru
    assert hits(FirstInFirstOut(), order) == fifo


def test_the_clairvoyant_bounds_every_hit_rate_by_entries() -> None:
    order = draw(len(ENTRIES), 3000, 0.9, seed=2)
    limits = Limits("", 20, 10**9)
    bound = clairvoyant(ENTRIES, order, limits)["hit_rate"]
    rates = {name: asyncio.run(replay(ENTRIES, order, limits, POLICIES[name]())) for name in POLICIES}
    assert all(found["hit_rate"] < bound for found in rates.values())
    asked_again = (len(order) - len(set(order))) / len(order)
    assert clairvoyant(ENTRIES, order, Limits("", 1000, 10**9))["hit_rate"] == round(asked_again, 4)
    abcdabcd = [0, 1, 2, 3, 0, 1, 2, 3]
    assert clairvoyant(ENTRIES, abcdabcd, Limits("", 3, 10**9))["hit_rate"] == 3 / 8


def test_requests_follow_zipf_and_fade() -> None:
    order = draw(100, 20_000, 1.0, seed=3)
    assert order == draw(100, 20_000, 1.0, seed=3)
    assert order != draw(100, 20_000, 1.0, seed=4)
    first = Counter(order[:1000]).most_common()
    assert 0.12 < first[0][1] / 1000 < 0.27  # 1 / (1 + 1/2 + ... + 1/100) is 0.19
    ranks = [{name for name, _ in Counter(part).most_common(10)} for part in (order[:2000], order[-2000:])]
    assert len(ranks[0] & ranks[1]) < 10


def test_ours_saves_more_than_its_rivals() -> None:
    order = draw(len(ENTRIES), 3000, 0.9, seed=5)
    for limits in (Limits("", 10, 10**9), Limits("", 10**6, 40_000)):
        saved = {
            policy.__name__: asyncio.run(replay(ENTRIES, order, limits, policy()))["saved_usd"]
            for policy in (GreedyDual, LeastRecentlyUsed, FirstInFirstOut)
        }
        assert saved["GreedyDual"] > saved["LeastRecentlyUsed"]
        assert saved["GreedyDual"] > saved["FirstInFirstOut"]


def test_every_setting_is_in_the_table() -> None:
    results = asyncio.run(measure([f"question {n}" for n in range(2000)], 400, SERIES[2:]))
    assert len(results["settings"]) == 12
    lines = table(results).splitlines()
    assert len(lines) == 13
    assert results["least_saved_to_lru"] == min(row["saved_to_lru"] for row in results["settings"])
    for row in results["settings"]:
        assert row["unlimited"]["hit_rate"] >= row["belady"]["hit_rate"] > 0


def test_without_data_it_says_what_to_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["eviction.py", "--data", str(tmp_path / "absent")])
    with pytest.raises(SystemExit, match=r"absent: no questions there .*--data"):
        main()
