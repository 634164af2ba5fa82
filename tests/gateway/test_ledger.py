"""The ledger: postings, sums, queries, and what survives."""

from __future__ import annotations

import dataclasses
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import ledger as ledger_module
from gateway.config import parse
from gateway.ledger import GenerationPosting, Ledger, RequestPosting, open_ledger
from gateway.ledger_rows import OTHER, PICO, Dimension, LedgerRow, RowLimit, Sums
from gateway.ledger_store import LedgerError, LedgerStore
from policies.types import Usage

NOON = 1_800_014_400.0  # 2027-01-15 12:00 UTC
DAY_S = 86_400.0
DIMENSIONS: tuple[Dimension, ...] = ("day", "tenant", "route", "model", "api", "cache")


class FakeClock:
    now = NOON

    def __call__(self) -> float:
        return self.now


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


def asked(**changes: Any) -> RequestPosting:
    fields = {"tenant": "shop", "route": "small", "model": "m", "api": "chat", "cache": "miss", "status": 200}
    return RequestPosting(**{**fields, **changes})


def generated(**changes: Any) -> GenerationPosting:
    fields = {"tenant": "shop", "route": "small", "model": "m", "api": "chat", "cache": "miss"}
    return GenerationPosting(**{**fields, "usage": Usage(), "cost_usd": 0.0, **changes})


def total(ledger: Ledger) -> Sums:
    return LedgerRow.total(ledger.by("day")).sums


def reopened(path: Path, clock: FakeClock | None = None, **options: Any) -> Ledger:
    return Ledger(LedgerStore(path), clock=clock or FakeClock(), **options)


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


def test_errors_and_clients_that_left_are_counted_apart(ledger: Ledger) -> None:
    for status in (200, 400, 499, 502):
        ledger.request(asked(status=status))
    sums = total(ledger)
    assert (sums.requests, sums.errors, sums.cancelled) == (4, 2, 1)


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
    assert [len(rows[dimension]) for dimension in DIMENSIONS] == [4, 2, 1, 3, 1, 2]
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


def test_threads_post_and_flush_at_once_and_nothing_is_lost(ledger: Ledger) -> None:
    def work(tenant: str) -> None:
        for number in range(300):
            ledger.request(asked(tenant=tenant))
            ledger.generation(generated(tenant=tenant, cost_usd=0.25))
            if number % 50 == 0:
                ledger.flush()
                ledger.by("tenant")

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.flush()
    assert [(row.sums.requests, row.cost_usd) for row in ledger.by("tenant")] == [(300, 75.0)] * 4
    assert [ledger.spent_usd(f"t{number}") for number in range(4)] == [75.0] * 4


class FakeStore(LedgerStore):
    """Refuses to be written while `broken`; says when it was written."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path)
        self.broken = False
        self.written = threading.Event()

    def add(self, sums: Any) -> None:
        if self.broken:
            raise LedgerError("the disk is full")
        super().add(sums)
        self.written.set()


def test_what_is_posted_is_written_without_being_asked(path: Path) -> None:
    store = FakeStore(path)
    ledger = Ledger(store, clock=FakeClock())
    for _ in range(2):
        ledger.request(asked())
        assert store.written.wait(10)
        store.written.clear()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT requests FROM spending").fetchall() == [(2,)]
    connection.close()
    ledger.close()


def test_a_disk_that_fails_is_told_of_and_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "FLUSH_EVERY_S", 0.001)
    monkeypatch.setattr(ledger_module, "RETRY_AFTER_S", 0.001)
    store, faults, twice = FakeStore(path), [], threading.Event()

    def on_fault(detail: str) -> None:
        faults.append(detail)
        if len(faults) == 2:
            twice.set()

    store.broken = True
    ledger = Ledger(store, clock=FakeClock(), on_fault=on_fault)
    for _ in range(100):
        ledger.request(asked())
        ledger.generation(generated(cost_usd=0.5))
    assert twice.wait(10)
    assert faults[0] == "the disk is full"
    assert (total(ledger).requests, ledger.spent_usd("shop")) == (100, 50.0)
    store.broken = False
    assert store.written.wait(10)
    ledger.close()
    again = reopened(path)
    assert (total(again).requests, again.spent_usd("shop")) == (100, 50.0)
    again.close()


def test_a_disk_that_fails_keeps_rows_and_not_postings() -> None:
    store = FakeStore(None)
    faults: list[str] = []
    store.broken = True
    ledger = Ledger(store, clock=FakeClock(), on_fault=faults.append)
    for _ in range(50):
        ledger.request(asked())
        with pytest.raises(LedgerError):
            ledger.flush()
    ledger.close()
    assert faults[-1] == "the disk is full; 1 rows of sums are lost"


def test_closing_loses_nothing_and_may_be_done_twice(path: Path, clock: FakeClock) -> None:
    ledger = reopened(path, clock)
    for number in range(1000):
        ledger.request(asked(tenant=f"t{number % 7}", without_usd=0.001))
    ledger.close()
    ledger.close()
    again = reopened(path, clock)
    assert (total(again).requests, total(again).without_picousd) == (1000, PICO)
    again.close()


KILLED = """
import sys
from pathlib import Path
from gateway.ledger import Ledger, GenerationPosting
from gateway.ledger_store import LedgerStore
from policies.types import Usage
ledger = Ledger(LedgerStore(Path(sys.argv[1])))
posting = GenerationPosting(
    tenant="shop", route="small", model="m", api="chat", cache="miss",
    usage=Usage(prompt_tokens=3), cost_usd=0.25,
)
posted = 0
while True:
    for _ in range(100):
        ledger.generation(posting)
        posted += 1
    ledger.flush()
    print(posted, flush=True)
    for _ in range(50):
        ledger.generation(posting)
        posted += 1
"""


def test_after_a_kill_all_that_was_flushed_is_there(path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = [int(process.stdout.readline()) for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in process.stdout]
    process.stdout.close()
    assert process.wait(10) == -signal.SIGKILL
    store = LedgerStore(path)
    (row,) = store.query("model", "2000-01-01", "9999-12-31")()
    store.close()
    assert acknowledged[-1] <= row.sums.generations <= acknowledged[-1] + 150
    assert row.sums.cost_picousd == row.sums.generations * PICO // 4
    assert row.sums.prompt_tokens == row.sums.generations * 3


def test_two_ledgers_on_one_file_add_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "REFRESH_EVERY_S", 0.0)
    one, two = reopened(path), reopened(path)
    one.generation(generated(cost_usd=1.0))
    two.generation(generated(cost_usd=2.0))
    two.generation(generated(tenant="other shop", cost_usd=4.0))
    one.flush()
    two.flush()
    assert two.spent_usd("shop") == 3.0
    one.generation(generated(cost_usd=0.5))
    one.flush()
    one.generation(generated(cost_usd=0.25))
    assert (one.spent_usd("shop"), one.spent_usd("other shop")) == (3.75, 4.0)
    assert LedgerRow.total(two.by("tenant")).cost_usd == 7.5
    one.close()
    two.close()


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
