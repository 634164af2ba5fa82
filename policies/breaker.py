"""When to leave a failing backend alone: a circuit breaker over a sliding window."""

from __future__ import annotations

from collections import deque
from typing import Literal

State = Literal["closed", "open", "half-open"]


class CircuitBreaker:
    """Opens when at least `failure_share` of the last attempts failed: those of the last `window_s`, and no
    fewer than `min_attempts`. After `cooldown_s` one attempt may probe: its success closes the circuit, its
    failure opens it again. A `failure_share` of 0 turns it off. Times are seconds on the caller's clock.
    """

    def __init__(
        self,
        *,
        failure_share: float = 0.5,
        min_attempts: int = 10,
        window_s: float = 30.0,
        cooldown_s: float = 10.0,
    ) -> None:
        self._failure_share = failure_share
        self._min_attempts = min_attempts
        self._window_s = window_s
        self._cooldown_s = cooldown_s
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=max(1000, min_attempts))
        self._failures = 0
        self._opened_at: float | None = None
        self._probing = False

    def state(self, now: float) -> State:
        if self._opened_at is None:
            return "closed"
        return "open" if now < self._opened_at + self._cooldown_s else "half-open"

    def wait_s(self, now: float) -> float:
        """0 when an attempt may begin now, which then must end in `record` or `abandon`; else the time until
        the next probe."""
        if self._opened_at is None:
            return 0.0
        left_s = self._opened_at + self._cooldown_s - now
        if left_s > 0:
            return left_s
        if self._probing:
            return self._cooldown_s
        self._probing = True
        return 0.0

    def record(self, now: float, *, failed: bool) -> None:
        """How an attempt ended."""
        if self._opened_at is not None:
            probed, self._probing = self._probing, False
            if failed:
                self._opened_at = now
            elif probed:
                self._opened_at = None
                self._outcomes.clear()
                self._failures = 0
            return
        if len(self._outcomes) == self._outcomes.maxlen:
            self._drop()
        self._outcomes.append((now, failed))
        self._failures += failed
        if not failed:
            return
        while self._outcomes[0][0] < now - self._window_s:
            self._drop()
        attempts = len(self._outcomes)
        if (
            self._failure_share > 0
            and attempts >= self._min_attempts
            and self._failures >= self._failure_share * attempts
        ):
            self._opened_at = now

    def abandon(self) -> None:
        """The attempt was given up for a reason that says nothing of the backend."""
        self._probing = False

    def _drop(self) -> None:
        _, failed = self._outcomes.popleft()
        self._failures -= failed
