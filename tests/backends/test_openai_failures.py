from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from aiohttp import web
from msgspec.structs import replace

from backends.errors import (
    ApiMissing,
    UpstreamCut,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from backends.http_backend import Timeouts
from backends.openai import OpenAIBackend
from backends.protocols import Call
from tests.openai_calls import CLIENT_KEY, OWN_KEY, call, collect, make, text_of
from tests.raw_upstreams import raw_upstream
from tests.upstreams import FakeUpstream, Received, Reply, completion, error_reply, frames, stream_reply


@pytest.mark.parametrize("status", [400, 401, 404, 409, 429, 500, 501, 503])
@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_come_back_at_once_and_whole(
    backend: OpenAIBackend, upstream: FakeUpstream, status: int, stream: bool
) -> None:
    refusal = error_reply(status, "no", retry_after="1", x_ratelimit_remaining_requests="0", x_other="1")
    upstream.replies(refusal)
    with pytest.raises(UpstreamRejected, match=f"up answered {status}: no") as caught:
        await collect(backend, call(stream=stream))
    assert caught.value.status == status
    assert caught.value.body == refusal.pieces[0]
    assert caught.value.headers == {"retry-after": "1", "x-ratelimit-remaining-requests": "0"}
    assert len(upstream.received) == 1


async def test_html_errors_have_no_body(backend: OpenAIBackend, upstream: FakeUpstream) -> None:
    upstream.replies(Reply(status=502, content_type="text/html", pieces=[b"<html>bad gateway</html>"]))
    with pytest.raises(UpstreamRejected) as caught:
        await collect(backend, call())
    assert (caught.value.status, caught.value.body) == (502, b"")


@pytest.mark.parametrize("end", ["reset", "hang"])
async def test_an_error_whose_body_does_not_come_is_still_an_error(
    backend: OpenAIBackend, upstream: FakeUpstream, end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.http_backend._ERROR_BODY_TIMEOUT_S", 0.05)
    upstream.replies(Reply(status=429, pieces=[b'{"err'], end=end))
    with pytest.raises(UpstreamRejected) as caught:
        await collect(backend, call())
    assert (caught.value.status, caught.value.body) == (429, b"")


@pytest.mark.parametrize("api_key", [OWN_KEY, None])
@pytest.mark.parametrize("stream", [False, True])
async def test_keys_do_not_come_back_in_errors(
    upstream: FakeUpstream, api_key: str | None, stream: bool
) -> None:
    def echo(request: Received) -> Reply:
        sent = request.headers["authorization"].split()[1]
        return error_reply(401, f"refused {sent}, not {CLIENT_KEY} or pass-word", retry_after=sent)

    upstream.answer = echo
    backend = make(upstream.base_url.replace("//", "//me:pass-word@"), api_key=api_key)
    with pytest.raises(UpstreamRejected) as caught:
        await collect(backend, call(stream=stream))
    error = caught.value
    shown = str(error) + repr(error) + error.body.decode() + str(error.headers)
    sent = upstream.received[0].headers["authorization"].split()[1]
    assert sent == (OWN_KEY if api_key else "bWU6cGFzcy13b3Jk")
    assert not any(secret in shown for secret in (sent, CLIENT_KEY, "pass-word"))
    assert str(error) == "up answered 401: refused [redacted], not [redacted] or [redacted]"
    await backend.aclose()


async def test_the_server_is_asked_once(backend: OpenAIBackend, upstream: FakeUpstream) -> None:
    upstream.replies(Reply(status=0, end="reset"))
    asked = call()
    with pytest.raises(UpstreamUnreachable):
        await collect(backend, asked)
    assert (len(upstream.received), asked.report.requests) == (1, 1)


async def test_an_upstream_that_is_not_there_is_unreachable(unused_tcp_port: int) -> None:
    backend = make(f"http://127.0.0.1:{unused_tcp_port}/v1")
    with pytest.raises(UpstreamUnreachable):
        await collect(backend, call())
    await backend.aclose()


async def test_what_breaks_off_is_a_cut(backend: OpenAIBackend, upstream: FakeUpstream) -> None:
    upstream.replies(stream_reply(frames()[:1], end="reset"))
    with pytest.raises(UpstreamCut):
        await collect(backend, call(stream=True))
    assert len(upstream.received) == 1


SILENT = Reply(status=0, end="hang")
SILENT_AFTER_A_START = stream_reply(frames()[:1], end="hang")


@pytest.mark.parametrize(
    ("timeouts", "reply"),
    [
        (Timeouts(total_s=0.1), SILENT),
        (Timeouts(total_s=0.1), SILENT_AFTER_A_START),
        (Timeouts(first_token_s=0.1), SILENT),
        (Timeouts(first_token_s=0.1), stream_reply([], end="hang")),
        (Timeouts(idle_s=0.1), SILENT_AFTER_A_START),
        (Timeouts(total_s=0.3), stream_reply(frames(["x"] * 500), gap_s=0.02)),
    ],
)
async def test_every_wait_has_its_bound(upstream: FakeUpstream, timeouts: Timeouts, reply: Reply) -> None:
    backend = make(upstream.base_url, timeouts=timeouts)
    upstream.replies(reply)
    with pytest.raises(UpstreamTimeout):
        async with asyncio.timeout(5.0):
            await collect(backend, call(stream=True))
    await upstream.until(lambda server: server.aborted == 1)
    await backend.aclose()


async def test_a_calls_own_deadline_comes_before_the_backends(upstream: FakeUpstream) -> None:
    backend = make(upstream.base_url, timeouts=Timeouts(total_s=600.0))
    upstream.replies(SILENT)
    asked = replace(call(), deadline=asyncio.get_running_loop().time() + 0.1)
    with pytest.raises(UpstreamTimeout):
        await collect(backend, asked)
    await backend.aclose()


async def test_the_first_token_is_awaited_in_streams_only(upstream: FakeUpstream) -> None:
    backend = make(upstream.base_url, timeouts=Timeouts(first_token_s=0.05))
    upstream.replies(Reply(pieces=[orjson.dumps(completion())], delay_s=0.2))
    assert len(await collect(backend, call())) == 1
    await backend.aclose()


async def test_an_answer_may_take_long_while_it_keeps_coming(upstream: FakeUpstream) -> None:
    backend = make(upstream.base_url, timeouts=Timeouts(first_token_s=0.5, idle_s=0.5))
    upstream.replies(stream_reply(frames(["x"] * 12), gap_s=0.06))
    assert text_of(await collect(backend, call(stream=True))) == "x" * 12
    await backend.aclose()


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_an_api_that_the_server_lacks_is_given_up(
    backend: OpenAIBackend, upstream: FakeUpstream, status: int
) -> None:
    upstream.replies(error_reply(status, "Not Found"))
    with pytest.raises(ApiMissing, match="responses"):
        await collect(backend, Call(api="responses", body={"model": "m", "input": "hi"}))
    assert "responses" not in backend.apis
    assert "chat" in backend.apis


async def test_a_model_that_the_server_lacks_is_no_missing_api(
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
    upstream.replies(error_reply(404, "The model 'm' does not exist."))
    with pytest.raises(UpstreamRejected):
        await collect(backend, Call(api="responses", body={"model": "m", "input": "hi"}))
    assert "responses" in backend.apis


async def test_a_model_may_think_for_longer_than_it_may_fall_silent() -> None:
    """The wait for the first part, its headers sent already, is `first_token_s`'s and not `idle_s`'s."""

    async def thinking(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await asyncio.sleep(0.2)
        for event in frames():
            await response.write(event)
        return response

    async with raw_upstream(thinking) as upstream:
        backend = make(upstream.base_url, timeouts=Timeouts(first_token_s=5.0, idle_s=0.05))
        assert text_of(await collect(backend, call(stream=True))) == "hello"
        await backend.aclose()
