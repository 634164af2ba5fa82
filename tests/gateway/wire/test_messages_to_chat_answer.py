"""A chat completion and its stream, told to an Anthropic client."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.messages_stream import MessageAssembler
from gateway.wire.messages_to_chat import MessagesToChat
from tests.gateway.wire.messages_cases import (
    asking,
    call,
    call_piece,
    chunk,
    chunked,
    completion,
    completions,
    text,
    through,
    tool_use,
)

TRANSLATOR = MessagesToChat()
ASKED = asking(stop_sequences=["END"])


def whole(answer: dict[str, Any]) -> dict[str, Any]:
    return TRANSLATOR.answer(answer, ASKED)


def streamed(*chunks: dict[str, Any]) -> list[dict[str, Any]]:
    return list(through(TRANSLATOR.events(ASKED), chunks))


def assembled(*chunks: dict[str, Any]) -> dict[str, Any]:
    assembler = MessageAssembler()
    open_block = -1
    for event in streamed(*chunks):
        # As Anthropic's clients need it: one block at a time, counted up.
        if event["type"] == "content_block_start":
            assert event["index"] == open_block + 1
            open_block = event["index"]
        elif event["type"].startswith("content_block"):
            assert event["index"] == open_block
        assembler.add(event)
    return assembler.answer()


def test_an_answer_is_a_message() -> None:
    answer = completion({"content": "Hello."}, usage={"prompt_tokens": 3, "completion_tokens": 2})
    assert whole(answer) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [text("Hello.")],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 2,
        },
    }


def test_cached_tokens_are_taken_out_of_the_input() -> None:
    details = {"cached_tokens": 6, "cache_write_tokens": 1}
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": details}
    usage["completion_tokens_details"] = {"reasoning_tokens": 4}
    assert whole(completion({"content": "a"}, usage=usage))["usage"] == {
        "input_tokens": 2,
        "cache_read_input_tokens": 6,
        "cache_creation_input_tokens": 1,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 4},
    }


@pytest.mark.parametrize(
    ("finish_reason", "stop_reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
        ("content_filter", "refusal"),
        ("eos", "end_turn"),
        (None, None),
    ],
)
def test_each_finish_reason_has_its_stop_reason(finish_reason: str | None, stop_reason: str | None) -> None:
    assert whole(completion({"content": "a"}, finish_reason))["stop_reason"] == stop_reason
    assert assembled(chunk({"content": "a"}, finish_reason))["stop_reason"] == stop_reason


def test_a_call_that_ends_with_stop_is_a_use_of_a_tool() -> None:
    fields = {"content": None, "tool_calls": [call("c", "f", "{}")]}
    assert whole(completion(fields, "stop"))["stop_reason"] == "tool_use"
    assert whole(completion(fields, "length"))["stop_reason"] == "max_tokens"
    assert (
        assembled(call_piece(0, "{}", call_id="c", name="f"), chunk({}, "stop"))["stop_reason"] == "tool_use"
    )


@pytest.mark.parametrize("name", ["stop_reason", "matched_stop"])
def test_a_stop_string_is_told_where_the_server_says_which(name: str) -> None:
    answer = completion({"content": "a"})
    answer["choices"][0][name] = "END"
    last = chunk({"content": "a"}, "stop")
    last["choices"][0][name] = "END"
    for message in (whole(answer), assembled(last)):
        assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "END")


@pytest.mark.parametrize("matched", [None, 128001, "</s>"])
def test_an_end_of_the_models_own_is_no_stop_string(matched: Any) -> None:
    answer = completion({"content": "a"})
    answer["choices"][0]["stop_reason"] = matched
    assert whole(answer)["stop_reason"] == "end_turn"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_thinking(name: str) -> None:
    thinking = {"type": "thinking", "thinking": "6 by 7", "signature": ""}
    assert whole(completion({"content": "42", name: "6 by 7"}))["content"] == [thinking, text("42")]
    pieces = (chunk({name: "6 "}), chunk({name: "by 7"}), chunk({"content": "42"}, "stop"))
    assert assembled(*pieces)["content"] == [thinking, text("42")]


def test_reasoning_under_both_names_is_told_once() -> None:
    delta = {"reasoning": "hm", "reasoning_content": "hm"}
    assert assembled(chunk(delta, "stop"))["content"][0]["thinking"] == "hm"


def test_a_refusal_is_text_and_a_reason() -> None:
    for message in (
        whole(completion({"content": None, "refusal": "I cannot."})),
        assembled(chunk({"refusal": "I "}), chunk({"refusal": "cannot."}, "stop")),
    ):
        assert message["content"] == [text("I cannot.")]
        assert message["stop_reason"] == "refusal"


def test_arguments_that_are_no_json_are_kept_for_the_tool_to_refuse() -> None:
    broken = [tool_use("c", "f", {"_raw": '{"a": '})]
    fields = {"content": None, "tool_calls": [call("c", "f", '{"a": ')]}
    assert whole(completion(fields, "length"))["content"] == broken
    assert assembled(call_piece(0, '{"a": ', call_id="c", name="f"), chunk({}, "length"))["content"] == broken


def test_an_answer_in_parts_is_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "later"}, {"type": "text", "text": "b"}]
    assert whole(completion({"content": parts}))["content"] == [text("ab")]


def test_of_several_choices_the_first_is_the_answer() -> None:
    answer = completion({"content": "a"})
    answer["choices"].insert(0, {"index": 1, "message": {"content": "b"}, "finish_reason": "stop"})
    assert whole(answer)["content"] == [text("a")]
    other = chunk({"content": "b"})
    other["choices"][0]["index"] = 1
    assert assembled(chunk({"content": "a"}), other, chunk({}, "stop"))["content"] == [text("a")]


def test_an_answer_without_choices_is_an_empty_message() -> None:
    message = whole({"choices": []})
    assert message["content"] == []
    assert message["stop_reason"] is None
    assert message["id"].startswith("msg_")


def test_a_last_chunk_with_everything_in_it_works() -> None:
    last = chunk(
        {"role": "assistant", "content": "Hi."}, "stop", usage={"prompt_tokens": 4, "completion_tokens": 2}
    )
    message = assembled(last)
    assert message["content"] == [text("Hi.")]
    assert message["stop_reason"] == "end_turn"
    assert message["usage"]["input_tokens"] == 4
    assert message["usage"]["output_tokens"] == 2


def test_the_last_event_tells_the_input_that_the_first_did_not_know() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}}
    first, *_, last, _ = streamed(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "a"}),
        chunk({}, "stop"),
        {**chunk({}), "choices": [], "usage": usage},
    )
    assert first["message"]["usage"]["input_tokens"] == 0
    assert last["type"] == "message_delta"
    assert last["usage"]["input_tokens"] == 4
    assert last["usage"]["cache_read_input_tokens"] == 5
    assert last["usage"]["output_tokens"] == 2


def test_usage_that_is_known_at_the_start_is_told_there() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 0}
    first, *_ = streamed(chunk({"content": "a"}, usage=usage))
    assert first["message"]["usage"]["input_tokens"] == 9


def test_empty_deltas_say_nothing() -> None:
    events = streamed(
        chunk({"role": "assistant", "content": ""}), chunk({"content": None}), chunk({}), chunk({}, "stop")
    )
    assert [event["type"] for event in events] == ["message_start", "message_delta", "message_stop"]


def test_a_stream_of_nothing_is_still_a_message() -> None:
    assert [event["type"] for event in streamed()] == ["message_start", "message_delta", "message_stop"]


def test_text_goes_out_as_it_comes() -> None:
    translator = TRANSLATOR.events(ASKED)
    list(translator.feed(chunk({"role": "assistant"})))
    assert [e["type"] for e in translator.feed(chunk({"content": "a"}))] == [
        "content_block_start",
        "content_block_delta",
    ]
    assert [e["type"] for e in translator.feed(chunk({"content": "b"}))] == ["content_block_delta"]


def test_calls_that_come_one_after_the_other_go_out_as_they_come() -> None:
    translator = TRANSLATOR.events(ASKED)
    for piece in (call_piece(0, "", call_id="a", name="f"), call_piece(0, "{}")):
        list(translator.feed(piece))
    begun = list(translator.feed(call_piece(1, "{", call_id="b", name="g")))
    assert [event["type"] for event in begun] == [
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
    ]


def test_interleaved_calls_stay_whole() -> None:
    message = assembled(
        call_piece(0, "", call_id="a", name="f"),
        call_piece(1, '{"y"', call_id="b", name="g"),
        call_piece(0, '{"x"'),
        call_piece(1, ":2}"),
        call_piece(2, "{}", call_id="c", name="f"),
        call_piece(0, ":1}"),
        chunk({}, "tool_calls"),
    )
    assert message["content"] == [
        tool_use("a", "f", {"x": 1}),
        tool_use("b", "g", {"y": 2}),
        tool_use("c", "f", {}),
    ]


def test_two_calls_in_one_chunk_are_two_blocks() -> None:
    pieces = [{"index": i, **call(f"c{i}", "f", f'{{"x":{i}}}')} for i in range(2)]
    content = assembled(chunk({"tool_calls": pieces}, "tool_calls"))["content"]
    assert content == [tool_use("c0", "f", {"x": 0}), tool_use("c1", "f", {"x": 1})]


def test_text_and_thinking_around_calls_are_kept() -> None:
    content = assembled(
        chunk({"content": "One. "}),
        call_piece(0, '{"x"', call_id="a", name="f"),
        chunk({"content": "Two."}),
        call_piece(0, ":1}"),
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "Three."}, "tool_calls"),
    )["content"]
    assert content == [
        text("One. "),
        tool_use("a", "f", {"x": 1}),
        text("Two."),
        {"type": "thinking", "thinking": "hm", "signature": ""},
        text("Three."),
    ]


def test_calls_without_an_index_or_all_with_the_same_are_told_apart_by_id() -> None:
    for index in (None, 0):
        pieces = [{"index": index, **call(f"c{i}", "f", f'{{"x":{i}}}')} for i in range(2)]
        content = assembled(*(chunk({"tool_calls": [piece]}) for piece in pieces), chunk({}, "tool_calls"))[
            "content"
        ]
        assert content == [tool_use("c0", "f", {"x": 0}), tool_use("c1", "f", {"x": 1})]


def test_an_id_that_changes_with_every_piece_does_not_split_a_call() -> None:
    content = assembled(
        call_piece(0, '{"x"', call_id="c", name="f"),
        call_piece(0, ":1}", call_id="d"),
        chunk({}, "tool_calls"),
    )["content"]
    assert content == [tool_use("c", "f", {"x": 1})]


def test_a_name_may_come_after_the_id() -> None:
    content = assembled(call_piece(0, call_id="c"), call_piece(0, "{}", name="f"), chunk({}, "tool_calls"))[
        "content"
    ]
    assert [block["name"] for block in content] == ["f"]


def test_a_call_without_an_id_gets_one() -> None:
    fields = {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    streamed_block = assembled(call_piece(0, "{}", name="f"), chunk({}, "tool_calls"))["content"][0]
    for block in (whole(completion(fields))["content"][0], streamed_block):
        assert block["id"].startswith("toolu_")


def test_white_space_after_whole_arguments_is_let_go() -> None:
    content = assembled(
        call_piece(0, "{}", call_id="a", name="f"),
        call_piece(1, "{}", call_id="b", name="g"),
        call_piece(0, "\n"),
        chunk({}, "tool_calls"),
    )["content"]
    assert content == [tool_use("a", "f", {}), tool_use("b", "g", {})]


@given(completions(), st.data())
def test_a_stream_says_what_the_whole_answer_says(answer: dict[str, Any], data: st.DataObject) -> None:
    chunks = data.draw(chunked(answer))
    assert assembled(*chunks) == whole(answer)
