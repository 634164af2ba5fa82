"""A budget in USD for a calendar month, in UTC. Pure: the clock is passed in."""

from __future__ import annotations

from datetime import UTC, datetime


def month_of(now_s: float) -> str:
    """The month in UTC at `now_s` (seconds since the epoch), as "2026-03"."""
    return f"{datetime.fromtimestamp(now_s, UTC):%Y-%m}"


def month_end_s(now_s: float) -> float:
    """When the month at `now_s` ends, in seconds since the epoch."""
    now = datetime.fromtimestamp(now_s, UTC)
    year, month = divmod(now.year * 12 + now.month, 12)
    return datetime(year, month + 1, 1, tzinfo=UTC).timestamp()


class MonthlyBudget:
    """What is left of `limit_usd` in the current month. Starts again from nothing with the next one."""

    __slots__ = ("_ends_s", "_spent_usd", "limit_usd")

    def __init__(self, *, limit_usd: float, spent_usd: float, now_s: float) -> None:
        self.limit_usd = limit_usd
        self._spent_usd = spent_usd
        self._ends_s = month_end_s(now_s)

    def remaining_usd(self, now_s: float) -> float:
        """Never below zero; zero means that nothing more may be spent."""
        self._turn(now_s)
        return max(0.0, self.limit_usd - self._spent_usd)

    def ends_in_s(self, now_s: float) -> float:
        """Seconds until the month ends."""
        self._turn(now_s)
        return self._ends_s - now_s

    def spend(self, usd: float, now_s: float) -> None:
        """Counts for the month at `now_s`, whenever the request began."""
        self._turn(now_s)
        self._spent_usd += usd

    def _turn(self, now_s: float) -> None:
        if now_s >= self._ends_s:
            self._spent_usd = 0.0
            self._ends_s = month_end_s(now_s)
