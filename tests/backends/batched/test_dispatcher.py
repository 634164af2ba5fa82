"""Queueing without a worker: what is sent, in which order, and what the estimates say."""

from __future__ import annotations

import pytest

from backends.batched import frames
from backends.batched.dispatcher import Dispatcher, Ticket
from backends.batched.observer import NoObserver
from backends.errors import EngineUnavailable, Overloaded
from backends.protocols import EngineInfo, Failure, Job, Load, Piece, Sampling

INFO = EngineInfo(engine="fake", model="fake", context_tokens=64, max_batch=2)
JOB = Job(id=0, messages=[{"role": "user", "content": "hi"}], sampling=Sampling())


class Bench:
    def __init__(self, max_queue: int = 8) -> None:
        self.now = 0.0
        self.sent: list[frames.ToWorker] = []
        self.dispatcher = Dispatcher(
            send=self.sent.append, observer=NoObserver(), max_queue=max_queue, clock=lambda: self.now
        )

    def enqueue(self, streamed: bool = False) -> Ticket:
        return self.dispatcher.enqueue(JOB, streamed=streamed)

    def finish(self, ticket: Ticket) -> None:
        piece = Piece(job_id=ticket.job.id, text="x", finish_reason="stop")
        self.dispatcher.worker_said(frames.Progress(piece))

    def started(self) -> list[int]:
        return [frame.job.id for frame in self.sent if isinstance(frame, frames.Submit)]


def test_nothing_is_sent_before_the_worker_is_ready() -> None:
    bench = Bench()
    tickets = [bench.enqueue() for _ in range(3)]
    assert bench.sent == []
    bench.dispatcher.worker_ready(INFO)
    assert bench.started() == [ticket.job.id for ticket in tickets[:2]]
    assert bench.dispatcher.load() == Load(queued=1, running=2)


def test_first_come_first_served() -> None:
    bench = Bench()
    bench.dispatcher.worker_ready(INFO)
    tickets = [bench.enqueue() for _ in range(4)]
    bench.finish(tickets[1])
    bench.finish(tickets[0])
    assert bench.started() == [ticket.job.id for ticket in tickets]


def test_a_failed_job_makes_room() -> None:
    bench = Bench()
    bench.dispatcher.worker_ready(INFO)
    tickets = [bench.enqueue() for _ in range(3)]
    failure = Failure(job_id=tickets[0].job.id, kind="engine", message="broken")
    bench.dispatcher.worker_said(frames.Failed(failure))
    assert bench.started()[-1] == tickets[2].job.id


def test_what_the_engine_says_of_a_cancelled_job_is_ignored() -> None:
    bench = Bench()
    bench.dispatcher.worker_ready(INFO)
    ticket = bench.enqueue()
    bench.dispatcher.leave(ticket)
    assert bench.sent[-1] == frames.Cancel(ticket.job.id)
    bench.finish(ticket)
    assert ticket.events.empty()


def test_leaving_after_the_end_sends_nothing() -> None:
    bench = Bench()
    bench.dispatcher.worker_ready(INFO)
    ticket = bench.enqueue()
    bench.finish(ticket)
    sent = len(bench.sent)
    bench.dispatcher.leave(ticket)
    assert len(bench.sent) == sent


def test_lost_jobs_go_back_to_the_head_of_the_queue_in_their_order() -> None:
    bench = Bench()
    bench.dispatcher.worker_ready(INFO)
    tickets = [bench.enqueue() for _ in range(3)]
    bench.dispatcher.worker_lost("gone")
    assert bench.dispatcher.load() == Load(queued=3, running=0)
    bench.sent.clear()
    bench.dispatcher.worker_ready(INFO)
    assert bench.started() == [ticket.job.id for ticket in tickets[:2]]


def test_retry_after_follows_the_measured_pace() -> None:
    bench = Bench(max_queue=1)
    bench.dispatcher.worker_ready(INFO)
    for _ in range(5):
        ticket = bench.enqueue()
        bench.now += 4.0
        bench.finish(ticket)
    for _ in range(3):
        bench.enqueue()
    with pytest.raises(Overloaded) as caught:
        bench.enqueue()
    assert caught.value.retry_after_s == pytest.approx(4.0)


def test_retry_after_without_a_pace_is_a_second() -> None:
    bench = Bench(max_queue=0)
    with pytest.raises(Overloaded) as caught:
        bench.enqueue()
    assert caught.value.retry_after_s == 1.0


def test_no_queue_still_fills_the_batch() -> None:
    bench = Bench(max_queue=0)
    bench.dispatcher.worker_ready(INFO)
    assert [bench.enqueue().job.id for _ in range(2)] == [1, 2]
    with pytest.raises(Overloaded):
        bench.enqueue()


def test_hopeless_until_ready() -> None:
    bench = Bench()
    bench.dispatcher.worker_hopeless("no model")
    with pytest.raises(EngineUnavailable, match="no model"):
        bench.enqueue()
    bench.dispatcher.worker_ready(INFO)
    assert bench.enqueue().tries == 1
