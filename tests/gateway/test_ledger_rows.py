"""Rows of the ledger: their sums, and how many there may be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.ledger_rows import OTHER, LedgerKey, LedgerRow, RowLimit, Sums

KEYS = st.builds(
    LedgerKey,
    day=st.just("2027-01-15"),
    tenant=st.sampled_from("abcdefgh"),
    key=st.just("web"),
    route=st.just("small"),
    model=st.text(max_size=2),
    api=st.just("chat"),
    cache=st.sampled_from(["miss", "hit-exact"]),
)


def key(tenant: str = "t", model: str = "m", day: str = "2027-01-15") -> LedgerKey:
    return LedgerKey(day, tenant, "web", "small", model, "chat", "miss")


@given(st.lists(KEYS, max_size=80))
def test_a_day_has_no_more_rows_than_the_limits_allow(keys: list[LedgerKey]) -> None:
    limit = RowLimit(max_rows=10, max_rows_of_a_tenant=5, max_tenants=4)
    folded = {limit.fold(key) for key in keys}
    assert len({row.tenant for row in folded}) <= 4 + 1
    assert len(folded) <= 10 + 4 + 1


@given(st.lists(KEYS, max_size=80))
def test_a_row_that_was_counted_once_is_counted_there_again(keys: list[LedgerKey]) -> None:
    limit = RowLimit(max_rows=10, max_rows_of_a_tenant=5, max_tenants=4)
    for row in [limit.fold(key) for key in keys]:
        assert limit.fold(row) == row


def test_a_tenant_with_many_models_leaves_room_to_others() -> None:
    limit = RowLimit(max_rows_of_a_tenant=2)
    rows = [limit.fold(key("greedy", f"m{number}")) for number in range(4)]
    assert [row.model for row in rows] == ["m0", "m1", OTHER, OTHER]
    assert rows[3] == LedgerKey("2027-01-15", "greedy", "web", OTHER, OTHER, OTHER, OTHER)
    assert limit.fold(key("modest", "m9")).model == "m9"


def test_a_new_tenant_keeps_its_name_when_the_rows_of_the_day_are_used_up() -> None:
    limit = RowLimit(max_rows=1)
    limit.fold(key("first"))
    late = limit.fold(key("late"))
    assert (late.tenant, late.model) == ("late", OTHER)


def test_a_tenant_beyond_the_limit_of_tenants_is_other() -> None:
    limit = RowLimit(max_tenants=1)
    limit.fold(key("first"))
    assert limit.fold(key("late")) == key(OTHER)


def test_each_day_has_its_own_limits() -> None:
    limit = RowLimit(max_rows_of_a_tenant=1)
    for day in ("2027-01-15", "2027-01-16", "2027-01-17"):
        assert limit.fold(key(day=day)).model == "m"
        assert limit.fold(key(model="n", day=day)).model == OTHER


def test_rows_that_are_known_count() -> None:
    limit = RowLimit(max_rows_of_a_tenant=1)
    limit.know([key(model="known")])
    assert limit.fold(key(model="known")).model == "known"
    assert limit.fold(key(model="new")).model == OTHER


def test_a_total_is_the_sum_of_its_rows_and_a_saving_may_be_negative() -> None:
    sums = Sums(requests=2, cost_picousd=3 * 10**12, without_picousd=10**12, overhead_picousd=5 * 10**11)
    row = LedgerRow(name="a", hits=1, sums=sums)
    total = LedgerRow.total([row, row])
    assert (total.name, total.hits, total.sums.requests) == ("total", 2, 4)
    assert (total.cost_usd, total.without_usd, total.overhead_usd, total.saving_usd) == (6, 2, 1, -5)
    assert row.sums.requests == 2
