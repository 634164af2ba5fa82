"""The ledger: what requests cost, and what they would have cost without Lockgate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec

from gateway.ledger_rows import MICRO, PICO, Dimension, LedgerKey, LedgerRow, RowLimit, Sums
from gateway.ledger_store import LedgerError, LedgerStore
from gateway.settings import Settings
from policies.types import Usage

FLUSH_EVERY_S = 0.25
RETRY_AFTER_S = 1.0
REFRESH_EVERY_S = 2.0
SWEEP_CHECK_S = 600.0
MAX_NUMBER = 10**12
MAX_USD = 10**6
CLIENT_LEFT = 499
_FIRST_DAY, _LAST_DAY = "0001-01-01", "9999-12-31"


class RequestPosting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A client's request that has ended, however it did.

    `without_usd`: what it would have cost without Lockgate, that is at the large model of its route and with
    no cache. `saved_tokens`: of the answer, where it was served instead of generated. `broken`: the answer
    ended in an error after its status was sent. Times are seconds of one core. `at` is Unix time, None for
    now.
    """

    tenant: str
    key: str = ""
    route: str
    model: str
    api: str
    cache: str
    status: int
    broken: bool = False
    without_usd: float = 0.0
    saved_tokens: int = 0
    embed_s: float = 0.0
    verify_s: float = 0.0
    at: float | None = None


