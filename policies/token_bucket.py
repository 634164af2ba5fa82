"""A token bucket: how much may be taken now, at a rate a minute. Exact: integers only, clock passed in.

https://en.wikipedia.org/wiki/Token_bucket
"""

from __future__ import annotations

_MINUTE_NS = 60_000_000_000


class TokenBucket:
    """Holds up to a minute's worth, `per_minute` tokens, and is full at first. Refills evenly.

    Counts in parts of a token (a rate of one a minute brings one part each nanosecond), so that no rounding
    adds up. What was reserved and not used comes back when that is known; what was used beyond the
    reservation is owed, and the level goes below zero.
    """

    __slots__ = ("_at_ns", "_level", "per_minute")

    def __init__(self, *, per_minute: int, now_ns: int) -> None:
        self.per_minute = per_minute
        self._level = per_minute * _MINUTE_NS
        self._at_ns = now_ns

    def remaining(self, now_ns: int) -> int:
        """Whole tokens that may be taken now; never below zero."""
        self._refill(now_ns)
        return max(0, self._level // _MINUTE_NS)

    def wait_ns(self, tokens: int, now_ns: int) -> int | None:
        """How long until `tokens` are there: 0 when they are, None when the bucket never holds as many."""
        if tokens > self.per_minute:
            return None
        self._refill(now_ns)
        return self._until(tokens * _MINUTE_NS)

    def full_in_ns(self, now_ns: int) -> int:
        """How long until the bucket is full when nothing more is taken."""
        self._refill(now_ns)
        return self._until(self.per_minute * _MINUTE_NS)

    def take(self, tokens: int, now_ns: int) -> None:
        """Takes them whether they are there or not: ask `wait_ns` before."""
        self._refill(now_ns)
        self._level -= tokens * _MINUTE_NS

    def settle(self, reserved: int, used: int, now_ns: int) -> None:
        """Corrects a `take(reserved)` to what was used in the end."""
        self._refill(now_ns)
        level = self._level + (reserved - used) * _MINUTE_NS
        self._level = min(level, self.per_minute * _MINUTE_NS)

    def _refill(self, now_ns: int) -> None:
        passed_ns = now_ns - self._at_ns
        if passed_ns > 0:
            self._level = min(self._level + passed_ns * self.per_minute, self.per_minute * _MINUTE_NS)
            self._at_ns = now_ns

    def _until(self, level: int) -> int:
        missing = level - self._level
        return -(-missing // self.per_minute) if missing > 0 else 0
