from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import orjson
import pytest

from backends.errors import (
    BackendError,
    InvalidCall,
    UpstreamCut,
    UpstreamInvalid,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from backends.openai import OpenAIBackend
from backends.protocols import Call, Chunk
from tests.upstreams import (
    DONE,
    FakeUpstream,
    Reply,
    completion,
    delta,
    error_reply,
    frame,
    frames,
    stream_reply,
)

OWN_KEY = "sk-own-secret"
CLIENT_KEY = "sk-client-secret"


class Backoff:
    """Stands in for sleeping and for chance: the longest jitter, and no waiting."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []

    def uniform(self, low: float, high: float) -> float:
        assert low == 0.0
        return high

    async def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as server:
        yield server


@pytest.fixture
def backoff() -> Backoff:
    return Backoff()


@pytest.fixture
async def backend(upstream: FakeUpstream, backoff: Backoff) -> AsyncIterator[OpenAIBackend]:
    made = make(upstream.base_url, backoff=backoff)
    yield made
    await made.aclose()


def make(
    base_url: str,
    *,
    api_key: str | None = OWN_KEY,
    timeout_s: float = 10.0,
    retries: int = 2,
    backoff: Backoff | None = None,
) -> OpenAIBackend:
    backoff = backoff or Backoff()
    return OpenAIBackend(
        "up", base_url, api_key, timeout_s, retries, uniform=backoff.uniform, sleep=backoff.sleep
    )


def call(stream: bool = False, headers: Mapping[str, str] | None = None, **body: Any) -> Call:
    full = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}
    if stream:
        full["stream"] = True
    return Call(body=full, credential=f"Bearer {CLIENT_KEY}", headers=headers or {})


async def collect(backend: OpenAIBackend, asked: Call) -> list[Chunk]:
    return [chunk async for chunk in backend.stream(asked)]


def begin(backend: OpenAIBackend, asked: Call) -> AsyncGenerator[Chunk, None]:
    answer = backend.stream(asked)
    assert isinstance(answer, AsyncGenerator)
    return answer


def text_of(chunks: list[Chunk]) -> str:
    choices = [choice for chunk in chunks for choice in chunk.body["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def test_an_answer_comes_as_the_upstream_wrote_it(
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
    raw = orjson.dumps(completion("tök", vendor_extra={"a": 1}), option=orjson.OPT_INDENT_2)
    upstream.replies(Reply(pieces=[raw[:100], raw[100:]]))
    (chunk,) = await collect(backend, call())
    assert chunk.data == raw
    assert chunk.body == orjson.loads(raw)


async def test_the_body_goes_up_as_it_is(backend: OpenAIBackend, upstream: FakeUpstream) -> None:
    await collect(backend, call(temperature=0.5, vendor_field={"x": [1, None]}))
    (received,) = upstream.received
    assert received.path == "/v1/chat/completions"
    assert received.json() == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.5,
        "vendor_field": {"x": [1, None]},
    }


async def test_headers_that_are_safe_go_up_and_no_others(
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
    sent = {
        "traceparent": "00-aa-bb-01",
        "X-Request-Id": "r1",
        "host": "evil.example",
        "cookie": "s=1",
        "x-custom": "1",
        "authorization": "Bearer other",
    }
    await collect(backend, call(headers=sent))
    (received,) = upstream.received
    assert received.headers["traceparent"] == "00-aa-bb-01"
    assert received.headers["x-request-id"] == "r1"
    assert received.headers["host"].startswith("127.0.0.1:")
    assert received.headers["user-agent"].startswith("lockgate/")
    assert received.headers["content-type"] == "application/json"
    assert not {"cookie", "x-custom"} & set(received.headers)


@pytest.mark.parametrize(
    ("api_key", "credential", "authorization"),
    [
        (OWN_KEY, f"Bearer {CLIENT_KEY}", f"Bearer {OWN_KEY}"),
        (None, f"Bearer {CLIENT_KEY}", f"Bearer {CLIENT_KEY}"),
        (OWN_KEY, None, f"Bearer {OWN_KEY}"),
        (None, None, None),
    ],
)
async def test_the_backends_own_key_comes_first(
    upstream: FakeUpstream, api_key: str | None, credential: str | None, authorization: str | None
) -> None:
    backend = make(upstream.base_url, api_key=api_key)
    await collect(backend, Call(body={"model": "m"}, credential=credential))
    assert upstream.received[0].headers.get("authorization") == authorization
    await backend.aclose()


async def test_a_login_in_the_url_is_sent(upstream: FakeUpstream) -> None:
    backend = make(upstream.base_url.replace("//", "//me:pass@"), api_key=None)
    await collect(backend, call())
    assert upstream.received[0].headers["authorization"] == "Basic bWU6cGFzcw=="
    await backend.aclose()


@pytest.mark.parametrize(
    "asked",
    [
        Call(body={"model": "m"}, credential="Bearer a\r\nb"),
        Call(body={"model": "m"}, headers={"x-request-id": "a\nb"}),
        Call(body={"model": "m", "x": object()}),
    ],
)
async def test_a_call_that_cannot_be_sent_is_the_callers_fault(upstream: FakeUpstream, asked: Call) -> None:
    backend = make(upstream.base_url, api_key=None)
    with pytest.raises(InvalidCall):
        await collect(backend, asked)
    assert upstream.received == []
    await backend.aclose()


async def test_a_streamed_answer_comes_chunk_by_chunk(backend: OpenAIBackend, upstream: FakeUpstream) -> None:
    upstream.replies(stream_reply(frames(["a", "b"], usage=False)[:2], end="hang"))
    answer = begin(backend, call(stream=True))
    assert (await anext(answer)).body["choices"][0]["delta"]["role"] == "assistant"
    assert text_of([await anext(answer)]) == "a"
    await answer.aclose()


@pytest.mark.parametrize("cut", [1, 7, 10_000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
async def test_frames_may_be_cut_anywhere(
    backend: OpenAIBackend, upstream: FakeUpstream, cut: int, line_end: bytes
) -> None:
    whole = b"".join(frames(["tök→", "스트림"])).replace(b"\n", line_end)
    upstream.replies(stream_reply([whole[i : i + cut] for i in range(0, len(whole), cut)]))
    chunks = await collect(backend, call(stream=True))
    assert text_of(chunks) == "tök→스트림"
    assert b"".join(b"data: " + chunk.data + b"\n\n" for chunk in chunks) + DONE == b"".join(
        frames(["tök→", "스트림"])
    )


async def test_streams_without_done_are_whole_when_finished(
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
    upstream.replies(stream_reply(frames(done=False)))
    assert text_of(await collect(backend, call(stream=True))) == "hello"


@pytest.mark.parametrize(
    "reply",
    [
        stream_reply(frames(finish=None, usage=False, done=False)),
        stream_reply(frames()[:2], end="reset"),
        stream_reply([*frames()[:2], frame({"error": {"message": "engine died"}})]),
    ],
)
async def test_streams_that_break_off_say_so(
    backend: OpenAIBackend, upstream: FakeUpstream, reply: Reply
) -> None:
    upstream.replies(reply)
    seen: list[Chunk] = []
    with pytest.raises(UpstreamCut):
        await _into(seen, backend, call(stream=True))
    assert len(seen) >= 2
    assert len(upstream.received) == 1


async def _into(seen: list[Chunk], backend: OpenAIBackend, asked: Call) -> None:
    async for chunk in backend.stream(asked):
        seen.append(chunk)  # noqa: PERF401  an error must not lose what came before it


async def test_more_than_one_choice_is_awaited(backend: OpenAIBackend, upstream: FakeUpstream) -> None:
    upstream.replies(stream_reply(frames(done=False)))
    with pytest.raises(UpstreamCut):
        await collect(backend, call(stream=True, n=2))


async def test_an_error_at_the_start_of_a_stream_is_a_rejection(
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
    upstream.replies(stream_reply([frame({"error": {"message": "too long", "code": 400}}), DONE]))
    with pytest.raises(UpstreamRejected, match="too long") as caught:
        await collect(backend, call(stream=True))
    assert caught.value.status == 400


async def test_a_whole_answer_to_a_streamed_call_becomes_chunks(
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
    upstream.replies(Reply(pieces=[orjson.dumps(completion("hello"))]))
    chunks = await collect(backend, call(stream=True))
    assert text_of(chunks) == "hello"
    assert [c["finish_reason"] for chunk in chunks for c in chunk.body["choices"]] == [None, "stop"]
    assert chunks[-1].body["usage"]["total_tokens"] == 14


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "reply",
    [
        Reply(pieces=[b'{"id": "x", "choices": [']),
        Reply(pieces=[b"null"]),
        Reply(pieces=[b'{"choices": []}']),
        Reply(content_type="text/html", pieces=[b"<html>log in</html>"]),
        Reply(),
        Reply(status=307, headers={"location": "http://127.0.0.1:1/"}),
        Reply(headers={"content-encoding": "gzip"}, pieces=[b"\x1f\x8b"]),
    ],
)
async def test_what_is_no_answer_is_invalid_and_not_tried_again(
    backend: OpenAIBackend, upstream: FakeUpstream, reply: Reply, stream: bool
) -> None:
    upstream.replies(reply)
    with pytest.raises(UpstreamInvalid, match=r"^up"):
        await collect(backend, call(stream=stream))
    assert len(upstream.received) == 1


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, {"include_usage": True}),
        ({"stream_options": None}, {"include_usage": True}),
        ({"stream_options": {"include_usage": False}}, {"include_usage": True}),
        ({"stream_options": {"other": 1}}, {"other": 1, "include_usage": True}),
        ({"stream_options": "wrong"}, "wrong"),
    ],
)
async def test_streams_always_ask_for_usage(
    backend: OpenAIBackend, upstream: FakeUpstream, options: dict[str, Any], sent: Any
) -> None:
    upstream.replies(stream_reply(frames()))
    chunks = await collect(backend, call(stream=True, **options))
    assert upstream.received[0].json()["stream_options"] == sent
    assert chunks[-1].body["usage"]["total_tokens"] == 14


async def test_calls_without_stream_do_not(backend: OpenAIBackend, upstream: FakeUpstream) -> None:
    await collect(backend, call())
    assert "stream_options" not in upstream.received[0].json()


@pytest.mark.parametrize("status", [400, 422])
async def test_an_upstream_that_refuses_to_be_asked_for_usage_is_remembered(
    backend: OpenAIBackend, upstream: FakeUpstream, status: int
) -> None:
    refusal = error_reply(status, "Unrecognized request argument: stream_options")
    upstream.replies(refusal, stream_reply(frames(usage=False)))
    assert text_of(await collect(backend, call(stream=True))) == "hello"
    await collect(backend, call(stream=True, stream_options={"include_usage": True, "other": 1}))
    assert [request.json().get("stream_options") for request in upstream.received] == [
        {"include_usage": True},
        None,
        {"other": 1},
    ]


async def test_a_client_with_wrong_stream_options_changes_nothing_for_others(
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
    refusal = error_reply(400, "stream_options.other: unknown field")
    upstream.replies(refusal, refusal, stream_reply(frames()))
    with pytest.raises(UpstreamRejected, match="unknown field"):
        await collect(backend, call(stream=True, stream_options={"other": 1}))
    await collect(backend, call(stream=True))
    assert upstream.received[-1].json()["stream_options"] == {"include_usage": True}


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
    def echo(request: Any) -> Reply:
        said = f"refused {request.headers['authorization']}, {OWN_KEY} and {CLIENT_KEY}"
        return error_reply(401, said, retry_after=OWN_KEY)

    upstream.answer = echo
    backend = make(upstream.base_url.replace("//", "//me:pass-word@"), api_key=api_key or OWN_KEY)
    with pytest.raises(UpstreamRejected) as caught:
        await collect(backend, call(stream=stream))
    error = caught.value
    shown = str(error) + repr(error) + error.body.decode() + str(error.headers)
    assert not any(secret in shown for secret in (OWN_KEY, CLIENT_KEY, "pass-word"))
    assert "refused" in str(error)
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
    backend = OpenAIBackend("up", upstream.base_url, None, 0.3, 1000, uniform=lambda low, high: 0.05)
    upstream.replies(error_reply(503, "overloaded"))
    begun = time.monotonic()
    with pytest.raises(UpstreamRejected, match="overloaded"):
        await collect(backend, call())
    assert time.monotonic() - begun < 0.3
    assert 2 <= len(upstream.received) <= 6
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
    backend = make(upstream.base_url, timeout_s=0.3)
    upstream.replies(stream_reply(frames(["x"] * 10), gap_s=0.05))
    assert text_of(await collect(backend, call(stream=True))) == "x" * 10
    await backend.aclose()


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
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
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
    monkeypatch.setattr("backends.openai._MAX_ANSWER_BYTES", 1000)
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
    monkeypatch.setattr("backends.openai._HEALTH_TIMEOUT_S", 0.1)
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


async def test_tool_calls_arrive_whole(backend: OpenAIBackend, upstream: FakeUpstream) -> None:
    parts = ['{"ci', 'ty":"Pa', 'ris"}']
    calls = [{"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in parts]
    pieces = [*(frame(delta(content)) for content in calls), frame(delta({}, "tool_calls")), DONE]
    upstream.replies(stream_reply(pieces))
    chunks = await collect(backend, call(stream=True))
    got = [chunk.body["choices"][0]["delta"].get("tool_calls") for chunk in chunks[:-1]]
    assert "".join(calls[0]["function"]["arguments"] for calls in got if calls) == '{"city":"Paris"}'
