from __future__ import annotations

from typing import Any

import orjson
import pytest

from backends.errors import (
    BackendError,
    UpstreamCut,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from backends.openai import OpenAIBackend
from tests.openai_calls import CLIENT_KEY, OWN_KEY, Backoff, call, collect, make, text_of
from tests.upstreams import FakeUpstream, Received, Reply, completion, error_reply, frames, stream_reply


@pytest.mark.parametrize("status", [400, 401, 404, 409, 429, 500, 501])
@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_come_back_at_once_and_whole(
    backend: OpenAIBackend, upstream: FakeUpstream, backoff: Backoff, status: int, stream: bool
) -> None:
    refusal = error_reply(status, "no", retry_after="1", x_ratelimit_remaining_requests="0", x_other="1")
    upstream.replies(refusal)
    with pytest.raises(UpstreamRejected, match=f"up answered {status}: no") as caught:
        await collect(backend, call(stream=stream))
    assert caught.value.status == status
    assert caught.value.body == refusal.pieces[0]
    assert caught.value.headers == {"retry-after": "1", "x-ratelimit-remaining-requests": "0"}
    assert (len(upstream.received), backoff.slept_s) == (1, [])


async def test_html_errors_have_no_body(backend: OpenAIBackend, upstream: FakeUpstream) -> None:
    upstream.replies(Reply(status=502, content_type="text/html", pieces=[b"<html>bad gateway</html>"]))
    with pytest.raises(UpstreamRejected) as caught:
        await collect(backend, call())
    assert (caught.value.status, caught.value.body) == (502, b"")


@pytest.mark.parametrize("end", ["reset", "hang"])
async def test_an_error_whose_body_does_not_come_is_still_an_error(
    backend: OpenAIBackend, upstream: FakeUpstream, end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.openai._ERROR_BODY_TIMEOUT_S", 0.05)
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


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_failures_that_pass_are_tried_again(
    backend: OpenAIBackend, upstream: FakeUpstream, backoff: Backoff, status: int
) -> None:
    broken = error_reply(status, "later")
    upstream.replies(broken, broken, stream_reply(frames()))
    assert text_of(await collect(backend, call(stream=True))) == "hello"
    assert (len(upstream.received), backoff.slept_s) == (3, [0.25, 0.5])


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_retries_are_further_attempts(upstream: FakeUpstream, backoff: Backoff, retries: int) -> None:
    backend = make(upstream.base_url, retries=retries, backoff=backoff)
    upstream.replies(error_reply(503, "overloaded"))
    with pytest.raises(UpstreamRejected, match="overloaded"):
        await collect(backend, call())
    assert (len(upstream.received), len(backoff.slept_s)) == (1 + retries, retries)
    await backend.aclose()


async def test_lost_connections_are_tried_again(
    backend: OpenAIBackend, upstream: FakeUpstream, backoff: Backoff
) -> None:
    lost = Reply(status=0, end="reset")
    upstream.replies(lost, lost, Reply(pieces=[orjson.dumps(completion())]))
    assert len(await collect(backend, call())) == 1
    assert (len(upstream.received), len(backoff.slept_s)) == (3, 2)


async def test_an_upstream_that_is_not_there_is_unreachable(unused_tcp_port: int, backoff: Backoff) -> None:
    backend = make(f"http://127.0.0.1:{unused_tcp_port}/v1", backoff=backoff)
    with pytest.raises(UpstreamUnreachable):
        await collect(backend, call())
    assert len(backoff.slept_s) == 2
    await backend.aclose()


@pytest.mark.parametrize(
    ("retry_after", "slept_s"),
    [("1", [1.0]), ("0", [0.25]), ("5", []), ("Fri, 31 Dec 1999 23:59:59 GMT", [])],
)
async def test_an_upstream_that_says_when_is_not_asked_before(
    backend: OpenAIBackend, upstream: FakeUpstream, backoff: Backoff, retry_after: str, slept_s: list[float]
) -> None:
    upstream.replies(error_reply(503, "later", retry_after=retry_after), Reply(pieces=[b"[]"]))
    with pytest.raises(BackendError):
        await collect(backend, call())
    assert backoff.slept_s == slept_s


async def test_nothing_is_tried_again_once_something_has_come(
    backend: OpenAIBackend, upstream: FakeUpstream, backoff: Backoff
) -> None:
    upstream.replies(stream_reply(frames()[:1], end="reset"))
    with pytest.raises(UpstreamCut):
        await collect(backend, call(stream=True))
    assert (len(upstream.received), backoff.slept_s) == (1, [])


async def test_the_timeout_bounds_all_attempts_together(upstream: FakeUpstream) -> None:
    backend = OpenAIBackend("up", upstream.base_url, None, 0.5, 1000, uniform=lambda low, high: 0.05)
    upstream.replies(error_reply(503, "overloaded"))
    with pytest.raises((UpstreamRejected, UpstreamTimeout)):
        await collect(backend, call())
    assert len(upstream.received) <= 11
    await backend.aclose()


async def test_no_wait_is_begun_that_would_outlast_the_timeout(
    upstream: FakeUpstream, backoff: Backoff
) -> None:
    backend = OpenAIBackend(
        "up", upstream.base_url, None, 5.0, 2, uniform=lambda low, high: 60.0, sleep=backoff.sleep
    )
    upstream.replies(error_reply(503, "overloaded"))
    with pytest.raises(UpstreamRejected, match="overloaded"):
        await collect(backend, call())
    assert backoff.slept_s == []
    await backend.aclose()


@pytest.mark.parametrize("reply", [Reply(status=0, end="hang"), stream_reply(frames()[:1], end="hang")])
async def test_silence_times_out_and_is_not_tried_again(upstream: FakeUpstream, reply: Reply) -> None:
    backend = make(upstream.base_url, timeout_s=0.1)
    upstream.replies(reply)
    with pytest.raises(UpstreamTimeout, match=r"0\.1 s"):
        await collect(backend, call(stream=True))
    assert len(upstream.received) == 1
    await upstream.until(lambda server: server.aborted == 1)
    await backend.aclose()


async def test_a_long_answer_may_take_longer_than_the_timeout(upstream: FakeUpstream) -> None:
    backend = make(upstream.base_url, timeout_s=0.6)
    upstream.replies(stream_reply(frames(["x"] * 10), gap_s=0.06))
    assert text_of(await collect(backend, call(stream=True))) == "x" * 10
    await backend.aclose()