class GenerationPosting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An upstream call that has ended, however it did; `attempts` counts its retries too, and `elsewhere` how
    many more were made at other models before, by model. Several requests may have shared it, or none may
    have waited for its end."""

    tenant: str
    key: str = ""
    route: str
    model: str
    api: str
    cache: str
    usage: Usage
    cost_usd: float
    attempts: int = 1
    elsewhere: tuple[tuple[str, int], ...] = ()
    at: float | None = None


class Ledger:
    """Sums in memory that a thread of its own writes to the file several times a second.

    Posting takes microseconds, does no I/O, and never raises for the file's sake. What was posted in the last
    half second is lost when the process is killed, nothing when it is closed. While the file cannot be
    written, the sums stay in memory and `on_fault` is told, on the ledger's thread, at each try. Any thread
    may call any method; queries count what is not yet written.
    """

    def __init__(
        self,
        store: LedgerStore,
        *,
        usd_per_cpu_hour: float = 0.0,
        retention_days: int = 400,
        on_fault: Callable[[str], None] = lambda detail: None,
        clock: Callable[[], float] = time.time,
        limit: RowLimit | None = None,
    ) -> None:
        """Raises LedgerError."""
        self._store = store
        self._picousd_per_us = usd_per_cpu_hour / 3600 / MICRO * PICO
        self._retention_days = retention_days
        self._on_fault = on_fault
        self._clock = clock
        self._limit = limit or RowLimit()
        # Held for the file, and longer than `_posting`, which is only ever held for microseconds.
        self._file = threading.Lock()
        self._posting = threading.Lock()
        self._posted = threading.Condition(self._posting)
        self._pending: dict[LedgerKey, Sums] = {}
        self._rows: dict[tuple[str, ...], tuple[LedgerKey, Sums]] = {}  # of `_pending`, by what was posted
        self._closing = threading.Event()
        self._closed = False
        self._today = (-1, "")
        today = self._day_of(clock())
        self._swept = ""
        self._limit.know(store.keys(today))
        self._month = today[:7]
        self._spent = store.spent_picousd(self._month)
        self._stale = False
        self._refreshed = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="lockgate-ledger", daemon=True)
        self._thread.start()

    def request(self, posting: RequestPosting) -> None:
        embed_us = _whole(posting.embed_s * MICRO)
        verify_us = _whole(posting.verify_s * MICRO)
        with self._posting:
            _, sums = self._row(posting, posting.model)
            sums.requests += 1
            sums.cancelled += (left := posting.status == CLIENT_LEFT)
            sums.errors += not left and (posting.status >= 400 or posting.broken)
            sums.saved_tokens += _whole(posting.saved_tokens)
            sums.embed_us += embed_us
            sums.verify_us += verify_us
            sums.without_picousd += _picousd(posting.without_usd)
            sums.overhead_picousd += round((embed_us + verify_us) * self._picousd_per_us)

    def generation(self, posting: GenerationPosting) -> None:
        usage = posting.usage
        cost_picousd = _picousd(posting.cost_usd)
        with self._posting:
            for model, attempts in posting.elsewhere:
                self._row(posting, model)[1].upstream_calls += _whole(attempts)
            key, sums = self._row(posting, posting.model)
            sums.generations += 1
            sums.upstream_calls += _whole(posting.attempts)
            sums.estimated += usage.estimated
            sums.prompt_tokens += _whole(usage.prompt_tokens)
            sums.completion_tokens += _whole(usage.completion_tokens)
            sums.cached_tokens += _whole(usage.cached_tokens)
            sums.cache_write_tokens += _whole(usage.cache_write_tokens)
            sums.cost_picousd += cost_picousd
            self._spend(key, cost_picousd)

    def by(
        self, dimension: Dimension, since: date | None = None, until: date | None = None
    ) -> list[LedgerRow]:
        """One row for each value of the dimension: days in order, all else dearest first. `since` and `until`
        are UTC days, both included. Reads the file, so call it on another thread. Raises LedgerError."""
        first, last = since.isoformat() if since else _FIRST_DAY, until.isoformat() if until else _LAST_DAY
        with self._file:
            query = self._store.query(dimension, first, last)
            with self._posting:
                pending = [(key, sums.values()) for key, sums in self._pending.items()]
        rows = {row.name: row for row in query()}
        for key, values in pending:
            if first <= key.day <= last:
                added = LedgerRow.of(dimension, key, Sums(*values))
                row = rows.get(added.name)
                rows[added.name] = added if row is None else LedgerRow.total((row, added), row.name)
        if dimension == "day":
            return sorted(rows.values(), key=lambda row: row.name)
        return sorted(rows.values(), key=lambda row: (-row.without_usd, -row.cost_usd, row.name))

    def spent_usd(self, key: str, month: str | None = None) -> float:
        """What a key's upstream calls of a month (YYYY-MM, UTC; None for this one) have cost so far.

        This month's comes from memory, for use before every request; another month's from the file, and may
        raise LedgerError. What another process on the same file spends is in it a few seconds after this
        one's next posting.
        """
        with self._posting:
            month = month or self._day_of(self._clock())[:7]
            if month == self._month:
                return self._spent.get(key, 0) / PICO
        with self._file:
            spent = self._store.spent_picousd(month, key).get(key, 0)
            with self._posting:
                return (spent + self._pending_spending(month).get(key, 0)) / PICO

    def flush(self) -> None:
        """Writes what was posted; once it returns, that survives a kill. Raises LedgerError, with the sums
        kept for the next try."""
        with self._file:
            if self._closed:
                return
            with self._posting:
                taken, self._pending, self._rows = self._pending, {}, {}
            try:
                if taken:
                    self._store.add(taken.items())
            except BaseException:
                with self._posting:  # into the larger one, so that postings wait the less
                    for key, sums in self._pending.items():
                        taken.setdefault(key, Sums()).add(sums)
                    self._pending, self._rows = taken, {}
                raise
            self._refresh()

    def close(self) -> None:
        """Writes what waits and releases the file. Call it last: what is posted later is lost. Blocks, at
        worst for some seconds. Closing again does nothing."""
        with self._posting:
            self._closing.set()
            self._posted.notify()
        self._thread.join()
        try:
            self.flush()
        except LedgerError as error:
            self._on_fault(f"{error}; {len(self._pending)} rows of sums are lost")
        with self._file:
            if not self._closed:
                self._closed = True
                self._store.close()

    def _row(self, posting: RequestPosting | GenerationPosting, model: str) -> tuple[LedgerKey, Sums]:
        names = (posting.tenant, posting.key, posting.route, model, posting.api, posting.cache)
        day = self._day_of(self._clock() if posting.at is None else posting.at)
        row = self._rows.get(names)
        if row is not None and row[0].day == day:
            return row
        key = self._limit.fold(LedgerKey(day, *names))
        sums = self._pending.get(key)
        if sums is None:
            if not self._pending:
                self._posted.notify()
            sums = self._pending[key] = Sums()
        row = self._rows[names] = key, sums
        return row

    def _day_of(self, at: float) -> str:
        number = int(at // 86_400)
        if self._today[0] != number:
            self._today = number, datetime.fromtimestamp(number * 86_400, UTC).date().isoformat()
        return self._today[1]

    def _spend(self, key: LedgerKey, picousd: int) -> None:
        month = key.day[:7]
        if month > self._month:  # what other processes have written of it already, the next flush reads
            self._month, self._spent, self._stale = month, {}, True
        if month == self._month:
            self._spent[key.key] = self._spent.get(key.key, 0) + picousd

    def _pending_spending(self, month: str) -> dict[str, int]:
        spent: dict[str, int] = {}
        for key, sums in self._pending.items():
            if key.day.startswith(month):
                spent[key.key] = spent.get(key.key, 0) + sums.cost_picousd
        return spent

    def _refresh(self) -> None:
        """Takes over what other processes have spent."""
        self._stale = self._store.changed_elsewhere() or self._stale
        if not self._stale or time.monotonic() - self._refreshed < REFRESH_EVERY_S:
            return
        month = self._month
        stored = self._store.spent_picousd(month)
        with self._posting:
            if month == self._month:
                for key, picousd in self._pending_spending(month).items():
                    stored[key] = stored.get(key, 0) + picousd
                self._spent, self._stale = stored, False
        self._refreshed = time.monotonic()

    def _work(self) -> None:
        while not self._closing.is_set():
            with self._posting:
                self._posted.wait_for(lambda: self._pending or self._closing.is_set(), SWEEP_CHECK_S)
            try:
                self._closing.wait(FLUSH_EVERY_S)  # others come along: one transaction for all of them
                self.flush()
                self._sweep()
            except LedgerError as error:
                self._on_fault(str(error))
                self._closing.wait(RETRY_AFTER_S)

    def _sweep(self) -> None:
        """Once a day, drops the rows that are too old. A month that a budget may still ask for stays."""
        today = datetime.fromtimestamp(self._clock(), UTC).date()
        if self._swept != today.isoformat():
            oldest = min(today - timedelta(days=self._retention_days), today.replace(day=1))
            with self._file:
                self._store.drop_before(oldest.isoformat())
            self._swept = today.isoformat()


def open_ledger(settings: Settings, on_fault: Callable[[str], None] = lambda detail: None) -> Ledger:
    """The ledger that the settings describe; with `ledger.enabled = false` in memory, from now on. Raises
    LedgerError. Opening reads the file: call it on another thread."""
    ledger = settings.ledger
    return Ledger(
        LedgerStore(Path(ledger.path) if ledger.enabled else None),
        usd_per_cpu_hour=settings.embeddings.usd_per_cpu_hour,
        retention_days=ledger.retention_days,
        on_fault=on_fault,
    )


def _whole(number: float) -> int:
    """What an upstream reports is anybody's guess: nothing below 0, nothing that is not a number."""
    return round(min(number, MAX_NUMBER)) if number > 0 else 0


def _picousd(usd: float) -> int:
    return round(min(usd, MAX_USD) * PICO) if usd > 0 else 0
