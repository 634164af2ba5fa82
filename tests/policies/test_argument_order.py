"""Swapped parts, and how far an order is another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.argument_order import Roles, inversions, swapped

WORDS = st.lists(st.sampled_from("abcdef"))
ROLES = st.frozensets(st.tuples(st.sampled_from(["source", "goal", "subject"]), st.sampled_from("abcd")))


def test_swapped_counts_pairs_that_play_each_others_part() -> None:
    there = frozenset({("source", "oslo"), ("goal", "lisbon")})
    back = frozenset({("source", "lisbon"), ("goal", "oslo")})
    elsewhere = frozenset({("source", "lisbon"), ("goal", "rome")})
    assert swapped(there, back) == 1
    assert swapped(there, there) == swapped(there, elsewhere) == swapped(there, frozenset()) == 0


@pytest.mark.parametrize(
    ("a", "b", "share"),
    [("abc", "abc", 0), ("abc", "cba", 1), ("abc", "acb", 1 / 3), ("ab", "xbya", 1), ("ab", "ax", 0)],
)
def test_inversions(a: str, b: str, share: float) -> None:
    assert inversions(tuple(a), tuple(b)) == pytest.approx(share)


@given(WORDS, WORDS, ROLES, ROLES)
def test_both_are_symmetric_and_zero_for_equals(a: list[str], b: list[str], r: Roles, s: Roles) -> None:
    assert inversions(a, b) == inversions(b, a)
    assert 0 <= inversions(a, b) <= 1
    assert swapped(r, s) == swapped(s, r)
    assert inversions(a, a) == swapped(r, r) == 0
