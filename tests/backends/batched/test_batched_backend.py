"""The built-in backend around a worker process with a scripted engine: shapes, queue, deaths."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson
import pytest

from backends.batched.backend import BatchedBackend
from backends.batched.config import BatchedConfig, Supervision
from backends.errors import (
    BackendError,
    EngineUnavailable,
    InvalidCall,
    Overloaded,
    UpstreamCut,
    UpstreamUnreachable,
)
from backends.protocols import Call, Load

FAKE_WORKER = Path(__file__).parent / "fake_worker.py"
QUICK = Supervision(heartbeat_s=0.05, hang_s=30.0, backoff_s=0.01, backoff_max_s=0.02, patience=2)
PATIENCE_S = 30.0


class FakeObserver:
    def __init__(self) -> None:
        self.batch_sizes: list[int] = []
        self.waits_s: list[float] = []
        self.loads: list[Load] = []
        self.restarts: list[str] = []
        self._changed = asyncio.Event()

    def job_started(self, *, wait_s: float, batch_size: int) -> None:
        self.waits_s.append(wait_s)
        self.batch_sizes.append(batch_size)
        self._changed.set()

    def load_changed(self, load: Load) -> None:
        self.loads.append(load)
        self._changed.set()

    def worker_restarted(self, reason: str) -> None:
        self.restarts.append(reason)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns when an event has made `condition` true."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Subject:
    """A started backend, its observer, and calls on it."""

    def __init__(self, backend: BatchedBackend, observer: FakeObserver) -> None:
        self.backend = backend
        self.observer = observer

    async def ask(self, content: str, **fields: Any) -> list[dict[str, Any]]:
        return [dict(chunk.body) async for chunk in self.backend.stream(call(content, **fields))]

    def asking(self, content: str, **fields: Any) -> asyncio.Task[list[dict[str, Any]]]:
        return asyncio.ensure_future(self.ask(content, **fields))

    async def running(self, count: int) -> None:
        """Returns once `count` jobs have been handed to the engine since the beginning."""
        await self.observer.until(lambda: len(self.observer.batch_sizes) >= count)

    def kill(self, number: int = signal.SIGKILL) -> None:
        pid = self.backend.worker_pid
        assert pid is not None
        os.kill(pid, number)


def call(content: str, **fields: Any) -> Call:
    return Call(body={"model": "named", "messages": [{"role": "user", "content": content}], **fields})


def make(config: BatchedConfig, supervision: Supervision = QUICK) -> Subject:
    observer = FakeObserver()
    command = (sys.executable, str(FAKE_WORKER))
    backend = BatchedBackend(
        "builtin", config, observer=observer, supervision=supervision, worker_command=command
    )
    return Subject(backend, observer)


@pytest.fixture
async def subject() -> AsyncIterator[Subject]:
    made = make(BatchedConfig(model="fake", max_batch=2, max_queue=2))
    await made.backend.start()
    yield made
    await made.backend.aclose()


async def test_whole_answer(subject: Subject) -> None:
    (body,) = await subject.ask("words 2 0")
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == "named"
    assert abs(body["created"] - time.time()) < 60
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "w0 w1 ", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert body["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_streamed_answer(subject: Subject) -> None:
    bodies = await subject.ask("words 2 0", stream=True)
    assert {body["object"] for body in bodies} == {"chat.completion.chunk"}
    assert len({body["id"] for body in bodies}) == 1
    assert [body["choices"][0]["delta"] for body in bodies] == [
        {"role": "assistant", "content": ""},
        {"content": "w0 "},
        {"content": "w1 "},
        {},
    ]
    assert [body["choices"][0]["finish_reason"] for body in bodies] == [None, None, None, "stop"]


async def test_usage_chunk_only_when_asked_for(subject: Subject) -> None:
    *_, last = await subject.ask("words 2 0", stream=True, stream_options={"include_usage": True})
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 5


async def test_data_is_the_body_as_json(subject: Subject) -> None:
    async for chunk in subject.backend.stream(call("words 1 0", stream=True)):
        assert orjson.loads(chunk.data) == chunk.body


async def test_a_refused_field_never_reaches_the_engine(subject: Subject) -> None:
    with pytest.raises(InvalidCall) as caught:
        await subject.ask("words 1 0", temperature=-1)
    assert caught.value.param == "temperature"
    assert subject.observer.batch_sizes == []


async def test_a_prompt_that_cannot_fit_is_refused_unread(subject: Subject) -> None:
    with pytest.raises(InvalidCall, match="maximum context length is 2048 tokens"):
        await subject.ask("x" * 3_000_000)
    assert subject.observer.batch_sizes == []


async def test_the_engine_refuses(subject: Subject) -> None:
    with pytest.raises(InvalidCall, match="does not fit") as caught:
        await subject.ask("refuse")
    assert caught.value.param == "messages"


async def test_the_engine_breaks(subject: Subject) -> None:
    with pytest.raises(UpstreamUnreachable, match="out of order"):
        await subject.ask("break")


async def test_jobs_beyond_the_batch_wait_their_turn(subject: Subject) -> None:
    answers = await asyncio.gather(*(subject.ask("words 3 0.01") for _ in range(4)))
    assert [body["usage"]["completion_tokens"] for (body,) in answers] == [3, 3, 3, 3]
    assert max(subject.observer.batch_sizes) == 2
    assert subject.observer.waits_s[0] < subject.observer.waits_s[3]


async def test_a_full_queue_is_overloaded_and_recovers(subject: Subject) -> None:
    tasks = [subject.asking("words 3 0.05") for _ in range(4)]
    await subject.running(2)
    load = await subject.backend.load()
    assert (load.queued, load.running) == (2, 2)
    with pytest.raises(Overloaded) as caught:
        await subject.ask("words 1 0")
    assert caught.value.retry_after_s >= 1
    await asyncio.gather(*tasks)
    assert await subject.ask("words 1 0")


async def test_leaving_a_stream_frees_its_place(subject: Subject) -> None:
    async with aclosing(subject.backend.stream(call("words 1000 0.02", stream=True))) as chunks:
        async for _ in chunks:
            break
    assert (await subject.backend.load()).running == 0
    seen = len(subject.observer.loads)
    await subject.observer.until(lambda: any(load.kv_usage == 0 for load in subject.observer.loads[seen:]))


async def test_a_cancelled_caller_leaves_queue_and_engine(subject: Subject) -> None:
    tasks = [subject.asking("wait") for _ in range(3)]
    await subject.running(2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    load = await subject.backend.load()
    assert (load.queued, load.running) == (0, 0)
    assert await subject.ask("words 1 0")


async def test_killed_while_idle(subject: Subject) -> None:
    before = subject.backend.worker_pid
    subject.kill()
    await subject.observer.until(lambda: bool(subject.observer.restarts))
    assert "signal 9" in subject.observer.restarts[0]
    assert subject.backend.worker_pid != before
    assert await subject.ask("words 1 0")
    assert (await subject.backend.health()).ready


async def test_killed_with_jobs_queued(subject: Subject) -> None:
    """Two jobs hang in the engine; the one behind them is answered by the next worker, once they left."""
    hanging = [subject.asking("wait") for _ in range(2)]
    await subject.running(2)
    queued = subject.asking("words 2 0")
    subject.kill()
    await subject.running(4)
    for task in hanging:
        task.cancel()
    (body,) = await queued
    assert body["choices"][0]["message"]["content"] == "w0 w1 "
    await asyncio.gather(*hanging, return_exceptions=True)


@pytest.mark.parametrize("stream", [False, True])
async def test_killed_before_the_first_piece_begins_again(
    subject: Subject, tmp_path: Path, stream: bool
) -> None:
    bodies = await subject.ask(f"die once {tmp_path / 'died'}", stream=stream)
    assert len(subject.observer.restarts) == 1
    if not stream:
        assert bodies[0]["choices"][0]["message"]["content"] == "w0 w1 "


async def test_killed_in_the_middle_of_a_stream_is_cut(subject: Subject) -> None:
    chunks = subject.backend.stream(call("speak then die", stream=True))
    deltas = [(await anext(chunks)).body["choices"][0]["delta"] for _ in range(2)]
    assert deltas[1] == {"content": "half "}
    with pytest.raises(UpstreamCut):
        await anext(chunks)
    assert await subject.ask("words 1 0")


async def test_killed_in_the_middle_of_a_whole_answer_begins_again_once(subject: Subject) -> None:
    """Nothing of it has gone out, so it may; and what the first try said is forgotten."""
    with pytest.raises(UpstreamUnreachable, match="stopped 2 times"):
        await subject.ask("speak then die")
    await subject.observer.until(lambda: len(subject.observer.restarts) == 2)
    (body,) = await subject.ask("words 1 0")
    assert body["choices"][0]["message"]["content"] == "w0 "


async def test_what_a_dead_worker_said_is_forgotten(subject: Subject) -> None:
    """Killed by hand after some pieces; the second worker says them all again."""
    task = subject.asking("words 8 0.05")
    await subject.running(1)
    await asyncio.sleep(0.2)
    subject.kill()
    (body,) = await task
    assert body["choices"][0]["message"]["content"] == "".join(f"w{at} " for at in range(8))


async def test_a_stopped_worker_is_replaced() -> None:
    supervision = Supervision(heartbeat_s=0.05, hang_s=1.0, backoff_s=0.01)
    made = make(BatchedConfig(model="fake"), supervision)
    await made.backend.start()
    try:
        before = made.backend.worker_pid
        made.kill(signal.SIGSTOP)
        assert await made.ask("words 1 0")
        assert "no sign of life" in made.observer.restarts[0]
        assert before is not None
        assert _gone(before)
    finally:
        await made.backend.aclose()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("missing", "pip install it"),
        ("dies", "exit code 7: the last words"),
        ("never", "did not start within"),
    ],
)
async def test_an_engine_that_cannot_start(model: str, words: str) -> None:
    made = make(BatchedConfig(model=model), Supervision(start_timeout_s=2.0 if model == "never" else 60.0))
    with pytest.raises(EngineUnavailable, match=words):
        await made.backend.start()
    assert made.backend.worker_pid is None
    assert not (await made.backend.health()).ready
    await made.backend.aclose()


async def test_an_engine_that_does_not_come_back_refuses_what_waits(tmp_path: Path) -> None:
    made = make(BatchedConfig(model=f"missing after {tmp_path / 'once'}", max_batch=1))
    await made.backend.start()
    try:
        waiting = [made.asking("wait") for _ in range(2)]
        await made.running(1)
        made.kill()
        for task in waiting:
            with pytest.raises(EngineUnavailable, match="the model has gone"):
                await task
        with pytest.raises(EngineUnavailable, match="the model has gone"):
            await made.ask("words 1 0")
        health = await made.backend.health()
        assert not health.ready
        assert "the model has gone" in health.detail
    finally:
        await made.backend.aclose()


async def test_closing_ends_jobs_and_process(subject: Subject) -> None:
    pid = subject.backend.worker_pid
    assert pid is not None
    tasks = [subject.asking("wait") for _ in range(3)]
    await subject.running(2)
    await subject.backend.aclose()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, BackendError) for result in results)
    assert _gone(pid)
    with pytest.raises(EngineUnavailable):
        await subject.ask("words 1 0")


@pytest.mark.parametrize("stopped", [False, True], ids=["healthy", "stopped"])
def test_a_killed_gateway_leaves_no_worker(stopped: bool) -> None:
    """Not even one that cannot notice its closed socket."""
    script = f"""
import asyncio, sys
from backends.batched.backend import BatchedBackend
from backends.batched.config import BatchedConfig

async def main():
    command = (sys.executable, {str(FAKE_WORKER)!r})
    backend = BatchedBackend("builtin", BatchedConfig(model="fake"), worker_command=command)
    await backend.start()
    print(backend.worker_pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        pid = next(int(line) for line in gateway.stdout if line.strip().isdigit())
        worker = os.pidfd_open(pid)
        if stopped:
            os.kill(pid, signal.SIGSTOP)
        gateway.kill()
    try:
        assert select.select([worker], [], [], PATIENCE_S)[0] == [worker]
    finally:
        os.close(worker)


def _gone(pid: int) -> bool:
    """And buried: not even a zombie is left."""
    return not Path(f"/proc/{pid}").exists()
