"""What the ledger keeps when threads, disks and processes do not cooperate."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gateway import ledger as ledger_module
from gateway.ledger import Ledger
from gateway.ledger_rows import PICO, LedgerRow
from gateway.ledger_store import LedgerError, LedgerStore
from tests.gateway.ledger_cases import FakeClock, asked, generated, reopened, total


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_threads_post_and_flush_at_once_and_nothing_is_lost(path: Path) -> None:
    ledger = reopened(path)

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
    ledger.close()


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


def test_closing_loses_nothing_and_may_be_done_twice(path: Path) -> None:
    ledger = reopened(path)
    for number in range(1000):
        ledger.request(asked(tenant=f"t{number % 7}", without_usd=0.001))
    ledger.close()
    ledger.close()
    again = reopened(path)
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
