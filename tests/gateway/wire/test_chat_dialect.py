"""Chat completions as a dialect."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.errors import RequestError
from gateway.wire.chat_dialect import ChatDialect
from gateway.wire.dialect import Dialect
from policies.types import Usage
from tests.chat_streams import USAGE, completion, messages, streams, tool_call

DIALECT: Dialect = ChatDialect()
BODY = {"model": "auto", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]}


def assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    assembler = DIALECT.assembler()
    for event in events:
        assembler.add(event)
    return assembler.answer()


def test_a_request_is_checked() -> None:
    asked = DIALECT.check({**BODY, "stream": True, "stream_options": {"include_usage": True}})
    assert (asked.model, asked.stream, asked.include_usage) == ("auto", True, True)
    with pytest.raises(RequestError) as caught:
        DIALECT.check({**BODY, "messages": [{"role": "robot"}]})
    assert caught.value.param == "messages[0].role"


def test_the_body_is_its_own_view() -> None:
    assert DIALECT.chat_view(BODY) is BODY


def test_the_question_is_the_content_of_the_last_message() -> None:
    assert DIALECT.without_question(BODY) == {
        "model": "auto",
        "messages": [{"role": "system", "content": "s"}, {"role": "user"}],
    }
    assert BODY["messages"][-1] == {"role": "user", "content": "hi"}


@given(messages(), st.booleans())
@settings(deadline=None)
def test_an_answer_survives_both_ways(message: dict[str, Any], include_usage: bool) -> None:
    whole = completion(message)
    events = list(DIALECT.events(whole, include_usage=include_usage))
    assert assembled(events) == (whole if include_usage else {k: v for k, v in whole.items() if k != "usage"})
    ChatCompletion.model_validate(whole)
    for event in events:
        ChatCompletionChunk.model_validate(event)


@given(messages(), st.data())
@settings(deadline=None)
def test_a_stream_is_put_together_however_it_was_cut(message: dict[str, Any], data: st.DataObject) -> None:
    whole = completion(message)
    said = assembled(data.draw(streams(whole)))
    assert said["choices"][0]["message"] == {"role": "assistant", "content": "", **message}
    assert said["usage"] == USAGE


def test_usage_is_read() -> None:
    details = {"cached_tokens": 5, "cache_write_tokens": 2}
    usage = {**USAGE, "prompt_tokens_details": details}
    expected = Usage(prompt_tokens=9, completion_tokens=4, cached_tokens=5, cache_write_tokens=2)
    assert DIALECT.usage(completion({}, usage=usage)) == expected
    assert DIALECT.usage({"choices": []}) is None
    odd = {"prompt_tokens": None, "completion_tokens": "4", "prompt_tokens_details": None}
    assert DIALECT.usage({"usage": odd}) == Usage()


@pytest.mark.parametrize(
    ("whole", "why"),
    [
        (completion({"content": "a"}), ""),
        (completion({"tool_calls": [tool_call(0)]}, "tool_calls"), ""),
        (completion({"refusal": "No."}), ""),
        (completion({"content": " "}), "the answer is empty"),
        (completion({"content": "a"}, "length"), "the answer ended with length"),
        (completion({"content": "a"}, None), "the answer ended with no finish reason"),
        (completion({}, choices=[]), "the answer has no choices"),
    ],
)
def test_only_whole_answers_are_kept(whole: dict[str, Any], why: str) -> None:
    assert DIALECT.why_not_stored(whole) == why


def test_a_stored_answer_is_served_as_a_fresh_one() -> None:
    fresh = DIALECT.renewed(completion({"content": "a"}, vendor=1), model="auto", now=9.5)
    assert fresh["id"].startswith("chatcmpl-")
    assert fresh["id"] != "chatcmpl-1a"
    assert (fresh["created"], fresh["model"], fresh["vendor"]) == (9, "auto", 1)


def test_frames_and_errors_are_data() -> None:
    assert DIALECT.frame({"a": 1}) == b'data: {"a":1}\n\n'
    assert DIALECT.end == b"data: [DONE]\n\n"
    assert DIALECT.error_body(RequestError("No.")).startswith(b'{"error":{"message":"No."')


def test_an_upstreams_error_of_many_lines_is_one_event() -> None:
    upstream = orjson.dumps({"error": {"message": "No."}}, option=orjson.OPT_INDENT_2)
    frame = DIALECT.error_frame(RequestError("m", upstream_body=upstream))
    assert frame == b'data: {"error":{"message":"No."}}\n\n'
