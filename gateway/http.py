"""Plain ASGI: reading a body, writing a reply, noticing a client that leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from types import TracebackType

from starlette.types import Receive, Send

from gateway.errors import RequestError

Headers = Iterable[tuple[bytes, bytes]]

DRAINED_BODIES = 8
"""Of a body that is too large, up to this many times the limit is read and dropped, so that the client
gets to read the error instead of a broken connection."""


class ClientLeft(Exception):
    """The client closed its connection: there is nobody to answer."""


async def read_body(receive: Receive, *, declared: int | None, limit: int) -> bytes:
    """Raises RequestError (413) beyond `limit` bytes, ClientLeft when the client goes."""
    message = await receive()
    if not message.get("more_body") and message["type"] != "http.disconnect":
        body: bytes = message.get("body", b"")
        if len(body) <= limit:
            return body
        raise _too_large(len(body), limit)
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientLeft
        part = message.get("body", b"")
        size += len(part)
        too_large = max(size, declared or 0) > limit
        if too_large:
            parts.clear()
        else:
            parts.append(part)
        if not message.get("more_body") or size > limit * DRAINED_BODIES:
            break
        message = await receive()
    if too_large:
        raise _too_large(max(size, declared or 0), limit)
    return b"".join(parts)


def _too_large(size: int, limit: int) -> RequestError:
    return RequestError(
        f"The body has {size} bytes; server.max_body_bytes allows {limit}.", status=413, code="body_too_large"
    )


class StreamedBody:
    """A request's body as it comes. `read` is set once it is there to its end."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task = asyncio.current_task()
        self.read = asyncio.Event()
        self.left = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Cancels the request's task, and raises ClientLeft, when the client leaves before its body has
        ended: what had come must not pass upstream for all of it."""
        while not self.read.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.left = True
                assert self._task is not None
                self._task.cancel()
                raise ClientLeft
            if not message.get("more_body"):
                self.read.set()
            if body := message.get("body", b""):
                yield body


WATCH_AFTER_S = 0.2


class cancelled_when_client_leaves:  # noqa: N801 - used as `asyncio.timeout` is
    """`async with`: cancels what runs inside when the client disconnects, and raises ClientLeft instead.

    The body must have been read, unless it is `body`. The idea is that of `asyncio.timeout`: the
    cancellation we asked for is told from one asked by others through `Task.uncancel`. The watch begins
    after `WATCH_AFTER_S`, for most answers are there sooner and a task is dear; a client that left before
    is noticed then.
    """

    __slots__ = ("_body", "_left", "_receive", "_task", "_timer", "_watcher")

    def __init__(self, receive: Receive, body: StreamedBody | None = None) -> None:
        self._receive = receive
        self._body = body
        self._left = False
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(loop)
        self._timer = loop.call_later(WATCH_AFTER_S, self._watch)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            assert self._task is not None
            left = self._left or (self._body is not None and self._body.left)
            if left and self._task.uncancel() <= 0:
                raise ClientLeft from None

    def _watch(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._until_it_leaves())

    async def _until_it_leaves(self) -> None:
        if self._body is not None:
            await self._body.read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left = True
        assert self._task is not None
        self._task.cancel()


async def send_body(send: Send, status: int, headers: Headers, body: bytes, content_type: bytes) -> None:
    """One reply, whole."""
    start = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


async def send_events(send: Send, headers: Headers, frames: AsyncIterator[bytes]) -> None:
    """A stream of server-sent events, each sent as it comes."""
    start = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        *headers,
    ]
    await send({"type": "http.response.start", "status": 200, "headers": start})
    await send_pieces(send, frames)


class Last(bytes):
    """The last piece of a body: it goes out together with the body's end."""


async def send_pieces(send: Send, pieces: AsyncIterator[bytes]) -> None:
    """The body of a reply whose start has been sent, each piece as it comes."""
    async for data in pieces:
        if type(data) is Last:
            await send({"type": "http.response.body", "body": data})
            return
        await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
