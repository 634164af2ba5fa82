"""The ledger's file: who may read it, who may write it, and which files are refused."""

from __future__ import annotations

import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from gateway.ledger_rows import LedgerKey, LedgerRow, Sums
from gateway.ledger_store import MAX_SUM, SCHEMA_VERSION, LedgerError, LedgerStore

KEY = LedgerKey("2027-01-15", "shop", "web", "small", "m", "chat", "miss")
EVER = ("2000-01-01", "9999-12-31")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "ledger.db"


def rows(store: LedgerStore) -> list[LedgerRow]:
    return store.query("tenant", *EVER)()


def test_the_file_and_its_companions_are_its_owners_only(path: Path) -> None:
    store = LedgerStore(path)
    store.add([(KEY, Sums(requests=1))])
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    store.close()
    path.chmod(0o644)
    LedgerStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_sums_are_added_to_the_rows_there_are(path: Path) -> None:
    for _ in range(3):
        store = LedgerStore(path)
        store.add([(KEY, Sums(requests=2, cost_picousd=5)), (KEY._replace(model="n"), Sums(requests=1))])
        store.close()
    store = LedgerStore(path)
    assert rows(store) == [LedgerRow(name="shop", hits=0, sums=Sums(requests=9, cost_picousd=15))]
    store.close()


def test_sums_beyond_64_bits_stay_at_the_largest_number_and_totals_are_right(path: Path) -> None:
    store = LedgerStore(path)
    for _ in range(2):
        store.add([(KEY._replace(model=model), Sums(cost_picousd=MAX_SUM - 1)) for model in "abc"])
        store.add([(KEY._replace(model="d"), Sums(cost_picousd=MAX_SUM * 5))])
    (row,) = rows(store)
    assert row.sums.cost_picousd == 4 * MAX_SUM
    assert store.spent_picousd("2027-01") == {"web": 4 * MAX_SUM}
    store.close()


def test_a_query_sees_the_rows_as_they_were_when_it_was_made(path: Path) -> None:
    store = LedgerStore(path)
    store.add([(KEY, Sums(requests=1))])
    query = store.query("tenant", *EVER)
    store.add([(KEY, Sums(requests=1))])
    assert query()[0].sums.requests == 1
    assert rows(store)[0].sums.requests == 2
    store.close()


def test_spending_is_by_month_and_by_key() -> None:
    store = LedgerStore(None)
    for day, key in (("2026-12-31", "a"), ("2027-01-01", "a"), ("2027-01-31", "b"), ("2027-02-01", "b")):
        store.add([(KEY._replace(day=day, key=key), Sums(cost_picousd=7))])
    assert store.spent_picousd("2027-01") == {"a": 7, "b": 7}
    assert store.spent_picousd("2027-01", "b") == {"b": 7}
    assert store.spent_picousd("2027-03", "b") == {}
    store.close()


def test_several_processes_may_write_and_each_knows_when_another_did(path: Path) -> None:
    one, two = LedgerStore(path), LedgerStore(path)
    assert not one.changed_elsewhere()
    one.add([(KEY, Sums(requests=1))])
    assert not one.changed_elsewhere()
    two.add([(KEY, Sums(requests=1))])
    assert one.changed_elsewhere()
    assert not one.changed_elsewhere()
    assert rows(one)[0].sums.requests == 2
    one.close()
    two.close()


def test_several_may_make_the_file_at_once(path: Path) -> None:
    start, failures = threading.Barrier(8), []

    def work() -> None:
        start.wait()
        try:
            store = LedgerStore(path)
            store.add([(KEY, Sums(requests=1))])
            store.close()
        except LedgerError as error:
            failures.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    store = LedgerStore(path)
    assert rows(store)[0].sums.requests == 8
    store.close()


def test_a_transaction_that_fails_leaves_nothing_behind(path: Path) -> None:
    store = LedgerStore(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TRIGGER no BEFORE INSERT ON spending BEGIN SELECT raise(FAIL, 'no'); END")
        connection.commit()
        with pytest.raises(LedgerError, match=r"cannot use the ledger file .*: no"):
            store.add([(KEY, Sums(requests=1))])
        connection.execute("DROP TRIGGER no")
        connection.commit()
    assert rows(store) == []
    store.add([(KEY, Sums(requests=1))])
    assert rows(store)[0].sums.requests == 1
    store.close()


def test_a_newer_file_is_refused_and_left_as_it_was(path: Path) -> None:
    LedgerStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"schema version 2.* upgrade lockgate, or set ledger.path"):
        LedgerStore(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("statement", ["CREATE TABLE notes (text)", "PRAGMA user_version = 1"])
def test_another_programs_database_is_refused_and_left_as_it_was(path: Path, statement: str) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"another program's database: set ledger.path"):
        LedgerStore(path)
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("content", [b"notes", b"notes" * 1000, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_what_is_no_database_is_refused_and_left_as_it_was(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"damaged or not a database .*move it away"):
        LedgerStore(path)
    assert path.read_bytes() == content


def test_a_path_that_cannot_be_a_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/proc/nowhere/ledger.db")):
        with pytest.raises(LedgerError, match=f"cannot open the ledger file {path}"):
            LedgerStore(path)
