"""A closed-loop HTTP/1.1 client that costs a fraction of any server it measures, and checks every answer.

Each connection sends the same bytes again as soon as it has the answer whole. Raw asyncio protocols: run it
under uvloop.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

# Servers may write an id or a number a little longer or shorter; an event lost from a stream is more.
LENGTH_TOLERANCE_BYTES = 8
# From one busy process that accepts and serves, the last connections would wait for all answers of the first.
_ACCEPT_S = 0.05
_LAST_CHUNK = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One whole answer. `head`: the bytes up to the blank line, lower-cased; `body`: without chunk
    framing."""

    status: int
    head: bytes
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What every answer must be: status 200, `body_bytes` long (give or take `LENGTH_TOLERANCE_BYTES`),
    ending in `body_end`."""

    body_bytes: int
    body_end: bytes = b""

    def fault(self, answer: Answer) -> str | None:
        """What is wrong with the answer; None when nothing is."""
        if answer.status != 200:
            return f"status {answer.status}"
        if abs(len(answer.body) - self.body_bytes) > LENGTH_TOLERANCE_BYTES:
            return "another length"
        return None if answer.body.endswith(self.body_end) else "another end"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run gave: the latencies of good answers in seconds, errors by kind, and how long all took."""

    latencies_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    elapsed_s: float = 0.0
    last: Answer | None = None


def post(url: str, body: dict[str, Any], headers: Mapping[str, str]) -> bytes:
    """A JSON request as its bytes; the connection is to be kept."""
    where = urlsplit(url)
    content = json.dumps(body).encode()
    lines = [f"POST {where.path} HTTP/1.1", f"host: {where.netloc}", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"content-length: {len(content)}", "", ""]
    return "\r\n".join(lines).encode() + content


def get(url: str) -> bytes:
    where = urlsplit(url)
    return f"GET {where.path} HTTP/1.1\r\nhost: {where.netloc}\r\n\r\n".encode()


def parse(data: bytes | bytearray) -> Answer | None:
    """The answer that `data` starts with; None while it is not all there. Raises ValueError when it is not
    HTTP."""
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0:
        return None
    head = bytes(data[: head_end + 2]).lower()
    start = head_end + 4
    at = head.find(b"\r\ncontent-length:")
    if at >= 0:
        end = start + int(head[at + 17 : head.find(b"\r\n", at + 17)])
        if len(data) < end:
            return None
        body: bytes | None = bytes(data[start:end])
    elif b"\r\ntransfer-encoding: chunked" in head:
        body = unchunk(data, start)
    else:
        raise ValueError("an answer with neither a length nor chunks")
    return None if body is None else Answer(status=int(head[9:12]), head=head, body=body)


def unchunk(data: bytes | bytearray, start: int) -> bytes | None:
    """The body of the chunks from `start` on; None while the last one is not there."""
    # Each arriving piece asks: only what ends like a last chunk is worth taking apart.
    if not data.endswith(_LAST_CHUNK) and data[start:] != _LAST_CHUNK[2:]:
        return None
    parts: list[bytes | bytearray] = []
    while True:
        line_end = data.find(b"\r\n", start)
        if line_end < 0:
            return None
        size = int(data[start:line_end], 16)
        if size == 0:
            return b"".join(parts)
        start = line_end + 2
        parts.append(data[start : start + size])
        start += size + 2


async def run(
    url: str,
    request: bytes,
    *,
    connections: int,
    requests: int,
    expected: Expected | None = None,
    timeout_s: float = 60.0,
) -> Outcome:
    """Sends `request` to the host of `url` `requests` times over `connections`. What has no answer by
    `timeout_s` is an error; so is an answer that is not as `expected`, where that is given."""
    outcome = Outcome()
    load = _Load(url, request, requests, expected, outcome)
    began = time.perf_counter()
    try:
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as group:
            for _ in range(min(connections, requests)):
                group.create_task(load.keep_one_busy())
            if connections > 1:
                await asyncio.sleep(_ACCEPT_S)
            began = time.perf_counter()
            load.start.set()
    except TimeoutError:
        outcome.errors["no answer in time"] += requests - len(outcome.latencies_s) - outcome.errors.total()
    outcome.elapsed_s = time.perf_counter() - began
    return outcome


class _Load:
    def __init__(
        self, url: str, request: bytes, requests: int, expected: Expected | None, outcome: Outcome
    ) -> None:
        where = urlsplit(url)
        self.host, self.port = where.hostname or "", where.port or 80
        self.request = request
        self.left = requests
        self.expected = expected
        self.outcome = outcome
        self.start = asyncio.Event()

    async def keep_one_busy(self) -> None:
        loop = asyncio.get_running_loop()
        while self.left > 0:
            ended = loop.create_future()
            try:
                make = partial(_Connection, self, ended)
                _, protocol = await loop.create_connection(make, self.host, self.port)
            except OSError:
                if self.left > 0:
                    self.left -= 1
                    self.outcome.errors["no connection"] += 1
                continue
            try:
                await self.start.wait()
                protocol.next()
                await ended
            finally:
                protocol.abandon()

    def take(self, answer: Answer, latency_s: float) -> None:
        self.outcome.last = answer
        fault = self.expected.fault(answer) if self.expected else None
        if fault:
            self.outcome.errors[fault] += 1
        else:
            self.outcome.latencies_s.append(latency_s)


class _Connection(asyncio.Protocol):
    def __init__(self, load: _Load, ended: asyncio.Future[None]) -> None:
        self._load = load
        self._ended = ended
        self._buffer = bytearray()
        self._began: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            answer = parse(self._buffer)
        except ValueError:
            self._fail("not HTTP")
            return
        if answer is None or self._began is None:
            return
        self._load.take(answer, time.perf_counter() - self._began)
        self._began = None
        self._buffer.clear()
        if b"\r\nconnection: close" in answer.head:
            self._transport.close()
        else:
            self.next()

    def connection_lost(self, _: Exception | None) -> None:
        if self._began is not None:
            self._fail("connection lost")
        if not self._ended.done():
            self._ended.set_result(None)

    def next(self) -> None:
        """Sends one request, or closes when none is left."""
        if self._load.left <= 0:
            self._transport.close()
            return
        self._load.left -= 1
        self._began = time.perf_counter()
        self._transport.write(self._load.request)

    def abandon(self) -> None:
        """Closes at once; what is on its way is not counted."""
        self._began = None
        self._transport.abort()

    def _fail(self, kind: str) -> None:
        self._began = None
        self._load.outcome.errors[kind] += 1
        self._transport.close()
