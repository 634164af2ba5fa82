"""Attempts at one answer: retries, fallbacks and hedges out of a single budget, until something is sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from backends.errors import (
    ApiMissing,
    BackendError,
    BackendResting,
    EngineUnavailable,
    InvalidCall,
    Overloaded,
    UpstreamCut,
    UpstreamInvalid,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from backends.protocols import Backend, CallReport, Chunk
from gateway.errors import RequestError
from policies.breaker import CircuitBreaker

BACKOFF_BASE_S = 0.25
BACKOFF_MAX_S = 4.0
_RETRIED_STATUSES = frozenset({408, 429, 502, 503, 504, 529})
_FAULTY_STATUSES = frozenset({408, 500, 502, 503, 504, 529})


@dataclass(frozen=True, slots=True, kw_only=True)
class Resilience:
    """Of one backend. `total_s` bounds a request with all its attempts; after `hedge_after_s` without a first
    part a second attempt runs beside the first (None: never)."""

    retries: int = 2
    total_s: float = 600.0
    hedge_after_s: float | None = None
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that has ended or been answered. `outcome`: "ok", an HTTP status, or what went wrong in a
    word. `requests`: how many went upstream, 0 when the backend was not asked."""

    backend: str
    model: str
    outcome: str
    seconds: float
    requests: int = 1

    def __str__(self) -> str:
        return f"{self.backend} {self.outcome}"


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A model that may answer. `open` makes one attempt at it; `deadline` is on the event loop's clock."""

    model: str
    backend: Backend
    open: Callable[[CallReport, float], AsyncIterator[Chunk]]


class Progress(msgspec.Struct, kw_only=True):
    """What has been tried so far, and who answers now. `on_begin` is called when an answer begins.
    `repeatable`: the request may reach an upstream twice."""

    repeatable: bool = True

    on_begin: Callable[[], None] = lambda: None
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    reports: list[CallReport] = msgspec.field(default_factory=list)
    answering: Candidate | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def requests(self) -> int:
        """How many requests went upstream, those of attempts under way included."""
        return sum(report.requests for report in self.reports)


class _Begun(msgspec.Struct, frozen=True, kw_only=True):
    candidate: Candidate
    first: Chunk
    rest: AsyncIterator[Chunk]
    attempt: Attempt
    headers: Mapping[str, str]


