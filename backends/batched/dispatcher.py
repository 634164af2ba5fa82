"""Which job is where: waiting, inside the engine, or over. Loop-only, no I/O but the two callbacks."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from backends.batched import frames
from backends.batched.observer import BatchObserver
from backends.errors import (
    BackendError,
    EngineUnavailable,
    InvalidCall,
    Overloaded,
    UpstreamCut,
    UpstreamUnreachable,
)
from backends.protocols import EngineInfo, Failure, Job, Load, Piece

_MAX_TRIES = 2
_RATE_WINDOW = 32


class Restarted:
    """The engine was lost and the job begins again: forget the pieces so far."""


Event = Piece | Restarted | BackendError


@dataclass(slots=True, eq=False)
class Ticket:
    """One job on its way. `events` ends with a Piece that has a finish reason or with a BackendError.

    `streamed`: its pieces go to the client as they come, so that after the first there is no beginning
    again.
    """

    job: Job
    streamed: bool
    arrived_at: float
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    tries: int = 0
    begun: bool = False


class Dispatcher:
    """First come, first served: at most `max_batch` jobs inside the engine, `max_queue` waiting."""

    def __init__(
        self,
        *,
        send: Callable[[frames.ToWorker], None],
        observer: BatchObserver,
        max_queue: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._observer = observer
        self._max_queue = max_queue
        self._clock = clock
        self._info: EngineInfo | None = None
        self._hopeless: str | None = None
        self._waiting: deque[Ticket] = deque()
        self._running: dict[int, Ticket] = {}
        self._finished_at: deque[float] = deque(maxlen=_RATE_WINDOW)
        self._kv_usage: float | None = None
        self._next_id = 1
        self._restart_reason: str | None = None

    @property
    def info(self) -> EngineInfo | None:
        """Of the engine that takes jobs now; None while there is none."""
        return self._info

    @property
    def trouble(self) -> str | None:
        """Why there is no engine; None when there is one."""
        return None if self._info else self._hopeless or self._restart_reason or "not started"

    def load(self) -> Load:
        return Load(queued=len(self._waiting), running=len(self._running), kv_usage=self._kv_usage)

    def enqueue(self, job: Job, *, streamed: bool) -> Ticket:
        """`job.id` is replaced. Raises Overloaded, or EngineUnavailable while restarts keep failing."""
        if self._hopeless is not None:
            raise EngineUnavailable(self._hopeless)
        must_wait = self._info is None or len(self._running) >= self._info.max_batch
        if must_wait and len(self._waiting) >= self._max_queue:
            raise Overloaded(
                f"the built-in engine's queue is full ({self._max_queue} waiting); try again later",
                retry_after_s=self.retry_after_s(),
            )
        ticket = Ticket(job=replace(job, id=self._next_id), streamed=streamed, arrived_at=self._clock())
        self._next_id += 1
        self._waiting.append(ticket)
        self._pump()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """The client is gone or has all it wanted."""
        if self._running.pop(ticket.job.id, None) is not None:
            self._send(frames.Cancel(ticket.job.id))
            self._pump()
        elif ticket in self._waiting:
            self._waiting.remove(ticket)

    def retry_after_s(self) -> float:
        """How long until a place is free, at the pace of the last answers; 1 s where there is no pace."""
        if len(self._finished_at) < 2:
            return 1.0
        seconds_each = (self._finished_at[-1] - self._finished_at[0]) / (len(self._finished_at) - 1)
        return min(60.0, max(1.0, seconds_each * (len(self._waiting) - self._max_queue + 1)))

    def worker_ready(self, info: EngineInfo) -> None:
        self._info = info
        self._hopeless = None
        if self._restart_reason is not None:
            self._observer.worker_restarted(self._restart_reason)
            self._restart_reason = None
        self._pump()

    def worker_said(self, frame: frames.Progress | frames.Failed | frames.Pong) -> None:
        match frame:
            case frames.Progress(piece=piece):
                self._progress(piece)
            case frames.Failed(failure=failure):
                if ticket := self._running.pop(failure.job_id, None):
                    ticket.events.put_nowait(_error_of(failure, ticket))
                    self._pump()
            case frames.Pong(load=load):
                self._kv_usage = load.kv_usage
                self._observer.load_changed(self.load())

    def worker_lost(self, reason: str) -> None:
        self._info = None
        self._kv_usage = None
        self._restart_reason = reason
        lost = list(self._running.values())
        self._running.clear()
        again: list[Ticket] = []
        for ticket in lost:
            if ticket.streamed and ticket.begun:
                ticket.events.put_nowait(
                    UpstreamCut("the built-in engine stopped in the middle of the answer")
                )
            elif ticket.tries >= _MAX_TRIES:
                message = f"the built-in engine stopped {ticket.tries} times while working on this request"
                ticket.events.put_nowait(UpstreamUnreachable(message))
            else:
                ticket.events.put_nowait(Restarted())
                again.append(ticket)
        self._waiting.extendleft(reversed(again))

    def worker_hopeless(self, reason: str) -> None:
        self._hopeless = reason
        self._refuse(list(self._waiting), reason)
        self._waiting.clear()

    def close(self) -> None:
        """Ends every job with an error."""
        self._hopeless = "the built-in engine is stopped"
        self._info = None
        self._refuse([*self._running.values(), *self._waiting], self._hopeless)
        self._running.clear()
        self._waiting.clear()

    def _refuse(self, tickets: Sequence[Ticket], reason: str) -> None:
        for ticket in tickets:
            ticket.events.put_nowait(EngineUnavailable(reason))

    def _pump(self) -> None:
        while self._info and self._waiting and len(self._running) < self._info.max_batch:
            ticket = self._waiting.popleft()
            ticket.tries += 1
            self._running[ticket.job.id] = ticket
            self._send(frames.Submit(ticket.job))
            wait_s = self._clock() - ticket.arrived_at
            self._observer.job_started(wait_s=wait_s, batch_size=len(self._running))

    def _progress(self, piece: Piece) -> None:
        ticket = self._running.get(piece.job_id)
        if ticket is None:
            return  # cancelled; the engine has not heard yet
        ticket.begun = True
        ticket.events.put_nowait(piece)
        if piece.finish_reason is not None:
            del self._running[piece.job_id]
            self._finished_at.append(self._clock())
            self._pump()


def _error_of(failure: Failure, ticket: Ticket) -> BackendError:
    if failure.kind == "invalid":
        return InvalidCall(failure.message, param=failure.param)
    if ticket.streamed and ticket.begun:
        return UpstreamCut(failure.message)
    return UpstreamUnreachable(failure.message)
