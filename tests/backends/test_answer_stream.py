from __future__ import annotations

import itertools
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.answer_stream import AnswerStream, whole_answer
from backends.errors import BackendError, UpstreamCut, UpstreamInvalid, UpstreamRejected
from backends.protocols import Chunk
from backends.rejection import Redactor
from policies.types import Api
from tests.openai_calls import events_of
from tests.upstreams import DONE, USAGE, delta, frame, frames
from tests.upstreams import completion as completion_body

REDACTOR = Redactor(["sk-secret-1"])


def run(data: bytes, *, choices: int = 1, api: Api = "chat") -> tuple[list[Chunk], BackendError | None]:
    """The chunks of a whole body, and what it raised after them."""
    stream = AnswerStream("up", api, choices=choices, redactor=REDACTOR)
    chunks: list[Chunk] = []
    try:
        for chunk in stream.feed(data):
            chunks.append(chunk)  # noqa: PERF402  the error must not lose what came before it
        if not stream.done:
            chunks.extend(stream.end())
    except BackendError as error:
        return chunks, error
    assert stream.done
    return chunks, None


def finish(index: int, reason: str | None = "stop") -> bytes:
    return frame({"choices": [{"index": index, "delta": {}, "finish_reason": reason}]})


def test_events_keep_their_bytes() -> None:
    raw = b'{ "choices":[ {"index":0,"delta":{"content":"t\xc3\xb6k"},"finish_reason":"stop"}], "x":1 }'
    chunks, error = run(b"data: " + raw + b"\n\n" + DONE)
    assert error is None
    assert [(chunk.data, list(chunk.events)) for chunk in chunks] == [
        (b"data: " + raw + b"\n\n", [orjson.loads(raw)])
    ]


def test_what_comes_in_one_piece_is_one_chunk() -> None:
    (chunk,), error = run(b"".join(frames(usage=False)))
    assert error is None
    assert chunk.data == b"".join(frames(usage=False, done=False))


def test_usage_comes_in_a_chunk_of_its_own() -> None:
    chunks, error = run(b"".join(frames()))
    assert error is None
    assert [(len(chunk.events), chunk.tells_usage) for chunk in chunks] == [(4, False), (1, True)]


def test_empty_usage_is_told_too() -> None:
    (chunk,), error = run(frame(delta({"content": "a"}, "stop", usage=None)) * 2 + DONE)
    assert error is None
    assert (len(chunk.events), chunk.tells_usage) == (2, True)


def test_data_over_several_lines_is_one_event() -> None:
    (chunk,), error = run(b'data: {"choices":\ndata: []}\n\n' + DONE)
    assert error is None
    assert list(chunk.events) == [{"choices": []}]


@pytest.mark.parametrize("done", [DONE, b"data:[DONE]\n\n", b"data: [DONE] \r\n\r\n", b"data: [DONE]"])
def test_done_ends_it(done: bytes) -> None:
    chunks, error = run(b"".join(frames(done=False)) + done)
    assert (len(events_of(chunks)), error) == (5, None)


def test_nothing_after_done_comes_out() -> None:
    chunks, error = run(b"".join(frames()) + frame(delta({"content": "more"})))
    assert (len(events_of(chunks)), error) == (5, None)


def test_comments_and_empty_events_pass_without_an_event() -> None:
    chunks, error = run(b": ping\n\ndata:\n\n" + b"".join(frames()))
    assert (len(events_of(chunks)), error) == (5, None)
    assert chunks[0].data.startswith(b": ping\n\ndata:\n\n")


@pytest.mark.parametrize(
    ("data", "choices"),
    [
        (finish(0), 1),
        (finish(0) + finish(1, "length"), 2),
        (b"".join(frames(usage=True, done=False)), 1),
        (b"".join(frames(usage=False, done=False)).removesuffix(b"\n"), 1),
    ],
)
def test_without_done_it_is_whole_when_every_choice_has_finished(data: bytes, choices: int) -> None:
    chunks, error = run(data, choices=choices)
    assert error is None
    assert chunks


