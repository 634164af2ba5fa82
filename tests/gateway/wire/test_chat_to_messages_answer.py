"""A message and its stream, told to an OpenAI client."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.chat_stream import Assembler
from gateway.wire.chat_to_messages import ChatToMessages
from gateway.wire.messages_stream import as_events
from gateway.wire.messages_to_chat import MessagesToChat
from tests.gateway.wire.messages_cases import (
    asking,
    blocks,
    call,
    chatting,
    completions,
    message,
    text,
    through,
    tool_use,
)

TRANSLATOR = ChatToMessages(clock=lambda: 7.5)
THOUGHT = {"type": "thinking", "thinking": "6 by 7", "signature": "s"}


def whole(answer: dict[str, Any]) -> dict[str, Any]:
    return TRANSLATOR.answer(answer, chatting())


def streamed(events: Any) -> list[dict[str, Any]]:
    return list(through(TRANSLATOR.events(chatting(stream=True)), events))


def assembled(events: Any) -> dict[str, Any]:
    assembler = Assembler()
    for chunk in streamed(events):
        assembler.add(chunk)
    return assembler.answer()


def test_an_answer_is_a_completion() -> None:
    assert whole(message(text("Hello."), stop_reason="end_turn")) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 7,
        "model": "claude-x",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello."},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 5,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_cached_tokens_are_a_part_of_the_prompt() -> None:
    usage = {
        "input_tokens": 2,
        "cache_read_input_tokens": 6,
        "cache_creation_input_tokens": 1,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 4},
    }
    assert whole(message(text("a"), usage=usage))["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("later_reason", "stop"),
        (None, None),
    ],
)
def test_each_stop_reason_has_its_finish_reason(stop_reason: Any, finish_reason: Any) -> None:
    answer = message(text("a"), stop_reason=stop_reason)
    assert whole(answer)["choices"][0]["finish_reason"] == finish_reason
    assert assembled(as_events(answer))["choices"][0]["finish_reason"] == finish_reason


def test_thinking_is_reasoning_and_is_given_with_its_signature() -> None:
    redacted = {"type": "redacted_thinking", "data": "x"}
    answer = message(THOUGHT, redacted, text("42"))
    for choice in (whole(answer)["choices"][0], assembled(as_events(answer))["choices"][0]):
        said = choice["message"]
        assert said["content"] == "42"
        assert said["reasoning_content"] == "6 by 7"
        assert said["thinking_blocks"] == [THOUGHT, redacted]


def test_what_an_answer_thought_comes_back_with_its_calls() -> None:
    said = whole(message(THOUGHT, tool_use("t", "f", {"a": 1}), stop_reason="tool_use"))["choices"][0][
        "message"
    ]
    history = [{"role": "user", "content": "hi"}, said, {"role": "tool", "tool_call_id": "t", "content": "3"}]
    again = TRANSLATOR.request(chatting(messages=history))
    assert again["messages"][1]["content"] == [THOUGHT, tool_use("t", "f", {"a": 1})]


def test_uses_of_tools_are_calls_with_the_same_ids() -> None:
    answer = message(
        text("Let me see."), tool_use("t1", "f", {"a": 1}), tool_use("t2", "g", {}), stop_reason="tool_use"
    )
    choice = whole(answer)["choices"][0]
    assert choice["message"]["tool_calls"] == [call("t1", "f", '{"a":1}'), call("t2", "g", "{}")]
    assert choice["finish_reason"] == "tool_calls"


def test_why_an_answer_was_refused_is_told() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "Not this."}
    answer = message(stop_reason="refusal", stop_details=details)
    for choice in (whole(answer)["choices"][0], assembled(as_events(answer))["choices"][0]):
        assert choice["finish_reason"] == "content_filter"
        assert choice["message"]["refusal"] == "Not this."


def test_what_anthropics_own_tools_did_is_left_out() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    answer = message(search, {"type": "web_search_tool_result", "content": []}, text("a"))
    for choice in (whole(answer)["choices"][0], assembled(as_events(answer))["choices"][0]):
        assert choice["message"] == {"role": "assistant", "content": "a"}


def test_a_stream_is_role_text_calls_reason_and_usage_in_this_order() -> None:
    answer = message(text("Hi."), tool_use("t", "f", {"a": 1}), stop_reason="tool_use")
    chunks = streamed([{"type": "ping"}, *as_events(answer)])
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"content": "Hi."},
        {
            "tool_calls": [
                {"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":1}'}}]},
        {},
    ]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 8
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks} == {
        ("chatcmpl-1", 7, "claude-x")
    }


def test_an_input_that_comes_whole_in_its_start_is_told_too() -> None:
    events = [
        event
        for event in as_events(message(tool_use("t", "f", {})))
        if event["type"] != "content_block_delta"
    ]
    events[1]["content_block"]["input"] = {"a": 1}
    (one,) = assembled(events)["choices"][0]["message"]["tool_calls"]
    assert one == call("t", "f", '{"a":1}')


def test_a_text_that_begins_in_its_start_is_told_too() -> None:
    first, start, *rest = as_events(message(text("b")))
    start["content_block"]["text"] = "a"
    assert assembled([first, start, *rest])["choices"][0]["message"]["content"] == "ab"


def test_a_stream_without_its_last_event_is_ended() -> None:
    *events, _ = as_events(message(text("a")))
    assert assembled(events) == assembled(as_events(message(text("a"))))
    assert streamed([])[-1]["usage"]["total_tokens"] == 0


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """With arguments as JSON, and a content that is empty as none: a stream cannot tell them apart."""
    seen: dict[str, Any] = orjson.loads(orjson.dumps(answer))
    for choice in seen["choices"]:
        choice["message"]["content"] = choice["message"]["content"] or None
        for one in choice["message"].get("tool_calls") or ():
            one["function"]["arguments"] = orjson.loads(one["function"]["arguments"])
    return seen


@given(blocks(), st.sampled_from(["end_turn", "max_tokens", "tool_use"]), st.randoms(use_true_random=False))
def test_a_stream_says_what_the_whole_answer_says(
    content: list[dict[str, Any]], stop_reason: str, random: Any
) -> None:
    answer = message(*content, stop_reason=stop_reason)
    events = [piece for event in as_events(answer) for piece in _cut(event, random)]
    assert comparable(assembled(events)) == comparable(whole(answer))


def _cut(event: dict[str, Any], random: Any) -> list[dict[str, Any]]:
    """A delta in two, anywhere."""
    delta = event.get("delta") or {}
    for name in ("text", "thinking", "partial_json"):
        if isinstance(delta.get(name), str):
            at = random.randint(0, len(delta[name]))
            halves = (delta[name][:at], delta[name][at:])
            return [{**event, "delta": {**delta, name: half}} for half in halves]
    return [event]


@given(completions())
def test_a_completion_survives_there_and_back(answer: dict[str, Any]) -> None:
    back = whole(MessagesToChat().answer(answer, asking()))
    one, other = (comparable(seen)["choices"][0] for seen in (answer, back))
    assert one["message"] == other["message"]
    assert one["finish_reason"] == other["finish_reason"]
    for name, count in answer["usage"].items():
        assert back["usage"][name] == count
