"""An OpenAI-compatible upstream that answers at once, cheaper than any gateway in front of it.

    python -m benchmarks.upstream PORT [--gap-ms MS]

`POST` anywhere is a chat completion: about 1 KB of JSON, or with `"stream": true` an SSE stream of a role, 32
content chunks, a finish, usage and `[DONE]`, in one write. A request that holds `PACED` anywhere in its body
gets its stream event by event, `--gap-ms` apart. `GET /count` is how many completions were asked for; any
other `GET` is a model list (what routers ask a server that they look after). It reads no more of a request
than it needs: it is for the benchmarks, on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any, cast

import uvloop

MODEL = "upstream-model"
CONTENT = ("The quick brown fox jumps over the lazy dog. " * 16)[:700]
PIECES = tuple(f"piece {number:02d} of it, " for number in range(32))
STREAMED = "".join(PIECES)
PACED = "[paced]"
USAGE = {"prompt_tokens": 180, "completion_tokens": 150, "total_tokens": 330}


def answer() -> bytes:
    """The completion as JSON."""
    message = {"role": "assistant", "content": CONTENT}
    return json.dumps(
        {
            "id": "chatcmpl-benchmark0001",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
            "usage": USAGE,
            "system_fingerprint": "fp_benchmark",
        }
    ).encode()


def events() -> list[bytes]:
    """The stream, one SSE event each."""
    fixed = {
        "id": "chatcmpl-benchmark0001",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
    }

    def chunk(delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
        return {**fixed, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}

    chunks = [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": piece}) for piece in PIECES),
        chunk({}, "stop"),
        {**fixed, "choices": [], "usage": USAGE},
    ]
    return [*(b"data: %b\n\n" % json.dumps(event).encode() for event in chunks), b"data: [DONE]\n\n"]


def response(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


ANSWER = response(answer())
MODELS = response(json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode())
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
FRAMES = [*(b"%x\r\n%b\r\n" % (len(event), event) for event in events()), b"0\r\n\r\n"]
STREAM = STREAM_HEAD + b"".join(FRAMES)


def request_end(data: bytes | bytearray) -> int:
    """Where the first request in `data` ends; -1 while it is not all there."""
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0:
        return -1
    head = data[:head_end].lower()
    at = head.find(b"content-length:")
    if at >= 0:
        end = head_end + 4 + int(head[at + 15 :].split(b"\r\n", 1)[0])
        return end if len(data) >= end else -1
    if b"transfer-encoding: chunked" in head:
        last = data.find(b"\r\n0\r\n\r\n", head_end + 4)
        return last + 7 if last >= 0 else -1
    return head_end + 4


class Upstream(asyncio.Protocol):
    """One connection. `count` is shared by all: completions asked for so far."""

    count = 0

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := request_end(self._buffer)) >= 0:
            request = bytes(self._buffer[:end])
            del self._buffer[:end]
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        if request.startswith(b"GET"):
            counted = request.startswith(b"GET /count ")
            self._transport.write(response(str(Upstream.count).encode()) if counted else MODELS)
            return
        Upstream.count += 1
        if b'"stream":true' not in request and b'"stream": true' not in request:
            self._transport.write(ANSWER)
        elif PACED.encode() in request:
            self._transport.write(STREAM_HEAD)
            self._pace(0)
        else:
            self._transport.write(STREAM)

    def _pace(self, number: int) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(FRAMES[number])
        if number + 1 < len(FRAMES):
            asyncio.get_running_loop().call_later(self._gap_s, self._pace, number + 1)


async def serve(port: int, gap_s: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(gap_s), "127.0.0.1", port, backlog=2048)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--gap-ms", type=float, default=2.0)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.gap_ms / 1000))


if __name__ == "__main__":
    main()
