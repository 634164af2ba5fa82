from __future__ import annotations

import asyncio

import orjson
import pytest

from backends.errors import (
    UpstreamInvalid,
    UpstreamRejected,
)
from backends.openai import OpenAIBackend
from tests.openai_calls import OWN_KEY, begin, call, collect, make, text_of
from tests.upstreams import FakeUpstream, Reply, error_reply, frames, stream_reply


async def test_leaving_early_frees_the_upstream(backend: OpenAIBackend, upstream: FakeUpstream) -> None:
    upstream.replies(stream_reply(frames(["x"] * 500), gap_s=0.01))
    answer = begin(backend, call(stream=True))
    await anext(answer)
    assert (await backend.load()).running == 1
    await answer.aclose()
    assert (await backend.load()).running == 0
    await upstream.until(lambda server: server.aborted == 1, timeout_s=1.0)


@pytest.mark.parametrize("stream", [False, True])
async def test_cancelling_before_the_answer_frees_the_upstream(
    backend: OpenAIBackend, upstream: FakeUpstream, stream: bool
) -> None:
    upstream.replies(Reply(status=0, end="hang"))
    task = asyncio.ensure_future(collect(backend, call(stream=stream)))
    await upstream.until(lambda server: len(server.received) == 1)
    task.cancel()
    await upstream.until(lambda server: server.aborted == 1, timeout_s=1.0)
    assert (await backend.load()).running == 0


async def test_two_hundred_early_leavers_leave_the_pool_whole(
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
    async def leave_early() -> None:
        answer = begin(backend, call(stream=True))
        await anext(answer)
        await answer.aclose()

    upstream.replies(stream_reply(frames()[:1], end="hang"))
    await asyncio.gather(*(leave_early() for _ in range(200)))
    await upstream.until(lambda server: server.aborted == 200, timeout_s=2.0)
    await upstream.until(lambda server: server.open_connections == 0)
    upstream.replies(stream_reply(frames()))
    assert text_of(await collect(backend, call(stream=True))) == "hello"
    assert (await backend.load()).running == 0


async def test_connections_are_used_again(backend: OpenAIBackend, upstream: FakeUpstream) -> None:
    for stream in (True, False, True):
        await collect(backend, call(stream=stream))
    upstream.replies(error_reply(429, "slow down"))
    for _ in range(2):
        with pytest.raises(UpstreamRejected):
            await collect(backend, call())
    assert upstream.connections == 1


async def test_the_connection_is_used_again_though_the_body_ends_after_done(
    backend: OpenAIBackend, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.http_backend._DRAIN_TIMEOUT_S", 5.0)
    upstream.replies(stream_reply([*frames(), b": bye\n\n"], gap_s=0.005))
    for _ in range(3):
        await collect(backend, call(stream=True))
    assert upstream.connections == 1


async def test_an_upstream_that_lingers_after_done_does_not_hold_the_answer_up(
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
    upstream.replies(stream_reply(frames(), end="hang"))
    async with asyncio.timeout(1.0):
        assert text_of(await collect(backend, call(stream=True))) == "hello"
    await upstream.until(lambda server: server.aborted == 1)


async def test_answers_without_bound_are_refused(
    backend: OpenAIBackend, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.http_backend.MAX_ANSWER_BYTES", 1000)
    upstream.replies(Reply(pieces=[b" " * 900] * 2, end="hang"))
    with pytest.raises(UpstreamInvalid, match="more than 1000 bytes"):
        await collect(backend, call())
    await upstream.until(lambda server: server.aborted == 1)


@pytest.mark.parametrize(
    ("reply", "ready", "detail"),
    [
        (Reply(pieces=[b'{"data": [{"id": "a"}]}']), True, "serves a"),
        (
            Reply(pieces=[orjson.dumps({"data": [{"id": i} for i in range(5)]})]),
            True,
            "serves 0, 1, 2 and 2 more",
        ),
        (Reply(pieces=[b"{}"]), True, "answers"),
        (Reply(pieces=[b"<html>"]), True, "answers"),
        (error_reply(404, "no such path"), True, "answers; its list of models does not (404)"),
        (error_reply(401, f"bad key {OWN_KEY}"), False, "refuses the api_key (401)"),
        (error_reply(503, "loading"), False, "answers 503"),
        (Reply(status=0, end="reset"), False, "closed the connection"),
        (Reply(status=0, end="hang"), False, "did not answer|no answer"),
        (Reply(pieces=[b"{"], end="hang"), False, "sent nothing|no answer"),
    ],
)
async def test_health_says_what_a_person_needs(
    backend: OpenAIBackend,
    upstream: FakeUpstream,
    monkeypatch: pytest.MonkeyPatch,
    reply: Reply,
    ready: bool,
    detail: str,
) -> None:
    if reply.end == "hang":
        monkeypatch.setattr("backends.http_backend._HEALTH_TIMEOUT_S", 0.1)
    upstream.replies(reply)
    health = await backend.health()
    assert health.ready is ready
    assert any(part in health.detail for part in detail.split("|"))
    assert OWN_KEY not in health.detail
    received = upstream.received[0]  # aiohttp itself repeats a GET whose connection broke
    assert (received.method, received.path) == ("GET", "/v1/models")
    assert received.headers["authorization"] == f"Bearer {OWN_KEY}"


async def test_without_a_key_of_its_own_a_401_is_no_fault(upstream: FakeUpstream) -> None:
    backend = make(upstream.base_url, api_key=None)
    upstream.replies(error_reply(401, "who are you"))
    assert (await backend.health()).ready
    await backend.aclose()


async def test_nobody_there_is_not_ready(unused_tcp_port: int) -> None:
    backend = make(f"http://127.0.0.1:{unused_tcp_port}/v1")
    health = await backend.health()
    assert not health.ready
    assert "cannot connect" in health.detail
    await backend.aclose()
