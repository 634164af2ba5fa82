from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.eviction import COMPLETION_WEIGHT, NOMINAL_USD_PER_TOKEN, EntryWorth, GreedyDual

POLICY = GreedyDual()
FINITE = st.floats(0, 1e12)


def worth(
    cost_usd: float = 0.0, prompt_tokens: int = 0, completion_tokens: int = 0, room: float = 0.01
) -> EntryWorth:
    return EntryWorth(
        cost_usd=cost_usd, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, room=room
    )


def test_density_is_what_it_saves_for_its_room() -> None:
    assert POLICY.density(worth(cost_usd=0.5, room=0.25)) == 2.0
    assert POLICY.density(worth(cost_usd=0.5, room=0.5)) == 1.0


def test_an_answer_that_cost_no_money_saves_work() -> None:
    free = POLICY.density(worth(prompt_tokens=10, completion_tokens=5, room=0.5))
    assert free == pytest.approx((10 + COMPLETION_WEIGHT * 5) * NOMINAL_USD_PER_TOKEN / 0.5)
    longer = POLICY.density(worth(prompt_tokens=10, completion_tokens=50, room=0.5))
    assert longer > free


def test_a_price_below_the_nominal_one_does_not_count_against_an_answer() -> None:
    tokens = {"prompt_tokens": 100, "completion_tokens": 100}
    assert POLICY.density(worth(cost_usd=1e-9, **tokens)) == POLICY.density(worth(**tokens))
    assert POLICY.density(worth(cost_usd=1.0, **tokens)) > POLICY.density(worth(**tokens))


@given(clock=FINITE, density=FINITE, hits=st.integers(0, 10**6))
def test_nothing_new_or_used_stands_below_what_has_left(clock: float, density: float, hits: int) -> None:
    assert POLICY.priority(clock, density, hits) >= clock


@given(clock=FINITE, density=FINITE, hits=st.integers(0, 10**6))
def test_being_served_never_lowers_the_priority(clock: float, density: float, hits: int) -> None:
    assert POLICY.priority(clock, density, hits + 1) >= POLICY.priority(clock, density, hits)


def test_what_was_once_worth_much_is_overtaken_by_the_clock() -> None:
    once = POLICY.priority(0.0, 10.0, 3)
    assert once == 40.0
    clock, puts = 0.0, 0
    while (low := POLICY.priority(clock, 1.0, 0)) < once:  # each cheap one evicts the one before
        clock, puts = low, puts + 1
    assert puts == 39
