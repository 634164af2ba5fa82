"""Where the log line of each request goes: to a terminal at once, else as JSON, many lines at a time."""

from __future__ import annotations

import asyncio
from typing import BinaryIO, Protocol

import msgspec
import structlog

from gateway.recorder import RequestLine

FLUSH_AFTER_S = 0.1
MAX_BUFFERED_BYTES = 256 * 1024


class RequestLog(Protocol):
    """Takes a line for each request. `flush` writes what waits."""

    def write(self, line: RequestLine) -> None: ...

    def flush(self) -> None: ...


class JsonRequestLog:
    """Writes what has gathered within `FLUSH_AFTER_S`, or sooner when it is much: a system call for each
    line would cost a cached answer a tenth of its time. Used from one event loop."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._encoder = msgspec.json.Encoder()
        self._lines: list[bytes] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def write(self, line: RequestLine) -> None:
        encoded = self._encoder.encode(line)
        self._lines.append(encoded)
        self._size += len(encoded)
        if self._size > MAX_BUFFERED_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lines:
            self._lines.append(b"")
            data = b"\n".join(self._lines)
            self._lines, self._size = [], 0
            try:
                self._stream.write(data)
                self._stream.flush()
            except OSError:
                pass  # whoever read the log is gone; requests are answered all the same


class ConsoleRequestLog:
    """For a terminal: through structlog, in columns."""

    def write(self, line: RequestLine) -> None:
        fields = msgspec.to_builtins(line)
        for name in ("event", "timestamp", "level"):
            del fields[name]
        structlog.get_logger("lockgate").info("request", **fields)

    def flush(self) -> None:
        """Nothing waits."""


class NoRequestLog:
    """Writes nowhere."""

    def write(self, line: RequestLine) -> None:
        """Forgets it."""

    def flush(self) -> None:
        """Nothing waits."""
