"""The ledger: postings, sums, queries, and what survives."""

from __future__ import annotations

import dataclasses
import tempfile
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config import parse
from gateway.ledger import GenerationPosting, Ledger, RequestPosting, open_ledger
from gateway.ledger_rows import OTHER, PICO, Dimension, LedgerRow, RowLimit
from gateway.ledger_store import LedgerStore
from policies.types import Usage
from tests.gateway.ledger_cases import DAY_S, NOON, FakeClock, asked, generated, reopened, total

DIMENSIONS: tuple[Dimension, ...] = ("day", "tenant", "key", "route", "model", "api", "cache")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "ledger.db"


@pytest.fixture
def ledger(path: Path, clock: FakeClock) -> Iterator[Ledger]:
    opened = Ledger(LedgerStore(path), usd_per_cpu_hour=0.36, clock=clock)
    yield opened
    opened.close()


def test_a_request_and_its_generation_fill_one_row(ledger: Ledger) -> None:
    ledger.request(asked(without_usd=0.01, embed_s=0.006, verify_s=0.004))
    usage = Usage(prompt_tokens=100, completion_tokens=20, cached_tokens=30, cache_write_tokens=10)
    ledger.generation(generated(usage=usage, cost_usd=0.001, attempts=2))
    (row,) = ledger.by("model")
    assert row.name == "m"
    assert dataclasses.asdict(row.sums) == {
        "requests": 1,
        "errors": 0,
        "cancelled": 0,
        "generations": 1,
        "upstream_calls": 2,
        "estimated": 0,
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "cached_tokens": 30,
        "cache_write_tokens": 10,
        "saved_tokens": 0,
        "embed_us": 6000,
        "verify_us": 4000,
        "cost_picousd": PICO // 1000,
        "without_picousd": PICO // 100,
        "overhead_picousd": PICO // 1_000_000,  # 0.01 s at 0.36 USD an hour
    }
    assert row.saving_usd == pytest.approx(0.01 - 0.001 - 0.000001)


def test_attempts_at_a_model_that_failed_are_its_own(ledger: Ledger) -> None:
    ledger.generation(generated(model="large", attempts=1, elsewhere=(("small", 2),), cost_usd=0.5))
    rows = {row.name: row for row in ledger.by("model")}
    assert {name: row.sums.upstream_calls for name, row in rows.items()} == {"small": 2, "large": 1}
    assert {name: row.sums.generations for name, row in rows.items()} == {"small": 0, "large": 1}
    assert rows["small"].cost_usd == 0.0


def test_errors_and_clients_that_left_are_counted_apart(ledger: Ledger) -> None:
    for status in (200, 400, 499, 502):
        ledger.request(asked(status=status))
    sums = total(ledger)
    assert (sums.requests, sums.errors, sums.cancelled) == (4, 2, 1)


def test_a_stream_that_broke_is_an_error_though_its_status_was_good(ledger: Ledger) -> None:
    for status in (200, 499):
        ledger.request(asked(status=status, broken=True))
    sums = total(ledger)
    assert (sums.errors, sums.cancelled) == (1, 1)


def test_hits_are_the_requests_that_the_cache_answered(ledger: Ledger) -> None:
    for cache in ("hit-exact", "hit-semantic", "miss", "coalesced", "bypass"):
        ledger.request(asked(cache=cache, saved_tokens=7 if cache.startswith("hit") else 0))
    (row,) = ledger.by("tenant")
    assert (row.hits, row.sums.saved_tokens) == (2, 14)
    ledger.flush()
    assert ledger.by("tenant") == [row]


def test_ten_thousand_requests_cost_ten_thousand_times_one(ledger: Ledger) -> None:
    for _ in range(10_000):
        ledger.generation(generated(cost_usd=0.000_000_1))
    assert total(ledger).cost_picousd == 10_000 * PICO // 10**7
    assert ledger.by("day")[0].cost_usd == 0.001


@pytest.mark.parametrize("number", [-1.0, float("nan"), float("inf"), 1e300])
def test_whatever_is_posted_the_sums_stay_numbers_the_file_can_hold(ledger: Ledger, number: float) -> None:
    count = int(min(max(number, -1), 1e18)) if number == number else 0
    usage = Usage(prompt_tokens=count, completion_tokens=count)
    for _ in range(20):
        ledger.generation(generated(usage=usage, cost_usd=number))
        ledger.request(asked(without_usd=number, embed_s=number))
        ledger.flush()
    sums = total(ledger)
    assert sums.requests == 20
    assert min(sums.values()) >= 0
    ledger.request(asked())
    ledger.flush()
    assert total(ledger).requests == 21