@pytest.mark.parametrize(
    ("data", "choices"),
    [
        (b"".join(frames(finish=None, done=False)), 1),
        (finish(0) + finish(1, None), 1),
        (finish(0), 2),
        (frame({"choices": []}), 1),
        (frame({"prompt_filter_results": []}), 1),
        (finish(0) + b'data: {"choi', 1),
    ],
)
def test_without_done_it_is_cut_otherwise(data: bytes, choices: int) -> None:
    chunks, error = run(data, choices=choices)
    assert chunks
    assert isinstance(error, UpstreamCut)


@pytest.mark.parametrize(
    "data", [b"", DONE, b"<html></html>", b"data: {bad\n\n", b"data: 7\n\n", b"data: []\n\n"]
)
def test_what_is_no_answer_from_its_start_is_invalid(data: bytes) -> None:
    chunks, error = run(data)
    assert chunks == []
    assert isinstance(error, UpstreamInvalid)


@pytest.mark.parametrize("event", [b"data: {bad\n\n", b"data: []\n\n"])
def test_what_goes_wrong_later_is_a_cut(event: bytes) -> None:
    chunks, error = run(frames()[0] + event)
    assert len(events_of(chunks)) == 1
    assert isinstance(error, UpstreamCut)


@pytest.mark.parametrize(
    "event",
    [
        frame({"error": {"message": "out of memory near sk-secret-1", "code": 500}}),
        frame({"error": "out of memory near sk-secret-1", "error_type": "x"}),
        b'event: error\ndata: {"message": "out of memory near sk-secret-1"}\n\n',
        b"event: error\ndata: out of memory near sk-secret-1\n\n",
        frame(delta({}, "error", error={"message": "out of memory near sk-secret-1"})),
    ],
)
def test_an_error_event_ends_the_answer_with_its_message(event: bytes) -> None:
    chunks, error = run(frames()[0] + event + DONE)
    assert len(events_of(chunks)) == 1
    assert isinstance(error, UpstreamCut)
    assert "out of memory near [redacted]" in str(error)
    chunks, error = run(event + DONE)
    assert chunks == []
    assert isinstance(error, UpstreamRejected)
    assert "out of memory near [redacted]" in str(error)
    assert b"sk-secret" not in error.body


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": {"message": "m", "code": 503}}, 503),
        ({"error": {"message": "m", "code": "rate_limit"}}, 502),
        ({"error": {"message": "m", "code": 200}}, 502),
        ({"error": "m", "status_code": 429}, 429),
    ],
)
def test_an_error_at_the_start_has_the_status_it_names(body: dict[str, Any], status: int) -> None:
    _, error = run(frame(body))
    assert isinstance(error, UpstreamRejected)
    assert error.status == status
    assert orjson.loads(error.body) == body


@pytest.mark.parametrize(
    "body",
    [
        {"choices": 7},
        {"choices": ["x"]},
        {"choices": [{"index": [1], "finish_reason": 3}]},
        {"choices": [{}]},
        {"choices": None},
    ],
)
def test_odd_chunks_pass(body: dict[str, Any]) -> None:
    chunks, error = run(frame(body) + DONE)
    assert (len(events_of(chunks)), error) == (1, None)


def test_a_whole_answer_keeps_its_bytes() -> None:
    data = orjson.dumps(completion_body(vendor_extra={"a": 1}), option=orjson.OPT_INDENT_2)
    chunk = whole_answer("up", "chat", data, "application/json", REDACTOR)
    assert (chunk.data, chunk.whole) == (data, True)
    assert chunk.events[0]["vendor_extra"] == {"a": 1}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"id": "x", "choices": [',
        b"null",
        b"[]",
        b"{}",
        b'{"choices": null}',
        b'{"choices": []}',
        b'{"choices": [null]}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": {"tool_calls": [1]}}]}',
    ],
)
def test_an_answer_without_a_completion_is_invalid(data: bytes) -> None:
    with pytest.raises(UpstreamInvalid, match=r"^up answered with"):
        whole_answer("up", "chat", data, "application/json", REDACTOR)


