from __future__ import annotations

from typing import Any

import orjson
import pytest

from backends.errors import BackendError, UpstreamCut, UpstreamInvalid, UpstreamRejected
from backends.openai_errors import Redactor
from backends.openai_stream import CompletionStream, as_chunks, completion
from backends.protocols import Chunk
from tests.upstreams import DONE, USAGE, delta, frame, frames
from tests.upstreams import completion as completion_body

REDACTOR = Redactor(["sk-secret-1"])


def run(data: bytes, *, choices: int = 1) -> tuple[list[Chunk], BackendError | None]:
    """The chunks of a whole body, and what it raised after them."""
    stream = CompletionStream("up", choices=choices, redactor=REDACTOR)
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


def test_chunks_keep_their_bytes() -> None:
    raw = b'{ "choices":[ {"index":0,"delta":{"content":"t\xc3\xb6k"},"finish_reason":"stop"}], "x":1 }'
    chunks, error = run(b"data: " + raw + b"\n\n" + DONE)
    assert error is None
    assert chunks == [Chunk(data=raw, body=orjson.loads(raw))]


def test_data_over_several_lines_fits_one() -> None:
    (chunk,), error = run(b'data: {"choices":\ndata: []}\n\n' + DONE)
    assert error is None
    assert (chunk.data, chunk.body) == (b'{"choices": []}', {"choices": []})


@pytest.mark.parametrize("done", [DONE, b"data:[DONE]\n\n", b"data: [DONE] \r\n\r\n", b"data: [DONE]"])
def test_done_ends_it(done: bytes) -> None:
    chunks, error = run(b"".join(frames(done=False)) + done)
    assert (len(chunks), error) == (5, None)


def test_nothing_after_done_comes_out() -> None:
    chunks, error = run(b"".join(frames()) + frame(delta({"content": "more"})))
    assert (len(chunks), error) == (5, None)


def test_comments_and_empty_events_are_read_over() -> None:
    chunks, error = run(b": ping\n\ndata:\n\n" + b"".join(frames()))
    assert (len(chunks), error) == (5, None)


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
    assert len(chunks) == 1
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
    assert len(chunks) == 1
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
    assert (len(chunks), error) == (1, None)


def test_a_whole_answer_keeps_its_bytes() -> None:
    data = orjson.dumps(completion_body(vendor_extra={"a": 1}), option=orjson.OPT_INDENT_2)
    chunk = completion("up", data, "application/json", REDACTOR)
    assert chunk.data == data
    assert chunk.body["vendor_extra"] == {"a": 1}


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
        completion("up", data, "application/json", REDACTOR)


def test_an_error_under_a_good_status_is_told() -> None:
    data = b'{"error": {"message": "quota of sk-secret-1 used up"}}'
    with pytest.raises(UpstreamInvalid, match=r"quota of \[redacted\] used up"):
        completion("up", data, "application/json", REDACTOR)


def test_a_whole_answer_as_chunks_says_the_same() -> None:
    tool = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = completion_body(system_fingerprint="fp")
    body["choices"] = [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "a"},
            "logprobs": {},
            "finish_reason": "stop",
        },
        {"message": {"role": "assistant", "tool_calls": [tool, tool]}, "finish_reason": "tool_calls"},
    ]
    chunks = list(as_chunks(body))
    assert [orjson.loads(chunk.data) for chunk in chunks] == [chunk.body for chunk in chunks]
    assert {chunk.body["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk.body["system_fingerprint"] for chunk in chunks} == {"fp"}
    assert [chunk.body["choices"] for chunk in chunks] == [
        [{"index": 0, "delta": {"role": "assistant", "content": "a"}, "logprobs": {}, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        [
            {
                "index": 1,
                "delta": {"role": "assistant", "tool_calls": [{"index": 0, **tool}, {"index": 1, **tool}]},
                "finish_reason": None,
            }
        ],
        [{"index": 1, "delta": {}, "finish_reason": "tool_calls"}],
        [],
    ]
    assert chunks[-1].body["usage"] == USAGE
    assert all("usage" not in chunk.body for chunk in chunks[:-1])


def test_an_answer_too_deep_to_be_written_is_invalid() -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(UpstreamInvalid, match="cannot be streamed"):
        list(as_chunks({**completion_body(), "extra": deep}))
