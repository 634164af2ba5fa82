from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator

import pytest
import uvloop

from backends.errors import BackendError, UpstreamCut, UpstreamInvalid, UpstreamTimeout, UpstreamUnreachable
from backends.transport import AiohttpTransport, UpstreamResponse, host_and_port
from tests.upstreams import DONE, FakeUpstream, Reply, frames, stream_reply

SECRET = "sk-very-secret"
HEADERS = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    made = AiohttpTransport()
    yield made
    await made.aclose()


async def post(
    transport: AiohttpTransport, upstream: FakeUpstream, body: bytes = b"{}", idle_s: float = 5.0
) -> UpstreamResponse:
    return await transport.request("POST", f"{upstream.base_url}/chat/completions", HEADERS, body, idle_s)


async def read(response: UpstreamResponse) -> bytes:
    return b"".join([piece async for piece in response])


def told(error: BaseException) -> str:
    """All that a log with a traceback would show."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(error.args)


async def test_sends_what_it_is_given_and_returns_what_comes(
    transport: AiohttpTransport, upstream: FakeUpstream
) -> None:
    upstream.replies(Reply(status=418, headers={"X-Thing": "7"}, pieces=[b"short ", b"and stout"]))
    response = await post(transport, upstream, b'{"model": "m"}')
    assert (response.status, response.headers["x-thing"]) == (418, "7")
    assert await read(response) == b"short and stout"
    (received,) = upstream.received
    assert (received.method, received.path, received.body) == (
        "POST",
        "/v1/chat/completions",
        b'{"model": "m"}',
    )
    assert received.headers["authorization"] == f"Bearer {SECRET}"
    assert received.headers["accept-encoding"] == "identity"


async def test_pieces_are_not_held_back(transport: AiohttpTransport, upstream: FakeUpstream) -> None:
    upstream.replies(Reply(pieces=[b"first"], end="hang"))
    response = await post(transport, upstream)
    assert await anext(aiter(response)) == b"first"
    response.close()


async def test_a_body_read_to_its_end_gives_the_connection_back(
    transport: AiohttpTransport, upstream: FakeUpstream
) -> None:
    for _ in range(5):
        response = await post(transport, upstream)
        await read(response)
        response.close()
        response.close()
    assert (upstream.connections, len(upstream.received)) == (1, 5)


async def test_a_reused_connection_that_the_server_has_just_closed_is_no_failure(
    transport: AiohttpTransport, upstream: FakeUpstream
) -> None:
    upstream.replies(Reply(pieces=[b"x"], end="close"))
    for _ in range(20):
        assert await read(await post(transport, upstream)) == b"x"
    assert len(upstream.received) == 20


async def test_a_fresh_connection_that_breaks_is_tried_once(
    transport: AiohttpTransport, upstream: FakeUpstream
) -> None:
    upstream.replies(Reply(status=0, end="reset"))
    with pytest.raises(UpstreamUnreachable, match="before answering"):
        await post(transport, upstream)
    assert len(upstream.received) == 1


async def test_no_server_is_unreachable(transport: AiohttpTransport, unused_tcp_port: int) -> None:
    with pytest.raises(UpstreamUnreachable, match=f"127.0.0.1:{unused_tcp_port}"):
        await transport.request("POST", f"http://127.0.0.1:{unused_tcp_port}/v1", HEADERS, b"", 5.0)


async def test_an_unknown_host_is_unreachable(transport: AiohttpTransport) -> None:
    with pytest.raises(UpstreamUnreachable, match=r"cannot connect to no-such-host\.invalid"):
        await transport.request("POST", "http://no-such-host.invalid/v1", HEADERS, b"", 5.0)


async def test_a_reset_within_the_body_is_a_cut(transport: AiohttpTransport, upstream: FakeUpstream) -> None:
    upstream.replies(Reply(pieces=[b"begun"], end="reset"))
    response = await post(transport, upstream)
    with pytest.raises(UpstreamCut):
        await read(response)


async def test_giving_up_before_the_headers_reaches_the_upstream(
    transport: AiohttpTransport, upstream: FakeUpstream
) -> None:
    upstream.replies(Reply(status=0, end="hang"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await post(transport, upstream)
    await upstream.until(lambda server: server.aborted == 1)


async def test_silence_within_the_body_times_out(transport: AiohttpTransport, upstream: FakeUpstream) -> None:
    upstream.replies(Reply(pieces=[b"begun"], end="hang"))
    response = await post(transport, upstream, idle_s=0.1)
    with pytest.raises(UpstreamTimeout, match=r"nothing for 0\.1 s"):
        await read(response)
    await upstream.until(lambda server: server.aborted == 1)


async def test_slow_but_steady_pieces_do_not_time_out(
    transport: AiohttpTransport, upstream: FakeUpstream
) -> None:
    upstream.replies(Reply(pieces=[b"x"] * 8, gap_s=0.1))
    assert await read(await post(transport, upstream, idle_s=0.6)) == b"x" * 8


async def test_an_answer_that_is_not_http_is_invalid(transport: AiohttpTransport) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UpstreamInvalid, match="not HTTP") as caught:
            await transport.request("POST", f"http://127.0.0.1:{port}/v1?key={SECRET}", HEADERS, b"", 5.0)
    assert SECRET not in told(caught.value)


async def test_redirects_are_not_followed(transport: AiohttpTransport, upstream: FakeUpstream) -> None:
    upstream.replies(Reply(status=307, headers={"location": f"{upstream.base_url}/elsewhere"}))
    response = await post(transport, upstream)
    assert response.status == 307
    await read(response)
    assert len(upstream.received) == 1


async def test_cookies_are_not_kept(transport: AiohttpTransport, upstream: FakeUpstream) -> None:
    upstream.replies(Reply(headers={"set-cookie": "session=1; Path=/"}, pieces=[b"{}"]))
    # By name: aiohttp's own jar would keep no cookie of a bare address anyway.
    url = upstream.base_url.replace("127.0.0.1", "localhost")
    for _ in range(2):
        await read(await transport.request("POST", url, HEADERS, b"{}", 5.0))
    assert len(upstream.received) == 2
    assert all("cookie" not in request.headers for request in upstream.received)


async def test_proxies_of_the_environment_are_not_used(
    transport: AiohttpTransport,
    upstream: FakeUpstream,
    unused_tcp_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_tcp_port}")
    monkeypatch.setenv("no_proxy", "")
    assert (await post(transport, upstream)).status == 200


async def test_compressed_bodies_stay_as_they_are(
    transport: AiohttpTransport, upstream: FakeUpstream
) -> None:
    upstream.replies(Reply(headers={"content-encoding": "gzip"}, pieces=[b"not really gzip"]))
    assert await read(await post(transport, upstream)) == b"not really gzip"


async def test_closing_early_reaches_the_upstream(
    transport: AiohttpTransport, upstream: FakeUpstream
) -> None:
    upstream.replies(stream_reply(frames() * 100, gap_s=0.02))
    response = await post(transport, upstream)
    await anext(aiter(response))
    response.close()
    await upstream.until(lambda server: server.aborted == 1, timeout_s=1.0)


async def test_cancelling_before_the_headers_reaches_the_upstream(
    transport: AiohttpTransport, upstream: FakeUpstream
) -> None:
    upstream.replies(Reply(status=0, end="hang"))
    task = asyncio.ensure_future(post(transport, upstream))
    await upstream.until(lambda server: len(server.received) == 1)
    task.cancel()
    await upstream.until(lambda server: server.aborted == 1, timeout_s=1.0)
    assert task.cancelled()


async def test_cancelling_within_the_body_reaches_the_upstream(
    transport: AiohttpTransport, upstream: FakeUpstream
) -> None:
    begun = asyncio.Event()

    async def consume() -> None:
        response = await post(transport, upstream)
        try:
            async for _ in response:
                begun.set()
        finally:
            response.close()

    upstream.replies(Reply(pieces=[b"begun"], end="hang"))
    task = asyncio.ensure_future(consume())
    await begun.wait()
    task.cancel()
    await upstream.until(lambda server: server.aborted == 1, timeout_s=1.0)


async def test_early_leavers_do_not_drain_the_pool(upstream: FakeUpstream) -> None:
    transport = AiohttpTransport(max_connections=4)
    hang = stream_reply([b"data: {}\n\n"], end="hang")
    upstream.replies(*[hang] * 200, Reply(pieces=[b"{}"]))
    for _ in range(200):
        response = await post(transport, upstream)
        await anext(aiter(response))
        response.close()
    assert await read(await post(transport, upstream)) == b"{}"
    await upstream.until(lambda server: server.aborted == 200)
    await upstream.until(lambda server: server.open_connections <= 1)
    await transport.aclose()


def test_leaving_early_under_uvloop() -> None:
    async def scenario() -> None:
        transport = AiohttpTransport()
        async with FakeUpstream() as upstream:
            upstream.replies(stream_reply([b"data: {}\n\n"], end="hang"), stream_reply([DONE]))
            response = await post(transport, upstream)
            await anext(aiter(response))
            response.close()
            await upstream.until(lambda server: server.aborted == 1, timeout_s=1.0)
            assert await read(await post(transport, upstream)) == DONE
            await transport.aclose()

    uvloop.run(scenario())


async def test_a_closed_transport_is_unreachable(transport: AiohttpTransport, upstream: FakeUpstream) -> None:
    await read(await post(transport, upstream))
    await transport.aclose()
    await transport.aclose()
    with pytest.raises(UpstreamUnreachable, match="closed"):
        await post(transport, upstream)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=0, end="reset"),
        Reply(pieces=[b"x"], end="reset"),
        Reply(pieces=[b"x"], end="hang"),
    ],
)
async def test_no_secret_in_what_a_failure_shows(
    transport: AiohttpTransport, upstream: FakeUpstream, reply: Reply
) -> None:
    upstream.replies(reply)
    host = upstream.base_url.removeprefix("http://")
    url = f"http://user:{SECRET}@{host}/chat?key={SECRET}"
    with pytest.raises(BackendError) as caught:
        await read(await transport.request("POST", url, {"x-api-key": SECRET}, b"", 0.1))
    assert SECRET not in told(caught.value)


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        (f"http://user:{SECRET}@127.0.0.1:1/v1?key={SECRET}", {}),
        (f"http://user:{SECRET}@127.0.0.1:1/v1", HEADERS),
        (f"http://{SECRET} .invalid:1/v1", {}),
        ("http://127.0.0.1:1/v1", {"authorization": f"Bearer {SECRET}\r\nx: y"}),
    ],
)
async def test_no_secret_in_what_a_request_that_cannot_be_sent_shows(
    transport: AiohttpTransport, url: str, headers: dict[str, str]
) -> None:
    with pytest.raises(BackendError) as caught:
        await transport.request("POST", url, headers, b"", 1.0)
    shown = told(caught.value).replace(f"{SECRET} .invalid", "")  # a host is no secret
    assert SECRET not in shown


def test_messages_name_host_and_port_only() -> None:
    assert host_and_port("https://user:pw@api.example.com/v1?key=x") == "api.example.com"
    assert host_and_port("http://user:pw@[::1]:8000/v1") == "::1:8000"