def test_names_that_could_do_harm_are_cleaned(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.request(asked(model="evil\x1b[2J\n\ud800" + "x" * 500))
    ledger.flush()
    (row,) = ledger.by("model")
    assert row.name.startswith("evil?[2J??x")
    assert (len(row.name), row.sums.requests) == (120, 2)


def test_each_dimension_sums_up_to_the_same(ledger: Ledger, clock: FakeClock) -> None:
    for number in range(12):
        clock.now += DAY_S / 4
        names = {
            "tenant": f"t{number % 2}",
            "model": f"m{number % 3}",
            "cache": ("miss", "hit-exact")[number % 2],
        }
        ledger.request(asked(without_usd=0.5, **names))
        if number == 6:
            ledger.flush()
    rows = {dimension: ledger.by(dimension) for dimension in DIMENSIONS}
    assert [len(rows[dimension]) for dimension in DIMENSIONS] == [4, 2, 2, 1, 3, 1, 2]
    for found in rows.values():
        assert LedgerRow.total(found) == LedgerRow.total(rows["day"])


def test_days_come_in_order_and_all_else_dearest_first(ledger: Ledger, clock: FakeClock) -> None:
    for model, usd in (("cheap", 0.1), ("dear", 2.0), ("free", 0.0)):
        ledger.request(asked(model=model, without_usd=usd))
        clock.now -= DAY_S
    assert [row.name for row in ledger.by("model")] == ["dear", "cheap", "free"]
    assert [row.name for row in ledger.by("day")] == ["2027-01-13", "2027-01-14", "2027-01-15"]


def test_since_and_until_are_days_in_utc_and_both_belong_to_the_query(ledger: Ledger) -> None:
    midnight = NOON - DAY_S / 2
    for at in (midnight - 0.001, midnight, midnight + DAY_S - 0.001, midnight + DAY_S):
        ledger.request(asked(at=at))
        ledger.flush()
        ledger.request(asked(at=at))
    day = date(2027, 1, 15)
    assert [(row.name, row.sums.requests) for row in ledger.by("day", day, day)] == [("2027-01-15", 4)]
    assert LedgerRow.total(ledger.by("cache", since=day)).sums.requests == 6
    assert LedgerRow.total(ledger.by("cache", until=day)).sums.requests == 6


POSTINGS = st.one_of(
    st.builds(
        asked,
        tenant=st.sampled_from("ab"),
        cache=st.sampled_from(["miss", "hit-exact"]),
        status=st.sampled_from([200, 499, 500]),
        without_usd=st.floats(0, 1000),
        embed_s=st.floats(0, 1),
        at=st.sampled_from([NOON - DAY_S, NOON]),
    ),
    st.builds(
        generated,
        tenant=st.sampled_from("ab"),
        model=st.sampled_from("xyz"),
        usage=st.builds(Usage, prompt_tokens=st.integers(0, 10**6), estimated=st.booleans()),
        cost_usd=st.floats(0, 1000),
        at=st.sampled_from([NOON - DAY_S, NOON]),
    ),
)
STEPS = st.lists(st.one_of(POSTINGS, st.sampled_from(["flush", "reopen"])), max_size=30)


def post(ledger: Ledger, posting: RequestPosting | GenerationPosting) -> None:
    if isinstance(posting, RequestPosting):
        ledger.request(posting)
    else:
        ledger.generation(posting)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, seed=st.randoms(use_true_random=False))
def test_any_interleaving_of_postings_and_flushes_gives_the_plain_sums(steps: list[Any], seed: Any) -> None:
    postings = [step for step in steps if not isinstance(step, str)]
    shuffled = list(postings)
    seed.shuffle(shuffled)
    plain = Ledger(LedgerStore(None), clock=FakeClock(), usd_per_cpu_hour=0.05)
    for posting in shuffled:
        post(plain, posting)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        ledger = reopened(path, usd_per_cpu_hour=0.05)
        for step in steps:
            if step == "flush":
                ledger.flush()
            elif step == "reopen":
                ledger.close()
                ledger = reopened(path, usd_per_cpu_hour=0.05)
            else:
                post(ledger, step)
        for dimension in DIMENSIONS:
            assert ledger.by(dimension) == plain.by(dimension)
        for tenant in "abc":
            assert ledger.spent_usd(tenant) == plain.spent_usd(tenant)
        sums = total(ledger)
        ledger.close()
    plain.close()
    generations = [posting for posting in postings if isinstance(posting, GenerationPosting)]
    requests = [posting for posting in postings if isinstance(posting, RequestPosting)]
    assert sums.cost_picousd == sum(round(posting.cost_usd * PICO) for posting in generations)
    assert sums.without_picousd == sum(round(posting.without_usd * PICO) for posting in requests)
    assert sums.prompt_tokens == sum(posting.usage.prompt_tokens for posting in generations)
    assert sums.estimated == sum(posting.usage.estimated for posting in generations)
    assert (sums.requests, sums.generations) == (len(requests), len(generations))


