from __future__ import annotations

from typing import Any

import orjson
import pytest

from backends.errors import (
    InvalidCall,
    UpstreamCut,
    UpstreamInvalid,
    UpstreamRejected,
)
from backends.openai import OpenAIBackend
from backends.protocols import Call, Chunk
from tests.openai_calls import CLIENT_KEY, OWN_KEY, begin, call, collect, events_of, make, text_of
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


async def test_an_answer_comes_as_the_upstream_wrote_it(
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
    raw = orjson.dumps(completion("tök", vendor_extra={"a": 1}), option=orjson.OPT_INDENT_2)
    upstream.replies(Reply(pieces=[raw[:100], raw[100:]]))
    (chunk,) = await collect(backend, call())
    assert chunk.data == raw
    assert (chunk.whole, list(chunk.events)) == (True, [orjson.loads(raw)])


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


async def test_the_calls_headers_go_up_but_the_credential_is_the_backends(
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
    sent = {
        "traceparent": "00-aa-bb-01",
        "x-request-id": "r1",
        "authorization": "Bearer other",
    }
    await collect(backend, call(headers=sent))
    (received,) = upstream.received
    assert received.headers["traceparent"] == "00-aa-bb-01"
    assert received.headers["x-request-id"] == "r1"
    assert received.headers["authorization"] == f"Bearer {OWN_KEY}"
    assert received.headers["user-agent"].startswith("lockgate/")
    assert received.headers["content-type"] == "application/json"


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
    upstream.replies(stream_reply(frames(["a", "b"], usage=False)[:2], gap_s=0.05, end="hang"))
    answer = begin(backend, call(stream=True))
    assert (await anext(answer)).events[0]["choices"][0]["delta"]["role"] == "assistant"
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
    done = DONE.replace(b"\n", line_end)
    assert b"".join(chunk.data for chunk in chunks) + done == whole


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
    assert len(events_of(seen)) >= 2
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


async def test_a_whole_answer_to_a_streamed_call_is_told_to_be_one(
    backend: OpenAIBackend, upstream: FakeUpstream
) -> None:
    upstream.replies(Reply(pieces=[orjson.dumps(completion("hello"))]))
    (chunk,) = await collect(backend, call(stream=True))
    assert chunk.whole
    assert chunk.events[0]["choices"][0]["message"]["content"] == "hello"


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
    assert chunks[-1].events[0]["usage"]["total_tokens"] == 14


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


async def test_tool_calls_arrive_whole(backend: OpenAIBackend, upstream: FakeUpstream) -> None:
    parts = ['{"ci', 'ty":"Pa', 'ris"}']
    calls = [{"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in parts]
    pieces = [*(frame(delta(content)) for content in calls), frame(delta({}, "tool_calls")), DONE]
    upstream.replies(stream_reply(pieces))
    chunks = await collect(backend, call(stream=True))
    got = [event["choices"][0]["delta"].get("tool_calls") for event in events_of(chunks)[:-1]]
    assert "".join(calls[0]["function"]["arguments"] for calls in got if calls) == '{"city":"Paris"}'
