"""What servers send in deltas, each in its own way, and the message that it makes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.wire.chat_stream import Assembler


def assembled(*deltas: dict[str, Any]) -> dict[str, Any]:
    assembler = Assembler()
    for delta in deltas:
        assembler.add({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    message: dict[str, Any] = assembler.answer()["choices"][0]["message"]
    return message


def calls(*pieces: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a stream with one of these pieces in each delta."""
    made: list[dict[str, Any]] = assembled(*({"tool_calls": [piece]} for piece in pieces))["tool_calls"]
    return made


def call(call_id: str, arguments: str = "") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": f"f_{call_id}", "arguments": arguments}}


def more(arguments: str, **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {"arguments": arguments}}


A, B = call("a", '{"x":1}'), call("b", "{}")


def test_pieces_of_numbered_calls_may_be_mixed() -> None:
    begun = ({"index": 0, **call("a")}, {"index": 1, **call("b")})
    assert calls(*begun, more("{}", index=1), more('{"x"', index=0), more(":1}", index=0)) == [A, B]


def test_calls_come_in_the_order_of_their_numbers_wherever_those_begin() -> None:
    assert calls({"index": 7, **B}, {"index": 3, **A}) == [A, B]


def test_a_number_of_any_size_takes_no_room() -> None:
    assert calls({"index": 10**12, **A}) == [A]


def test_pieces_without_a_number_go_on_with_the_last_call() -> None:
    assert calls(call("a"), more('{"x"'), more(":1}"), call("b"), more("{}")) == [A, B]


def test_pieces_without_a_number_are_told_apart_by_their_ids() -> None:
    assert calls(call("a"), call("b"), more('{"x":1}', id="a"), more("{}", id="b")) == [A, B]


def test_calls_that_all_have_the_same_number_stay_apart() -> None:
    """As Gemini's OpenAI API has them."""
    assert calls({"index": 0, **A}, {"index": 0, **B}) == [A, B]
    assert calls({"index": 0, **call("a")}, more('{"x":1}', index=0), {"index": 0, **B}) == [A, B]


@pytest.mark.parametrize("blank", [{"id": ""}, {"id": None}, {"id": "a"}, {"type": "function"}])
def test_what_is_empty_or_said_again_changes_nothing(blank: dict[str, Any]) -> None:
    piece = {**more('{"x":1}', index=0), **blank}
    piece["function"]["name"] = ""
    assert calls({"index": 0, **call("a")}, piece) == [A]


def test_the_input_of_a_custom_tool_is_joined() -> None:
    begun = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "f", "input": "a"}}
    assert calls(begun, {"index": 0, "custom": {"input": " b"}}) == [
        {"id": "c", "type": "custom", "custom": {"name": "f", "input": "a b"}}
    ]


def test_what_a_call_has_besides_is_kept() -> None:
    signed = {"index": 0, **A, "extra_content": {"google": {"thought_signature": "s"}}}
    (made,) = calls(signed, {"index": 0, "function": {"arguments": ""}})
    assert made["extra_content"] == {"google": {"thought_signature": "s"}}


def test_an_empty_list_of_calls_after_the_calls_is_no_news() -> None:
    assert assembled({"tool_calls": [{"index": 0, **A}]}, {"tool_calls": []})["tool_calls"] == [A]


def test_pieces_of_audio_are_joined() -> None:
    heard = assembled(
        {"audio": {"id": "audio_1", "transcript": "Hel"}},
        {"audio": {"transcript": "lo"}},
        {"audio": {"data": "UklG"}},
        {"audio": {"data": "Rg==", "expires_at": 9}},
    )
    assert heard["audio"] == {"id": "audio_1", "transcript": "Hello", "data": "UklGRg==", "expires_at": 9}


def test_thinking_in_parts_and_a_text_after_it_are_one_part_each() -> None:
    """As Mistral's reasoning models stream."""

    def thinking(text: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}

    said = assembled(
        {"role": "assistant", "content": ""},
        {"content": [thinking("6 by")]},
        {"content": [thinking(" 7")]},
        {"content": "It is "},
        {"content": "42."},
        {"content": ""},
    )
    assert said["content"] == [thinking("6 by 7"), {"type": "text", "text": "It is 42."}]


def test_parts_after_a_text_follow_it() -> None:
    image = {"type": "image_url", "image_url": {"url": "http://a"}}
    assert assembled({"content": "See:"}, {"content": [image]}, {"content": [image]})["content"] == [
        {"type": "text", "text": "See:"},
        image,
        image,
    ]


def test_an_empty_role_says_nothing() -> None:
    assert assembled({"role": "assistant"}, {"role": "", "content": "a"}) == {
        "role": "assistant",
        "content": "a",
    }