class Attempts:
    """Runs attempts for all requests; holds what is known of each backend."""

    def __init__(
        self,
        resilience: Mapping[str, Resilience],
        *,
        uniform: Callable[[float, float], float] = random.uniform,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._resilience = resilience
        self._uniform = uniform
        self._sleep = sleep

    async def stream(self, candidates: Sequence[Candidate], progress: Progress) -> AsyncGenerator[Chunk]:
        """The answer of the first attempt that began one. Before anything has come out, what failed may be
        tried again; afterwards never. Raises the BackendError of the last model that was asked; InvalidCall
        or RequestError when the first cannot serve the request, for it is the one that was asked for."""
        begun = await self._begin(candidates, progress)
        progress.attempts.append(begun.attempt)
        progress.answering, progress.headers = begun.candidate, begun.headers
        progress.on_begin()
        name = begun.candidate.backend.name
        breaker = self._resilience[name].breaker
        now = asyncio.get_running_loop().time
        try:
            yield begun.first
            async for chunk in begun.rest:
                yield chunk
        except BackendError as error:
            breaker.record(now(), failed=_step(error).fault)
            raise
        except BaseException:
            breaker.record(now(), failed=False)  # the client left, but the backend was answering
            raise
        else:
            breaker.record(now(), failed=False)
        finally:
            await _close(begun.rest)

    async def _begin(self, candidates: Sequence[Candidate], progress: Progress) -> _Begun:
        loop = asyncio.get_running_loop()
        first = self._resilience[candidates[0].backend.name]
        deadline = loop.time() + first.total_s
        budget = max(1 + first.retries, len(candidates))

        def room() -> bool:
            return progress.repeatable and progress.requests < budget

        hedge_after_s = first.hedge_after_s if progress.repeatable and budget > 1 else None
        at = tries = 0
        failed: BackendError | None = None
        while True:
            candidate, later = candidates[at], candidates[at + 1 :]
            try:
                if hedge_after_s is not None and at == 0 and tries == 0:
                    other = later[0] if later else candidate
                    return await self._hedged(candidate, other, deadline, hedge_after_s, progress, room)
                return await self._attempt(candidate, deadline, progress, room)
            except (BackendError, RequestError) as error:
                if not isinstance(error, InvalidCall | RequestError):
                    failed, step = error, _step(error)
                elif failed is not None:  # a fallback that cannot serve the request is passed over
                    step = _Step(elsewhere=True)
                else:
                    raise
                if not progress.repeatable and _may_have_run(failed):
                    raise failed from None
                spent = progress.requests
                delay_s = self._delay_s(step, tries)
                tries += 1
                again = step.again and spent + len(later) < budget and loop.time() + delay_s < deadline
                elsewhere = step.elsewhere and later and spent < budget and loop.time() < deadline
                if not again and not elsewhere:
                    raise failed from None
            if again:
                await self._sleep(delay_s)
            else:
                at, tries = at + 1, 0

    async def _attempt(
        self, candidate: Candidate, deadline: float, progress: Progress, room: Callable[[], bool]
    ) -> _Begun:
        """One attempt, up to its first part. Raises BackendError, or RequestError for what cannot be asked of
        this model."""
        loop = asyncio.get_running_loop()
        name = candidate.backend.name
        breaker = self._resilience[name].breaker
        began = loop.time()
        report = CallReport(room=room)
        progress.reports.append(report)

        def ended(outcome: str) -> Attempt:
            return Attempt(
                backend=name,
                model=candidate.model,
                outcome=outcome,
                seconds=loop.time() - began,
                requests=report.requests,
            )

        if (wait_s := breaker.wait_s(began)) > 0:
            progress.attempts.append(ended("resting"))
            raise BackendResting(
                f"{name} failed too often lately; it is tried again in {wait_s:.0f} s", retry_after_s=wait_s
            )
        chunks: AsyncIterator[Chunk] | None = None
        try:
            chunks = candidate.open(report, deadline)
            first = await anext(chunks)
        except StopAsyncIteration:
            breaker.record(loop.time(), failed=True)
            progress.attempts.append(ended("empty"))
            raise UpstreamInvalid(f"{name} ended its stream without a chunk") from None
        except (BackendError, RequestError) as error:
            if isinstance(error, InvalidCall | RequestError):
                breaker.abandon()
            else:
                breaker.record(loop.time(), failed=_step(error).fault)
            progress.attempts.append(ended(_outcome(error)))
            raise
        except BaseException:
            breaker.abandon()
            progress.attempts.append(ended("cancelled"))
            if chunks is not None:
                await _close(chunks)
            raise
        return _Begun(
            candidate=candidate, first=first, rest=chunks, attempt=ended("ok"), headers=report.headers
        )

    async def _hedged(
        self,
        first: Candidate,
        second: Candidate,
        deadline: float,
        after_s: float,
        progress: Progress,
        room: Callable[[], bool],
    ) -> _Begun:
        """Whoever begins an answer first; the other is cancelled. Raises the first one's error when both
        fail."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._attempt(first, deadline, progress, room))]
        try:
            await asyncio.wait(tasks, timeout=after_s)
            if not tasks[0].done() and room():
                tasks.append(loop.create_task(self._attempt(second, deadline, progress, room)))
            waiting = set(tasks)
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if task.exception() is None:
                        tasks.remove(task)
                        return task.result()
            return tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, _Begun):  # it began in the same instant as the one that was taken
                    self._resilience[ended.attempt.backend].breaker.record(loop.time(), failed=False)
                    progress.attempts.append(ended.attempt)
                    await _close(ended.rest)

    def _delay_s(self, step: _Step, tries: int) -> float:
        """Full jitter, but not before the server's own `retry-after`."""
        if step.at_once:
            return 0.0
        jitter_s = self._uniform(0.0, min(BACKOFF_MAX_S, BACKOFF_BASE_S * 2**tries))
        return max(jitter_s, step.after_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What an error before the first part means. `fault`: it counts against the backend. `again`: the same
    backend may be asked again, not before `after_s`. `elsewhere`: another model may be asked."""

    fault: bool = False
    again: bool = False
    elsewhere: bool = False
    after_s: float = 0.0
    at_once: bool = False


def _step(error: BackendError) -> _Step:
    match error:
        case ApiMissing():
            return _Step(again=True, at_once=True)
        case UpstreamUnreachable() | UpstreamCut():
            return _Step(fault=True, again=True, elsewhere=True)
        case UpstreamTimeout() | UpstreamInvalid() | EngineUnavailable():
            return _Step(fault=True, elsewhere=True)
        case Overloaded() | BackendResting():
            return _Step(elsewhere=True)
        case UpstreamRejected():
            fault = error.status in _FAULTY_STATUSES
            after_s = _retry_after_s(error.headers)
            again = error.status in _RETRIED_STATUSES and (after_s is None or after_s <= BACKOFF_MAX_S)
            if error.status == 429 and after_s is None:
                again = False  # it does not say when: asking again at once makes it worse
            elsewhere = fault or error.status == 429
            return _Step(fault=fault, again=again, elsewhere=elsewhere, after_s=after_s or 0.0)
        case _:
            return _Step()


def _may_have_run(error: BackendError) -> bool:
    """Whether the upstream may have done what it was asked although it did not answer well."""
    match error:
        case UpstreamUnreachable():
            return error.sent
        case UpstreamRejected():
            return error.status in _FAULTY_STATUSES and error.status not in (503, 529)
        case UpstreamCut() | UpstreamTimeout() | UpstreamInvalid():
            return True
        case _:
            return False


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """None when the header is not there; a date, or anything else that is no number, is far away."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        return float("inf")


def _outcome(error: BackendError | RequestError) -> str:
    match error:
        case UpstreamRejected():
            return str(error.status)
        case ApiMissing():
            return "no-such-api"
        case UpstreamUnreachable():
            return "unreachable"
        case UpstreamTimeout():
            return "timeout"
        case UpstreamCut():
            return "cut"
        case Overloaded():
            return "overloaded"
        case EngineUnavailable():
            return "unavailable"
        case _:
            return "invalid"


async def _close(chunks: AsyncIterator[Chunk]) -> None:
    if isinstance(chunks, AsyncGenerator):
        async with aclosing(chunks):
            pass
