"""Keeps a worker alive: starts it, feels its pulse, buries it and starts another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from backends.batched import frames
from backends.batched.config import BatchedConfig, Supervision
from backends.batched.process import WORKER_COMMAND, WorkerProcess
from backends.errors import EngineUnavailable
from backends.protocols import EngineInfo

_log = structlog.get_logger("lockgate.engine")


class Listener(Protocol):
    """Who is told what the worker does, on the event loop, in order."""

    def worker_ready(self, info: EngineInfo) -> None: ...

    def worker_said(self, frame: frames.Progress | frames.Failed | frames.Pong) -> None: ...

    def worker_lost(self, reason: str) -> None:
        """Jobs handed to it are gone."""
        ...

    def worker_hopeless(self, reason: str) -> None:
        """It will not come back soon; called on each failed restart from the patience-th on."""
        ...


class Supervisor:
    """`start` once, then `send` while the listener has been told of a ready worker, `stop` once."""

    def __init__(
        self,
        config: BatchedConfig,
        supervision: Supervision,
        listener: Listener,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        self._config = config
        self._supervision = supervision
        self._listener = listener
        self._command = command
        self._worker: WorkerProcess | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Of the worker process; None while there is none."""
        return self._worker.pid if self._worker else None

    async def start(self) -> None:
        """Raises EngineUnavailable when the engine cannot start: what to do is in the message."""
        worker, info = await self._start_worker()
        self._listener.worker_ready(info)
        self._task = asyncio.get_running_loop().create_task(self._keep(worker), name="engine-supervisor")

    def send(self, frame: frames.ToWorker) -> None:
        if self._worker is not None:
            self._worker.send(frame)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _start_worker(self) -> tuple[WorkerProcess, EngineInfo]:
        worker = await WorkerProcess.spawn(self._command)
        try:
            async with asyncio.timeout(self._supervision.start_timeout_s):
                info = await worker.load_engine(self._config)
        except TimeoutError:
            await worker.kill()
            raise EngineUnavailable(
                f"the engine did not start within {self._supervision.start_timeout_s:g} s"
            ) from None
        except BaseException:
            await worker.kill()
            raise
        self._worker = worker
        return worker, info

    async def _keep(self, worker: WorkerProcess) -> None:
        try:
            while True:
                reason = await self._watch(worker)
                self._worker = None
                _log.warning("engine lost", reason=reason)
                self._listener.worker_lost(reason)
                worker = await self._restart()
        finally:
            self._worker = None
            await worker.kill()

    async def _watch(self, worker: WorkerProcess) -> str:
        """Passes on what the worker says, until it is gone; returns why."""
        loop = asyncio.get_running_loop()
        pulse = loop.create_task(self._ping(worker))
        # Two silences of half the time, not one of the whole: after a pause of this very process the
        # first may be over before what the worker said meanwhile has been read.
        silences = 0
        try:
            while silences < 2:
                try:
                    async with asyncio.timeout(self._supervision.hang_s / 2):
                        frame = await worker.read()
                except TimeoutError:
                    silences += 1
                    continue
                except EOFError:
                    return await worker.epitaph()
                silences = 0
                if isinstance(frame, frames.Progress | frames.Failed | frames.Pong):
                    self._listener.worker_said(frame)
            await worker.kill()
            return f"no sign of life for {self._supervision.hang_s:g} s"
        finally:
            pulse.cancel()
            await asyncio.gather(pulse, return_exceptions=True)

    async def _ping(self, worker: WorkerProcess) -> None:
        while True:
            worker.send(frames.Ping())
            await asyncio.sleep(self._supervision.heartbeat_s)

    async def _restart(self) -> WorkerProcess:
        failures = 0
        while True:
            await asyncio.sleep(
                min(self._supervision.backoff_s * 2**failures, self._supervision.backoff_max_s)
            )
            try:
                worker, info = await self._start_worker()
            except EngineUnavailable as error:
                failures += 1
                _log.error("engine does not restart", attempt=failures, reason=str(error))
                if failures >= self._supervision.patience:
                    self._listener.worker_hopeless(str(error))
            else:
                _log.info("engine restarted", pid=worker.pid)
                self._listener.worker_ready(info)
                return worker
