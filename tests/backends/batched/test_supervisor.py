"""The worker process dies, hangs, does not start: what becomes of the jobs, and of the process."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backends.batched.config import BatchedConfig, Supervision
from backends.errors import BackendError, EngineUnavailable, UpstreamCut, UpstreamUnreachable
from tests.backends.batched.subject import FAKE_WORKER, PATIENCE_S, Subject, call, make


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
    deltas = [(await anext(chunks)).events[0]["choices"][0]["delta"] for _ in range(2)]
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
