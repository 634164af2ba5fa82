"""A backend around the scripted worker, and what the tests of it share."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.batched.backend import BatchedBackend
from backends.batched.config import BatchedConfig, Supervision
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
        return [
            dict(event)
            async for chunk in self.backend.stream(call(content, **fields))
            for event in chunk.events
        ]

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
