"""The benchmarks' upstream: an answer, a stream, the same stream paced, and a count of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks import upstream
from benchmarks.contest import asked, body, content
from benchmarks.load import post, run
from benchmarks.upstream import CONTENT, STREAMED, Upstream, events, request_end


@asynccontextmanager
async def listening() -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: Upstream(0.001), "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(("kind", "text"), [("json", CONTENT), ("stream", STREAMED), ("paced", STREAMED)])
async def test_each_kind_is_answered_whole(kind: str, text: str) -> None:
    async with listening() as base:
        outcome = await run(base, post(base, body(kind, "any"), {}), connections=1, requests=1)
    assert outcome.last is not None
    assert content(kind, outcome.last.body) == text


async def test_completions_are_counted_and_nothing_else_is() -> None:
    async with listening() as base:
        before = await asked(base)
        await run(base, post(base, body("json", "any"), {}), connections=3, requests=7)
        await asked(base)
        assert await asked(base) == before + 7


def test_the_stream_holds_32_pieces_between_role_and_finish_usage_and_done() -> None:
    assert len(events()) == 1 + 32 + 3
    assert len(upstream.ANSWER) > 1000


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_request_ends_where_it_says(request_bytes: bytes) -> None:
    ends = [request_end(request_bytes[:length]) for length in range(len(request_bytes) + 1)]
    assert ends == [-1] * len(request_bytes) + [len(request_bytes)]
    assert request_end(request_bytes + b"GET") == len(request_bytes)
