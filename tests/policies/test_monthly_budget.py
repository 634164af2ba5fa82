"""A budget for a calendar month, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.monthly_budget import MonthlyBudget, month_end_s, month_of


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> float:
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("now_s", "month", "end_s"),
    [
        (at(2026, 1, 1), "2026-01", at(2026, 2, 1)),
        (at(2026, 12, 31, 23, 59, 59), "2026-12", at(2027, 1, 1)),
        (at(2028, 2, 29, 12), "2028-02", at(2028, 3, 1)),
    ],
)
def test_months_are_those_of_the_calendar(now_s: float, month: str, end_s: float) -> None:
    assert (month_of(now_s), month_end_s(now_s)) == (month, end_s)


def test_what_was_spent_before_the_start_counts() -> None:
    now_s = at(2026, 3, 10)
    budget = MonthlyBudget(limit_usd=50.0, spent_usd=48.5, now_s=now_s)
    assert budget.remaining_usd(now_s) == 1.5
    budget.spend(1.0, now_s)
    assert budget.remaining_usd(now_s) == 0.5
    budget.spend(7.0, now_s)
    assert budget.remaining_usd(now_s) == 0.0


def test_the_next_month_begins_with_all_of_it() -> None:
    budget = MonthlyBudget(limit_usd=5.0, spent_usd=5.0, now_s=at(2026, 1, 31))
    assert budget.remaining_usd(at(2026, 1, 31, 23, 59, 59)) == 0.0
    assert budget.ends_in_s(at(2026, 1, 31, 23, 59, 59)) == 1.0
    assert budget.remaining_usd(at(2026, 2, 1)) == 5.0
    budget.spend(2.0, at(2026, 2, 2))
    assert budget.remaining_usd(at(2026, 2, 2)) == 3.0


def test_months_without_a_request_are_passed_over() -> None:
    budget = MonthlyBudget(limit_usd=5.0, spent_usd=5.0, now_s=at(2026, 1, 31))
    budget.spend(1.0, at(2026, 7, 4))
    assert budget.remaining_usd(at(2026, 7, 4)) == 4.0
    assert budget.ends_in_s(at(2026, 7, 31)) == 86_400


@given(st.floats(0, 4e9))
def test_a_month_ends_after_now_and_within_31_days(now_s: float) -> None:
    end_s = month_end_s(now_s)
    assert 0 < end_s - now_s <= 31 * 86_400
    assert month_of(end_s) > month_of(now_s) == month_of(end_s - 0.01)
