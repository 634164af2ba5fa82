"""The risk budget: never overdrawn in any order, saved up for one stretch only, spent where it buys most."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.risk_budget import STRETCH, RiskBudget

risks = st.lists(st.none() | st.floats(1e-6, 1), max_size=300)


def budget(rate: float = 0.01, max_risk: float = 0.25) -> RiskBudget:
    return RiskBudget(rate=rate, max_risk=max_risk)


def filled(requests: int, rate: float = 0.01) -> RiskBudget:
    one = budget(rate)
    for _ in range(requests):
        one.pay_in(rate)
    return one


def test_the_first_request_is_served_at_the_risk_that_it_pays_for_itself() -> None:
    one = filled(1)
    assert one.covers(0.01)
    assert not one.covers(0.0101)


@given(risks, st.floats(0.0005, 0.3))
def test_no_order_overdraws_it(offered: list[float | None], rate: float) -> None:
    one, taken = budget(rate), 0.0
    for requests, risk in enumerate(offered, 1):
        one.pay_in(rate)
        if risk is not None and one.covers(risk):
            one.take(risk)
            taken += risk
        assert one.balance >= 0
        assert taken <= rate * requests * (1 + 1e-9)


def test_quiet_times_are_saved_up_for_one_stretch_only() -> None:
    one = filled(50_000)
    assert one.balance == one.capacity == pytest.approx(0.01 * STRETCH)
    taken = 0.0
    while one.covers(0.2):
        one.take(0.2)
        taken += 0.2
    assert taken <= 0.01 * STRETCH


def test_the_threshold_rises_from_the_rate_to_the_greatest_risk() -> None:
    assert budget().threshold == pytest.approx(0.01)
    half_full = filled(round(STRETCH / 2))
    assert half_full.threshold == pytest.approx((0.01 * 0.25) ** 0.5)  # the geometric mean
    assert filled(2000).threshold == pytest.approx(0.25)
    assert not filled(2000).covers(0.2501)


def test_a_tight_request_pays_in_less_and_none_more_than_the_rate() -> None:
    one = budget()
    one.pay_in(0.002)
    assert one.balance == pytest.approx(0.002)
    one.pay_in(0.5)
    assert one.balance == pytest.approx(0.012)


def test_nothing_allowed_is_nothing_served() -> None:
    one = budget(rate=0.0)
    one.pay_in(0.0)
    assert not one.covers(1e-9)


def test_a_small_rate_can_still_pay_for_one_answer() -> None:
    assert budget(rate=1e-5).capacity >= 0.25


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.03])
def test_it_serves_nearly_what_hindsight_would(rate: float) -> None:
    """The most answers that the allowance buys are those of the least risk: we serve 93 % of them."""
    random = np.random.default_rng(0)
    offered = np.where(random.random(60_000) < 0.4, random.beta(0.6, 4, 60_000), np.inf)
    one, served = budget(rate, max_risk=0.25), 0
    for risk in offered.tolist():
        one.pay_in(rate)
        if one.covers(risk):
            one.take(risk)
            served += 1
    rising = np.sort(offered[offered <= 0.25])
    best = int(np.searchsorted(np.cumsum(rising), rate * len(offered)))
    assert 0.93 * best <= served <= best


def test_where_all_risks_are_equal_as_many_are_served_as_are_paid_for() -> None:
    """A plateau of the calibration: a threshold on the risk alone would serve all of them or none."""
    one, served = budget(0.01), 0
    for _ in range(20_000):
        one.pay_in(0.01)
        if one.covers(0.05):
            one.take(0.05)
            served += 1
    assert served == pytest.approx(0.2 * 20_000, rel=0.05)
