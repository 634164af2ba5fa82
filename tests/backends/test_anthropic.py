"""The backend over Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from backends.anthropic import VERSION, AnthropicBackend
from backends.errors import UpstreamCut, UpstreamInvalid, UpstreamRejected
from backends.http_backend import Timeouts
from backends.protocols import Call, Chunk, RawCall
from tests.gateway.api_cases import HELLO, MESSAGES, answering
from tests.upstreams import FakeUpstream, Reply, stream_reply

OWN_KEY = "sk-ant-own-secret"
CLIENT_KEY = "sk-ant-client-secret"


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream(answering) as server:
        yield server


def make(base_url: str, api_key: str | None = OWN_KEY) -> AnthropicBackend:
    return AnthropicBackend("ant", base_url, api_key, timeouts=Timeouts(total_s=10.0))


def call(
    stream: bool = False,
    credential: str | None = f"Bearer {CLIENT_KEY}",
    headers: Mapping[str, str] | None = None,
) -> Call:
    body: dict[str, Any] = {"model": "claude", "max_tokens": 64, "messages": HELLO}
    if stream:
        body["stream"] = True
    return Call(api="messages", body=body, credential=credential, headers=headers or {})


async def collect(backend: AnthropicBackend, asked: Call) -> list[Chunk]:
    try:
        return [chunk async for chunk in backend.stream(asked)]
    finally:
        await backend.aclose()


@pytest.mark.parametrize("suffix", ["", "/v1", "/v1/", "/"])
async def test_the_base_url_may_end_in_v1_or_not(upstream: FakeUpstream, suffix: str) -> None:
    root = upstream.base_url.removesuffix("/v1")
    (chunk,) = await collect(make(root + suffix), call())
    assert chunk.events[0] == MESSAGES.answer
    assert upstream.received[0].path == "/v1/messages"


async def test_the_body_goes_as_it_is(upstream: FakeUpstream) -> None:
    """Without OpenAI's `stream_options`, which Anthropic refuses."""
    asked = call(stream=True)
    await collect(make(upstream.base_url), asked)
    assert upstream.received[0].json() == asked.body


async def test_a_stream_is_the_upstreams_bytes(upstream: FakeUpstream) -> None:
    chunks = await collect(make(upstream.base_url), call(stream=True))
    assert b"".join(chunk.data for chunk in chunks) == b"".join(MESSAGES.events)
    assert not any(chunk.tells_usage for chunk in chunks), "its clients cannot read a stream without"


async def test_pings_and_unknown_events_pass(upstream: FakeUpstream) -> None:
    events = list(MESSAGES.events)
    events[1:1] = [
        b'event: ping\ndata: {"type": "ping"}\n\n',
        b": comment\n\n",
        b'event: later\ndata: {"type": "later"}\n\n',
    ]
    upstream.replies(stream_reply(events))
    chunks = await collect(make(upstream.base_url), call(stream=True))
    assert b"".join(chunk.data for chunk in chunks) == b"".join(events)


@pytest.mark.parametrize(
    ("api_key", "credential", "sent"),
    [
        (OWN_KEY, f"Bearer {CLIENT_KEY}", {"x-api-key": OWN_KEY}),
        (OWN_KEY, None, {"x-api-key": OWN_KEY}),
        (None, f"Bearer {CLIENT_KEY}", {"x-api-key": CLIENT_KEY}),
        (None, f"bearer  {CLIENT_KEY} ", {"x-api-key": CLIENT_KEY}),
        (None, "Bearer sk-ant-oat01-token", {"authorization": "Bearer sk-ant-oat01-token"}),
        (None, "Basic abc", {"authorization": "Basic abc"}),
        (None, None, {}),
    ],
)
async def test_who_asks_is_proved_in_anthropics_header(
    upstream: FakeUpstream, api_key: str | None, credential: str | None, sent: dict[str, str]
) -> None:
    await collect(make(upstream.base_url, api_key), call(credential=credential))
    headers = upstream.received[0].headers
    assert {name: headers[name] for name in ("x-api-key", "authorization") if name in headers} == sent


async def test_a_user_and_password_of_the_url_are_basic_authorization(upstream: FakeUpstream) -> None:
    await collect(make(upstream.base_url.replace("//", "//me:pass@"), None), call())
    headers = upstream.received[0].headers
    assert headers["authorization"] == "Basic bWU6cGFzcw=="
    assert "x-api-key" not in headers


