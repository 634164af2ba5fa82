from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embeddings.length_buckets import buckets


def cost(lengths: list[int], calls: list[list[int]], call_cost: int) -> int:
    return sum(call_cost + len(rows) * max(lengths[row] for row in rows) for rows in calls)


def split(lengths: list[int], call_cost: int, max_tokens: int) -> list[list[int]]:
    return [rows.tolist() for rows in buckets(np.array(lengths, np.int64), call_cost, max_tokens)]


@given(st.lists(st.integers(2, 60), max_size=60), st.integers(0, 40), st.integers(1, 300))
def test_every_row_runs_once_within_the_bound(lengths: list[int], call_cost: int, max_tokens: int) -> None:
    calls = split(lengths, call_cost, max_tokens)
    assert sorted(itertools.chain.from_iterable(calls)) == list(range(len(lengths)))
    for rows in calls:
        assert rows
        assert len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= max_tokens


@given(st.lists(st.integers(2, 40), min_size=1, max_size=9), st.integers(0, 40))
def test_no_other_split_costs_less(lengths: list[int], call_cost: int) -> None:
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    others = []
    for cuts in itertools.product([False, True], repeat=len(order) - 1):
        ends = [i + 1 for i, cut in enumerate(cuts) if cut] + [len(order)]
        others.append([order[a:b] for a, b in itertools.pairwise([0, *ends])])
    found = cost(lengths, split(lengths, call_cost, 100_000), call_cost)
    assert found == min(cost(lengths, other, call_cost) for other in others)


@pytest.mark.parametrize(
    ("lengths", "call_cost", "calls"),
    [
        ([12, 12, 12], 8, [[0, 1, 2]]),
        ([12, 14], 8, [[0, 1]]),
        ([12, 60], 8, [[0], [1]]),
        ([60, 12], 1000, [[1, 0]]),
        ([], 8, []),
    ],
)
def test_like_lengths_share_a_call(lengths: list[int], call_cost: int, calls: list[list[int]]) -> None:
    assert split(lengths, call_cost, 2048) == calls
