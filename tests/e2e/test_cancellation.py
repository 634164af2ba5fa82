"""Clients that leave and upstreams that die, over real sockets: what is then done on the other side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from aiohttp import web

from tests.gateway.api_cases import CASES, CHAT, COMPLETIONS, MESSAGES, RESPONSES, ApiCase, answering
from tests.raw_upstreams import RawUpstream, raw_upstream
from tests.servers import Server, serving
from tests.upstreams import FakeUpstream, Received, Reply, frames, stream_reply

# One loop for the module: the upstream outlives each test, for the server knows its address.
pytestmark = pytest.mark.asyncio(loop_scope="module")

WITHIN_S = 1.0
CONFIG = """
[cache]
store = "memory"
[cache.policy]
kind = "exact"
[ledger]
enabled = false
[backends.up]
kind = "openai"
base_url = "{base_url}"
retries = 0
[backends.ant]
kind = "anthropic"
base_url = "{base_url}"
retries = 0
[backends.raw]
kind = "openai"
base_url = "{raw_url}"
retries = 0
[backends.hedged]
kind = "openai"
base_url = "{base_url}"
hedge_after_ms = 20
[models.m]
backend = "up"
name = "m"
[models.claude]
backend = "ant"
name = "claude"
[models.hedged]
backend = "hedged"
name = "m"
[server.unknown_models]
backend = "raw"
"""


class Site:
    """A gateway in a process of its own, and the two upstreams it has."""

    def __init__(self, server: Server, upstream: FakeUpstream, raw: RawUpstream) -> None:
        self.upstream = upstream
        self.raw = raw
        self.server = server
        self.address = urlsplit(server.url)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(self.address.hostname, self.address.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def ask(self) -> int:
        """A whole request that no other test asks: to see that the gateway still serves, and that it has seen
        what was sent before."""
        body = {**CHAT.request, "messages": [{"role": "user", "content": "do you serve?"}]}
        async with httpx.AsyncClient(base_url=self.server.url) as client:
            response = await client.post(CHAT.path, json=body, headers={"cache-control": "no-cache"})
        return response.status_code


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    home: Path = tmp_path_factory.mktemp("home")
    async with FakeUpstream(answering) as upstream, raw_upstream() as raw:
        config = home / "config.toml"
        config.write_text(CONFIG.format(base_url=upstream.base_url, raw_url=raw.base_url))
        with serving(home, "--config", str(config)) as server:
            yield Site(server, upstream, raw)


@pytest.fixture
def site(shared: Site) -> Site:
    """With upstreams that have seen nothing and answer as they should."""
    upstream, raw = shared.upstream, shared.raw
    upstream.answer, upstream.received, upstream.aborted = answering, [], 0
    raw.received, raw.cancelled = [], 0
    raw.arrived, raw.ended = asyncio.Event(), asyncio.Event()
    return shared


def request_bytes(
    path: str, body: bytes, headers: Mapping[str, str] | None = None, method: str = "POST"
) -> bytes:
    fields = {"host": "gateway", "content-length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def asking(case: ApiCase, **fields: Any) -> bytes:
    return request_bytes(case.path, json.dumps({**case.request, **fields}).encode())


UNANSWERED = Reply(status=0, end="hang")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.api)
@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_before_the_first_token_frees_the_upstream(
    site: Site, case: ApiCase, stream: bool
) -> None:
    site.upstream.replies(UNANSWERED)
    async with site.client() as (_, writer):
        writer.write(asking(case, stream=stream))
        await site.upstream.until(lambda up: len(up.received) == 1)
    await site.upstream.until(lambda up: up.aborted == 1, WITHIN_S)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.api)
async def test_leaving_in_mid_stream_frees_the_upstream(site: Site, case: ApiCase) -> None:
    site.upstream.replies(stream_reply(case.events[:2], end="hang"))
    async with site.client() as (reader, writer):
        writer.write(asking(case, stream=True))
        await reader.readuntil(b"data: ")
    await site.upstream.until(lambda up: up.aborted == 1, WITHIN_S)


async def test_leaving_in_the_middle_of_a_whole_answer_frees_the_upstream(site: Site) -> None:
    site.upstream.replies(Reply(pieces=[b'{"id": "c1",'], end="hang"))
    async with site.client() as (_, writer):
        writer.write(asking(CHAT))
        await site.upstream.until(lambda up: len(up.received) == 1)
    await site.upstream.until(lambda up: up.aborted == 1, WITHIN_S)


@pytest.mark.parametrize("case", [CHAT, RESPONSES, COMPLETIONS], ids=lambda case: case.api)
async def test_leaving_a_translated_stream_frees_the_upstream(site: Site, case: ApiCase) -> None:
    site.upstream.replies(stream_reply(MESSAGES.events[:3], end="hang"))
    async with site.client() as (reader, writer):
        writer.write(asking(case, model="claude", stream=True))
        await reader.readuntil(b"data: ")
    await site.upstream.until(lambda up: up.aborted == 1, WITHIN_S)


async def test_the_loser_of_a_hedge_is_freed_and_both_when_the_client_leaves(site: Site) -> None:
    left = [UNANSWERED, stream_reply(CHAT.events[:3], end="hang")]
    site.upstream.answer = lambda _: left.pop(0)
    async with site.client() as (reader, writer):
        writer.write(asking(CHAT, model="hedged", stream=True))
        await reader.readuntil(b"data: ")
        await site.upstream.until(lambda up: up.aborted == 1, WITHIN_S)
    await site.upstream.until(lambda up: up.aborted == 2, WITHIN_S)
    site.upstream.replies(UNANSWERED)
    async with site.client() as (_, writer):
        writer.write(asking(CHAT, model="hedged", messages=[{"role": "user", "content": "again"}]))
        await site.upstream.until(lambda up: len(up.received) == 4)
    await site.upstream.until(lambda up: up.aborted == 4, WITHIN_S)


@pytest.mark.parametrize("stream", [False, True])
async def test_of_those_who_share_a_call_the_last_to_leave_cancels_it(site: Site, stream: bool) -> None:
    def answer(request: Received) -> Reply:
        return UNANSWERED if b"shared" in request.body else answering(request)

    site.upstream.answer = answer
    body = {**CHAT.request, "stream": stream, "messages": [{"role": "user", "content": f"shared {stream}"}]}
    raw, first_id = json.dumps(body).encode(), f"first-{stream}"
    async with site.client() as (_, last):
        async with site.client() as (_, first):
            first.write(request_bytes(CHAT.path, raw, {"x-request-id": first_id}))
            await site.upstream.until(lambda up: len(up.received) == 1)
            last.write(request_bytes(CHAT.path, raw))
            assert await site.ask() == 200  # by then the one before it waits too
        line = await asyncio.to_thread(site.server.line_with, first_id)
        assert json.loads(line)["status"] == 499
        assert site.upstream.aborted == 0
    await site.upstream.until(lambda up: up.aborted == 1, WITHIN_S)
    assert len([one for one in site.upstream.received if b"shared" in one.body]) == 1


async def test_two_hundred_who_leave_do_not_drain_the_pool(site: Site) -> None:
    site.upstream.replies(stream_reply(frames()[:2], end="hang"))

    async def leave(number: int) -> None:
        async with site.client() as (reader, writer):
            said = [{"role": "user", "content": f"leaver {number}"}]
            writer.write(asking(CHAT, stream=bool(number % 4), messages=said))
            if number % 4:
                await reader.readuntil(b"data: ")
            await site.upstream.until(lambda up: len(up.received) == 200, 10)

    await asyncio.gather(*(leave(number) for number in range(200)))
    await site.upstream.until(lambda up: up.aborted == 200, 10)
    site.upstream.answer = answering
    assert await asyncio.gather(*(site.ask() for _ in range(20))) == [200] * 20


# While the client is still sending.


async def test_leaving_while_sending_asks_no_upstream(site: Site) -> None:
    whole = asking(CHAT)
    for cut in (len(whole) - 1, len(whole) - 20):
        async with site.client() as (_, writer):
            writer.write(whole[:cut])
            await writer.drain()
    assert await site.ask() == 200
    assert len(site.upstream.received) == 1


@pytest.mark.parametrize("chunked", [False, True])
async def test_leaving_in_mid_upload_is_no_whole_upload(site: Site, chunked: bool) -> None:
    """What came of the body must not pass for all of it."""
    head = {"transfer-encoding": "chunked"} if chunked else {"content-length": "1000"}
    fields = "".join(f"{name}: {value}\r\n" for name, value in {"host": "gateway", **head}.items())
    async with site.client() as (_, writer):
        writer.write(f"POST /v1/files HTTP/1.1\r\n{fields}\r\n".encode())
        writer.write(b"a\r\n0123456789\r\n" if chunked else b"0123456789")
        await asyncio.wait_for(site.raw.arrived.wait(), 5)
    await asyncio.wait_for(site.raw.ended.wait(), WITHIN_S)
    (received,) = site.raw.received
    assert not received.complete
    assert received.body in (b"", b"0123456789")


# Passed through.


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_leaving_before_a_passed_through_answer_frees_the_upstream(site: Site, method: str) -> None:
    async def never(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    site.raw.answer = never
    async with site.client() as (_, writer):
        writer.write(request_bytes("/v1/files/f", b"body" if method == "POST" else b"", method=method))
        await asyncio.wait_for(site.raw.ended.wait(), 5)
    await until_cancelled(site.raw)


async def test_leaving_in_mid_download_frees_the_upstream(site: Site) -> None:
    async def begun(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first")
        await asyncio.Event().wait()
        raise AssertionError

    site.raw.answer = begun
    async with site.client() as (reader, writer):
        writer.write(request_bytes("/v1/files/f/content", b"", method="GET"))
        await reader.readuntil(b"first")
    await until_cancelled(site.raw)


async def until_cancelled(raw: RawUpstream) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not raw.cancelled:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("length", [None, 1000])
async def test_an_upstream_that_dies_in_mid_body_breaks_the_download_off(
    site: Site, length: int | None
) -> None:
    async def dying(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = length
        if length is None:
            response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"first")
        assert request.transport is not None
        request.transport.abort()
        return response

    site.raw.answer = dying
    async with site.client() as (reader, writer):
        writer.write(request_bytes("/v1/files/f/content", b"", method="GET"))
        came = await asyncio.wait_for(reader.read(), 5)  # to the end of the connection
    assert came.startswith(b"HTTP/1.1 200")
    body = came.partition(b"\r\n\r\n")[2]
    assert not body.endswith(b"0\r\n\r\n")
    assert len(body) < 1000


async def test_each_piece_is_sent_on_before_the_next_comes(site: Site) -> None:
    seen = asyncio.Event()

    async def waiting(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first")
        await asyncio.wait_for(seen.wait(), 5)
        await response.write(b"second")
        return response

    site.raw.answer = waiting
    async with site.client() as (reader, writer):
        writer.write(request_bytes("/v1/files/f/content", b"", method="GET"))
        await asyncio.wait_for(reader.readuntil(b"first"), 5)
        seen.set()
        await asyncio.wait_for(reader.readuntil(b"second"), 5)


async def test_each_piece_of_an_upload_is_sent_on_before_the_next_comes(site: Site) -> None:
    async with site.client() as (_, writer):
        writer.write(request_bytes("/v1/files", b"", {"content-length": "4"}) + b"ab")
        await asyncio.wait_for(site.raw.arrived.wait(), 5)  # before the body has come to its end
        writer.write(b"cd")
        await asyncio.wait_for(site.raw.ended.wait(), 5)
        assert site.raw.received[0].body == b"abcd"


@pytest.mark.parametrize("model", ["m", "claude"])
async def test_each_event_is_sent_on_before_the_next_comes(site: Site, model: str) -> None:
    """The upstream waits with the next event for ever: what came of it is there all the same."""
    events = CHAT.events[:3] if model == "m" else MESSAGES.events[:4]
    site.upstream.replies(stream_reply(events, end="hang"))
    async with site.client() as (reader, writer):
        writer.write(asking(CHAT, model=model, stream=True))
        await asyncio.wait_for(reader.readuntil(b'"lo"'), 5)


async def test_an_upstream_that_dies_in_mid_stream_leaves_the_connection_to_the_next_request(
    site: Site,
) -> None:
    def dies_once(request: Received) -> Reply:
        site.upstream.answer = answering
        return stream_reply(CHAT.events[:2], end="reset")

    site.upstream.answer = dies_once
    said = [{"role": "user", "content": "dies once"}]
    async with httpx.AsyncClient(base_url=site.server.url) as client:
        body = {**CHAT.request, "messages": said, "stream": True}
        first = await client.post(CHAT.path, json=body)
        assert '"error"' in first.text
        assert "[DONE]" not in first.text
        second = await client.post(CHAT.path, json=body)
        assert second.headers["x-lockgate-cache"] == "miss"
        assert second.text.endswith("data: [DONE]\n\n")