def test_a_tenants_spending_of_a_month_counts_what_is_not_yet_written(path: Path, clock: FakeClock) -> None:
    ledger = reopened(path, clock)
    ledger.generation(generated(cost_usd=1.0, at=NOON - 31 * DAY_S))
    ledger.generation(generated(cost_usd=2.0))
    ledger.generation(generated(cost_usd=8.0, tenant="another"))
    ledger.close()
    ledger = reopened(path, clock)
    ledger.generation(generated(cost_usd=0.5))
    ledger.generation(generated(cost_usd=0.25, at=NOON - 31 * DAY_S))
    assert ledger.spent_usd("shop") == ledger.spent_usd("shop", "2027-01") == 2.5
    assert ledger.spent_usd("shop", "2026-12") == 1.25
    assert ledger.spent_usd("shop", "2026-11") == ledger.spent_usd("nobody") == 0.0
    ledger.close()


def test_a_new_month_begins_with_nothing_spent(ledger: Ledger, clock: FakeClock) -> None:
    ledger.generation(generated(cost_usd=2.0))
    clock.now += 20 * DAY_S
    assert ledger.spent_usd("shop") == 0.0
    ledger.generation(generated(cost_usd=1.0))
    ledger.generation(generated(cost_usd=0.5, at=NOON))
    assert (ledger.spent_usd("shop"), ledger.spent_usd("shop", "2027-01")) == (1.0, 2.5)


def test_old_days_are_dropped_and_the_current_month_never_is(path: Path, clock: FakeClock) -> None:
    ledger = reopened(path, clock, retention_days=3)
    for days in range(30):
        ledger.generation(generated(cost_usd=1.0, at=NOON - days * DAY_S))
    ledger.close()
    swept = threading.Event()

    class FakeSweptStore(LedgerStore):
        def drop_before(self, day: str) -> None:
            super().drop_before(day)
            swept.set()

    ledger = Ledger(FakeSweptStore(path), clock=clock, retention_days=3)
    ledger.request(asked())
    assert swept.wait(10)
    assert [row.name for row in ledger.by("day")] == [f"2027-01-{day:02}" for day in range(1, 16)]
    swept.clear()
    clock.now += 18 * DAY_S  # the second of February
    ledger.request(asked())
    assert swept.wait(10)
    assert [row.name for row in ledger.by("day")] == ["2027-02-02"]
    ledger.close()


def test_beyond_the_limit_a_tenants_models_fold_and_its_spending_stays_right(clock: FakeClock) -> None:
    ledger = Ledger(LedgerStore(None), clock=clock, limit=RowLimit(max_rows_of_a_tenant=10))
    for number in range(100):
        ledger.generation(generated(model=f"guess-{number}", cost_usd=1.0))
    ledger.generation(generated(tenant="another", model="m"))
    rows = {row.name: row.cost_usd for row in ledger.by("model")}
    assert (len(rows), rows[OTHER], rows["m"]) == (12, 90.0, 0.0)
    assert ledger.spent_usd("shop") == 100.0
    ledger.close()


def test_the_limit_holds_over_a_restart(path: Path, clock: FakeClock) -> None:
    for start in range(3):
        ledger = reopened(path, clock, limit=RowLimit(max_rows_of_a_tenant=5))
        for number in range(20):
            ledger.request(asked(model=f"m{start}-{number}"))
        ledger.close()
    ledger = reopened(path, clock)
    assert len(ledger.by("model")) == 6
    ledger.close()


def test_the_settings_open_it_and_without_a_file_it_counts_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    for enabled in (True, False):
        table = {
            "ledger": {"enabled": enabled, "path": str(path)},
            "embeddings": {"usd_per_cpu_hour": 3600.0},
        }
        ledger = open_ledger(parse(table, {}, source="test"))
        ledger.request(asked(embed_s=0.5))
        assert ledger.by("tenant")[0].overhead_usd == 0.5
        ledger.close()
        assert path.exists() == enabled
        path.unlink(missing_ok=True)
