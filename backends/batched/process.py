"""One worker process, seen from the gateway: spawned, spoken to, its last words kept, killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence

import structlog

from backends.batched import frames
from backends.batched.config import BatchedConfig
from backends.errors import EngineUnavailable
from backends.protocols import EngineInfo

_log = structlog.get_logger("lockgate.engine")

# -P: the working directory may hold a folder named like one of ours.
WORKER_COMMAND = (sys.executable, "-P", "-m", "backends.batched.worker")

_LAST_WORDS = 5


class WorkerProcess:
    """A child running `backends.batched.worker` behind one end of a socket pair: no path, no port."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._last_words: deque[str] = deque(maxlen=_LAST_WORDS)
        self._listening = asyncio.get_running_loop().create_task(self._forward_stderr())

    @classmethod
    async def spawn(cls, command: Sequence[str] = WORKER_COMMAND) -> WorkerProcess:
        """`command` is given the number of the file descriptor to talk through."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *command,
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the gateway, which then ends the worker
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def load_engine(self, config: BatchedConfig) -> EngineInfo:
        """Waits for the engine. Raises EngineUnavailable, with what the worker said."""
        self.send(frames.Start(config))
        try:
            frame = await self.read()
        except EOFError:
            raise EngineUnavailable(
                f"the engine's process ended while starting: {await self.epitaph()}"
            ) from None
        if isinstance(frame, frames.Ready):
            return frame.info
        message = frame.message if isinstance(frame, frames.Unavailable) else "the engine spoke out of turn"
        raise EngineUnavailable(message)

    def send(self, frame: frames.ToWorker) -> None:
        """Never blocks: what is sent is bounded by the jobs that the gateway lets in. A dead worker is
        noticed by whoever reads."""
        if not self._writer.is_closing():
            self._writer.write(frames.encode(frame))

    async def read(self) -> frames.FromWorker:
        """The next frame. Raises EOFError when the worker is gone or talks nonsense."""
        try:
            return await frames.read_from_worker(self._reader)
        except (asyncio.IncompleteReadError, OSError, ValueError) as error:
            raise EOFError(str(error)) from error

    async def epitaph(self) -> str:
        """How the process ended, for people. Kills it if it has not."""
        await self.kill()
        code = self._process.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return f"{how}: {self._last_words[-1]}" if self._last_words else how

    async def kill(self) -> None:
        """At once and for good; returns when the process is gone and its output read."""
        self._writer.close()
        if self._process.returncode is None:
            # Not Process.kill: it polls first, and so may take the exit status of a worker that just died
            # from under the event loop, which then reports 255 for whatever it was.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._listening
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _forward_stderr(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None  # asked for in spawn
        rest = b""
        while block := await stderr.read(65536):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self._note(line)
            rest = rest[-65536:]
        self._note(rest)

    def _note(self, line: bytes) -> None:
        # Of a progress bar, which redraws its line after a carriage return, the last state.
        if text := line.decode(errors="replace").strip().rpartition("\r")[2]:
            self._last_words.append(text)
            _log.info("engine output", pid=self.pid, line=text)