def test_an_error_under_a_good_status_is_told() -> None:
    data = b'{"error": {"message": "quota of sk-secret-1 used up"}}'
    with pytest.raises(UpstreamInvalid, match=r"quota of \[redacted\] used up"):
        whole_answer("up", "chat", data, "application/json", REDACTOR)


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("completions", {"choices": [{"text": "a"}]}),
        ("messages", {"content": [{"type": "text", "text": "a"}]}),
        ("messages", {"content": []}),
        ("responses", {"output": [{"type": "message"}]}),
        ("embeddings", {"data": [{"embedding": [1.0]}]}),
    ],
)
def test_every_api_has_answers_of_its_own(api: Api, body: dict[str, Any]) -> None:
    data = orjson.dumps(body)
    assert whole_answer("up", api, data, "application/json", REDACTOR).events == (body,)
    with pytest.raises(UpstreamInvalid):
        whole_answer("up", api, b'{"error": null}', "application/json", REDACTOR)


def typed(**body: Any) -> bytes:
    return f"event: {body['type']}\ndata: {orjson.dumps(body).decode()}\n\n".encode()


@pytest.mark.parametrize(
    ("api", "last"),
    [
        ("messages", "message_stop"),
        ("responses", "response.completed"),
        ("responses", "response.incomplete"),
        ("responses", "response.failed"),
    ],
)
def test_a_typed_stream_ends_with_its_last_event(api: Api, last: str) -> None:
    begun = typed(type="message_start") + b'event: ping\ndata: {"type": "ping"}\n\n'
    chunks, error = run(begun + typed(type=last, x=1), api=api)
    assert error is None
    assert b"".join(chunk.data for chunk in chunks) == begun + typed(type=last, x=1)
    _, error = run(begun, api=api)
    assert isinstance(error, UpstreamCut)


def test_an_anthropic_error_has_the_status_of_its_type() -> None:
    event = typed(type="error", error={"type": "overloaded_error", "message": "Overloaded"})
    _, error = run(event, api="messages")
    assert isinstance(error, UpstreamRejected)
    assert (error.status, str(error)) == (529, "up answered 529: Overloaded")
    _, error = run(typed(type="message_start") + event, api="messages")
    assert isinstance(error, UpstreamCut)


_EVENT = st.sampled_from(
    [
        frame(delta({"content": "tök→"})),
        frame(delta({"content": "a"}, usage=None)),
        frame({**delta({}), "choices": [], "usage": dict(USAGE)}),
        frame(delta({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]})),
        frame(delta({"reasoning_content": "hm"}, logprobs={"content": []})),
        b": comment\n\n",
        b'data: {"choices":\ndata: []}\n\n',
    ]
)


@settings(deadline=None)
@given(
    events=st.lists(_EVENT, min_size=1, max_size=12),
    line_end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(1, 2000), max_size=30),
)
def test_any_cut_gives_the_same_events_and_bytes(
    events: list[bytes], line_end: bytes, cuts: list[int]
) -> None:
    body = b"".join([frame(delta({"role": "assistant"})), *events]).replace(b"\n", line_end)
    whole = body + DONE.replace(b"\n", line_end)
    edges = [0, *sorted(cut for cut in set(cuts) if cut < len(whole)), len(whole)]
    stream = AnswerStream("up", "chat", redactor=REDACTOR)
    chunks = [chunk for a, b in itertools.pairwise(edges) for chunk in stream.feed(whole[a:b])]
    at_once, _ = run(whole)
    assert stream.done
    assert b"".join(chunk.data for chunk in chunks) == body
    assert events_of(chunks) == events_of(at_once)
