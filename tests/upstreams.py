"""An OpenAI-like server on a loopback socket that answers, and misbehaves, as a test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

USAGE: Mapping[str, Any] = {
    "prompt_tokens": 11,
    "completion_tokens": 3,
    "total_tokens": 14,
    "prompt_tokens_details": {"cached_tokens": 5},
}
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as it arrived. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An HTTP answer. `pieces` are sent one by one, each at once, `gap_s` apart, after `delay_s`.

    `end`: "keep" the connection after a complete answer; "close" it after a complete answer; "reset" it
    where the pieces end, in the middle of the body (before the headers when `status` is 0); "hang": send
    no more and wait for the client to leave.
    """

    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes] = ()
    gap_s: float = 0.0
    delay_s: float = 0.0
    end: Literal["keep", "close", "reset", "hang"] = "keep"


def completion(text: str = "hello", **more: Any) -> dict[str, Any]:
    """A `chat.completion` object."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "upstream-model",
        "choices": [choice],
        "usage": dict(USAGE),
        **more,
    }


def delta(content: Mapping[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A `chat.completion.chunk` object of one choice."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "upstream-model",
        "choices": [{"index": 0, "delta": dict(content), "finish_reason": finish}],
        **more,
    }


def frame(body: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode()


def frames(
    texts: Sequence[str] = ("hel", "lo"),
    *,
    usage: bool = True,
    finish: str | None = "stop",
    done: bool = True,
) -> list[bytes]:
    """A whole streamed answer, one event per element."""
    sent = [frame(delta({"role": "assistant", "content": ""}))]
    sent += [frame(delta({"content": text})) for text in texts]
    if finish is not None:
        sent.append(frame(delta({}, finish)))
    if usage:
        sent.append(frame({**delta({}), "choices": [], "usage": dict(USAGE)}))
    return [*sent, DONE] if done else sent


def error_reply(status: int, message: str, **headers: str) -> Reply:
    """An error in OpenAI's shape; `_` in header names stands for `-`."""
    body = {"error": {"message": message, "type": "some_error", "param": None, "code": None}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, headers=named, pieces=[json.dumps(body).encode()])


def stream_reply(pieces: Sequence[bytes], **more: Any) -> Reply:
    return Reply(content_type="text/event-stream", pieces=pieces, **more)


def answer_ok(request: Received) -> Reply:
    """What a well-behaved server does."""
    if request.path.endswith("/models"):
        return Reply(pieces=[b'{"object":"list","data":[{"id":"upstream-model","object":"model"}]}'])
    body = request.json()
    if not body.get("stream"):
        return Reply(pieces=[json.dumps(completion()).encode()])
    asked = (body.get("stream_options") or {}).get("include_usage", False)
    return stream_reply(frames(usage=asked))


class FakeUpstream:
    """`async with FakeUpstream() as upstream:` serves at `upstream.base_url` (ends in /v1).

    `answer` gives the reply to a request; set it to a function, or use `replies` for a fixed sequence whose
    last element repeats. Counters: `received`, `connections` (accepted so far), `open_connections`,
    `completed`, and `aborted`: requests whose client left before they were answered.
    """

    def __init__(self, answer: Callable[[Received], Reply] = answer_ok) -> None:
        self.answer = answer
        self.received: list[Received] = []
        self.connections = 0
        self.completed = 0
        self.aborted = 0
        self._handlers: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    @property
    def open_connections(self) -> int:
        return len(self._handlers)

    @property
    def base_url(self) -> str:
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}/v1"

    def replies(self, *replies: Reply) -> None:
        """Answer with these, in order."""
        left = list(replies)
        self.answer = lambda _: left.pop(0) if len(left) > 1 else left[0]

    async def until(self, condition: Callable[[Self], bool], timeout_s: float = 1.0) -> None:
        """Wait until the condition on the counters holds. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: asyncio.StreamReaderProtocol(_Reader(), self._serve), "127.0.0.1", 0
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        handlers = list(self._handlers)
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self.connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                self.received.append(request)
                self._changed.set()
                if not await self._exchange(self.answer(request), reader, writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client is gone, or the test is over
        finally:
            writer.close()
            self._handlers.discard(task)
            self._changed.set()

    async def _exchange(
        self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Send the reply; whether the connection serves another request."""
        assert isinstance(reader, _Reader)
        client_left = asyncio.ensure_future(reader.left.wait())
        try:
            sending = asyncio.ensure_future(_send(reply, writer))
            await asyncio.wait({sending, client_left}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                self.aborted += 1
                return False
            sending.result()
        except ConnectionError:
            self.aborted += 1
            return False
        finally:
            client_left.cancel()
            await asyncio.gather(client_left, return_exceptions=True)
            self._changed.set()
        if reply.end == "reset":
            writer.transport.abort()
            return False
        self.completed += 1
        self._changed.set()
        return reply.end == "keep"


class _Reader(asyncio.StreamReader):
    """Tells that the client has left without reading from the stream: what comes may be its next request."""

    def __init__(self) -> None:
        super().__init__()
        self.left = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.left.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.left.set()


async def _send(reply: Reply, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(reply.delay_s)
    if reply.status:
        head = {"content-type": reply.content_type, "transfer-encoding": "chunked", **reply.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"HTTP/1.1 {reply.status} Status\r\n{lines}\r\n".encode())
    for number, piece in enumerate(reply.pieces):
        if number and reply.gap_s:
            await asyncio.sleep(reply.gap_s)
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
    if reply.end == "hang":
        await asyncio.Event().wait()
    if reply.end != "reset":
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split(" ", 2)
        fields = [line.split(":", 1) for line in head.split("\r\n")[1:] if line]
        headers = {name.lower(): value.strip() for name, value in fields}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return Received(method=method, path=path, headers=headers, body=body)