async def test_the_version_is_the_clients_or_the_one_we_know(upstream: FakeUpstream) -> None:
    await collect(make(upstream.base_url), call())
    later = {"anthropic-version": "2027-01-01", "anthropic-beta": "b1,b2"}
    await collect(make(upstream.base_url), call(headers=later))
    sent = [one.headers for one in upstream.received]
    assert [one["anthropic-version"] for one in sent] == [VERSION, "2027-01-01"]
    assert sent[1]["anthropic-beta"] == "b1,b2"


async def test_the_version_of_a_passed_through_request_is_the_clients_too(upstream: FakeUpstream) -> None:
    upstream.answer = lambda _: Reply(pieces=[b"{}"])
    backend = make(upstream.base_url)
    for headers in ([], [("anthropic-version", "2027-01-01")]):
        raw = RawCall(method="GET", path="files/f%2F1", query="a=b", headers=headers, body=None)
        answer = await backend.forward(raw)
        assert [piece async for piece in answer] == [b"{}"]
        answer.close()
    await backend.aclose()
    assert [one.headers["anthropic-version"] for one in upstream.received] == [VERSION, "2027-01-01"]
    assert {one.path for one in upstream.received} == {"/v1/files/f%2F1?a=b"}
    assert {one.headers["x-api-key"] for one in upstream.received} == {OWN_KEY}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_keeps_its_body_and_knows_its_api(upstream: FakeUpstream, stream: bool) -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}'
    upstream.replies(Reply(status=529, headers={"retry-after": "3", "request-id": "r"}, pieces=[body]))
    with pytest.raises(UpstreamRejected, match="ant answered 529: Overloaded") as caught:
        await collect(make(upstream.base_url), call(stream=stream))
    error = caught.value
    assert (error.status, error.body, error.api) == (529, body, "messages")
    assert error.headers == {"retry-after": "3"}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("overloaded_error", 529),
        ("rate_limit_error", 429),
        ("api_error", 500),
        ("invalid_request_error", 400),
    ],
)
async def test_a_stream_that_is_an_error_from_its_start_has_its_status(
    upstream: FakeUpstream, kind: str, status: int
) -> None:
    event = f'event: error\ndata: {{"type":"error","error":{{"type":"{kind}","message":"no"}}}}\n\n'
    upstream.replies(stream_reply([event.encode()]))
    with pytest.raises(UpstreamRejected) as caught:
        await collect(make(upstream.base_url), call(stream=True))
    assert caught.value.status == status


async def test_an_error_in_mid_stream_breaks_it_off(upstream: FakeUpstream) -> None:
    event = (
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    )
    upstream.replies(stream_reply([*MESSAGES.events[:3], event]))
    with pytest.raises(UpstreamCut, match="Overloaded"):
        await collect(make(upstream.base_url), call(stream=True))


async def test_a_stream_without_its_last_event_is_broken_off(upstream: FakeUpstream) -> None:
    upstream.replies(stream_reply(MESSAGES.events[:-1]))
    with pytest.raises(UpstreamCut):
        await collect(make(upstream.base_url), call(stream=True))


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"content": 5}', b"[]"])
async def test_what_is_no_message_is_invalid(upstream: FakeUpstream, body: bytes) -> None:
    upstream.replies(Reply(pieces=[body]))
    with pytest.raises(UpstreamInvalid):
        await collect(make(upstream.base_url), call())


async def test_keys_do_not_come_back_in_errors(upstream: FakeUpstream) -> None:
    upstream.answer = lambda request: Reply(
        status=401, pieces=[f'{{"error":{{"message":"bad {request.headers["x-api-key"]}"}}}}'.encode()]
    )
    for api_key, secret in ((OWN_KEY, OWN_KEY), (None, CLIENT_KEY)):
        with pytest.raises(UpstreamRejected) as caught:
            await collect(make(upstream.base_url, api_key), call())
        assert secret not in str(caught.value) + caught.value.body.decode()


async def test_health_asks_for_the_models(upstream: FakeUpstream) -> None:
    upstream.answer = lambda _: Reply(pieces=[b'{"data": [{"type": "model", "id": "claude-x"}]}'])
    backend = make(upstream.base_url)
    health = await backend.health()
    await backend.aclose()
    assert (health.ready, health.detail) == (True, "serves claude-x")
    received = upstream.received[0]
    assert (received.path, received.headers["x-api-key"]) == ("/v1/models", OWN_KEY)
    assert received.headers["anthropic-version"] == VERSION


@pytest.mark.parametrize("base_url", ["ftp://x", "https://", "not a url"])
def test_a_url_that_cannot_work_is_an_error_at_once(base_url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        make(base_url)
