"""Backends whose every attempt is scripted, and candidates at them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from backends.errors import BackendError, UpstreamRejected
from backends.protocols import CallReport, Chunk, Health, Load
from gateway.attempts import Attempts, Candidate, Progress, Resilience
from policies.breaker import CircuitBreaker
from policies.types import Api

FIRST, SECOND = Chunk(data=b"1", events=()), Chunk(data=b"2", events=())

Outcome = BackendError | str
"""An error before the first part, or "ok", "cut" (an error after it), "empty", "hang" (no first part)."""


def refused(status: int, retry_after: str | None = None) -> UpstreamRejected:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return UpstreamRejected(f"answered {status}", status=status, body=b"{}", headers=headers)


@dataclass(slots=True, kw_only=True)
class Scripted:
    """A backend whose attempts end as `outcomes` say; the last repeats. `broken` is the error of "cut"."""

    name: str
    outcomes: list[Outcome]
    broken: BackendError | None = None
    apis: frozenset[Api] = frozenset({"chat"})
    asked: int = 0
    cancelled: int = 0
    deadlines: list[float] = field(default_factory=list)
    hanging: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self, report: CallReport, deadline: float) -> AsyncIterator[Chunk]:
        self.deadlines.append(deadline)
        return self._chunks(report)

    async def _chunks(self, report: CallReport) -> AsyncIterator[Chunk]:
        report.requests += 1
        self.asked += 1
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, BackendError):
            raise outcome
        if outcome == "empty":
            return
        try:
            if outcome == "hang":
                self.hanging.set()
                await asyncio.Event().wait()
            report.headers = {"x-from": self.name}
            yield FIRST
            if outcome == "cut":
                assert self.broken is not None
                raise self.broken
            yield SECOND
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise

    def stream(self, call: object) -> AsyncIterator[Chunk]:
        raise AssertionError("an attempt is made through its candidate")

    async def load(self) -> Load:
        return Load(queued=0, running=0)

    async def health(self) -> Health:
        return Health(ready=True, detail="scripted")

    async def aclose(self) -> None:
        pass


class Trial:
    """Attempts at scripted backends, in the order of the candidates. `slept` are the pauses taken."""

    def __init__(
        self,
        *backends: Scripted,
        retries: int = 2,
        total_s: float = 60.0,
        hedge_after_s: float | None = None,
        breaker: Callable[[], CircuitBreaker] = CircuitBreaker,
        uniform: Callable[[float, float], float] = lambda low, high: high,
    ) -> None:
        self.backends = backends
        self.slept: list[float] = []
        self.breakers = {backend.name: breaker() for backend in backends}
        self.progress = Progress()
        resilience = {
            name: Resilience(retries=retries, total_s=total_s, hedge_after_s=hedge_after_s, breaker=one)
            for name, one in self.breakers.items()
        }
        self.attempts = Attempts(resilience, uniform=uniform, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    @property
    def candidates(self) -> Sequence[Candidate]:
        return [
            Candidate(model=f"m-{backend.name}", backend=backend, open=backend.open)
            for backend in self.backends
        ]

    @property
    def outcomes(self) -> list[str]:
        return [str(attempt) for attempt in self.progress.attempts]

    async def run(self, *, repeatable: bool = True) -> bytes:
        """One request, with a progress of its own; the bytes that came. Raises what ended it."""
        self.progress = Progress(repeatable=repeatable)
        came = b""
        async for chunk in self.attempts.stream(self.candidates, self.progress):
            came += chunk.data
        return came
