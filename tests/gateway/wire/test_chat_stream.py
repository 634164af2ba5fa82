"""Between one completion object and a stream of chunks."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.chat_stream import Assembler, as_chunks, frame, text_in, without_usage

HEAD = {"id": "chatcmpl-1", "created": 1, "model": "m", "vendor": {"a": 1}}


def completion(message: dict[str, Any], finish_reason: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {**HEAD, "object": "chat.completion", "choices": [choice], **more}


def round_trip(whole: dict[str, Any]) -> dict[str, Any]:
    assembler = Assembler()
    for chunk in as_chunks(whole, include_usage=True):
        assert chunk["object"] == "chat.completion.chunk"
        assembler.add(chunk)
    return assembler.completion()


@given(st.text())
def test_a_text_survives_both_ways(text: str) -> None:
    whole = completion({"role": "assistant", "content": text}, usage={"total_tokens": 3})
    assert round_trip(whole) == whole


def test_tool_calls_refusals_and_reasoning_survive() -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    for message, reason in (
        ({"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"),
        ({"role": "assistant", "content": None, "refusal": "I cannot."}, "stop"),
        ({"role": "assistant", "content": "42", "reasoning_content": "6 by 7"}, "stop"),
    ):
        whole = completion(message, reason)
        assert round_trip(whole) == whole


def test_several_choices_and_logprobs_survive() -> None:
    whole = completion({"role": "assistant", "content": "a"})
    second = {**whole["choices"][0], "index": 1, "message": {"role": "assistant", "content": "b c"}}
    whole["choices"] = [{**whole["choices"][0], "logprobs": {"content": [{"token": "a"}]}}, second]
    assert round_trip(whole) == whole


def test_a_long_text_is_more_than_one_chunk() -> None:
    whole = completion({"role": "assistant", "content": "word " * 100})
    texts = [c["choices"][0]["delta"].get("content") for c in as_chunks(whole, include_usage=False)]
    assert len([text for text in texts if text]) > 5


def deltas_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    chunks = as_chunks(completion(message), include_usage=False)
    return [chunk["choices"][0]["delta"] for chunk in chunks]


def test_reasoning_comes_before_the_content_and_refusals_after_it_all_in_pieces() -> None:
    words = "word " * 20
    message = {"role": "assistant", "content": words, "refusal": words, "reasoning_content": words}
    seen = [next(iter(delta)) for delta in deltas_of(message)[1:-1]]
    assert len(seen) >= 9
    assert sorted(seen, key=["reasoning_content", "content", "refusal"].index) == seen


def test_what_is_empty_comes_with_the_role() -> None:
    empty: dict[str, Any] = {"refusal": None, "annotations": [], "tool_calls": None}
    message = {"role": "assistant", "content": "a", **empty}
    assert deltas_of(message) == [{**message, "content": ""}, {"content": "a"}, {}]


def test_a_tool_call_begins_without_arguments_which_come_in_pieces() -> None:
    arguments = '{"query": "' + "word " * 20 + '"}'
    call = {"index": 5, "id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    _, first, *rest, _ = deltas_of({"role": "assistant", "content": None, "tool_calls": [call]})
    begun = {**call, "index": 0, "function": {"name": "f", "arguments": ""}}
    assert first == {"tool_calls": [begun]}
    assert len(rest) >= 3
    assert all(set(delta["tool_calls"][0]) == {"index", "function"} for delta in rest)
    assert "".join(delta["tool_calls"][0]["function"]["arguments"] for delta in rest) == arguments


def test_choices_begin_in_their_order() -> None:
    whole = completion({"role": "assistant", "content": "a"})
    whole["choices"] = [{**whole["choices"][0], "index": index} for index in (2, 0, 1)]
    indexes = [chunk["choices"][0]["index"] for chunk in as_chunks(whole, include_usage=False)]
    assert indexes == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_choices_without_an_index_are_told_apart_by_their_places() -> None:
    whole = completion({"role": "assistant", "content": "a"})
    whole["choices"] = [{"message": {"content": text}, "finish_reason": "stop"} for text in "ab"]
    again = round_trip(whole)["choices"]
    assert [(choice["index"], choice["message"]["content"]) for choice in again] == [(0, "a"), (1, "b")]


def test_usage_is_given_only_when_asked_for() -> None:
    whole = completion({"role": "assistant", "content": "a"}, usage={"total_tokens": 3})
    assert [c.get("usage") for c in as_chunks(whole, include_usage=False)] == [None] * 3
    assert list(as_chunks(whole, include_usage=True))[-1] == {
        **HEAD,
        "object": "chat.completion.chunk",
        "choices": [],
        "usage": {"total_tokens": 3},
    }


def test_a_real_stream_is_put_together() -> None:
    def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {**HEAD, "object": "chat.completion.chunk", "choices": [choice], **more}

    assembler = Assembler()
    for piece in (
        chunk({"role": "assistant", "content": None}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
        chunk({"content": "!"}, "stop", usage={"total_tokens": 9}),
    ):
        assembler.add(piece)
    (choice,) = assembler.completion()["choices"]
    assert choice["message"]["content"] == "Hello!"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}
    assert choice["finish_reason"] == "stop"
    assert assembler.completion()["usage"] == {"total_tokens": 9}
    assert assembler.completion()["vendor"] == {"a": 1}


def test_the_whole_message_beside_each_delta_is_not_taken_for_more() -> None:
    """As Perplexity streams."""
    assembler = Assembler()
    for delta, so_far in (("Hel", "Hel"), ("lo", "Hello")):
        message = {"role": "assistant", "content": so_far}
        assembler.add({"choices": [{"index": 0, "message": message, "delta": {"content": delta}}]})
    assert assembler.answer()["choices"][0]["message"]["content"] == "Hello"


def test_noise_and_empty_heads_are_not_kept() -> None:
    """OpenAI pads its chunks with `obfuscation`; Azure's first and last chunks have empty heads."""
    assembler = Assembler()
    empty = {"id": "", "model": "", "object": "", "choices": []}
    said = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
    for chunk in (empty, {**HEAD, "obfuscation": "xK2", "choices": [said]}, empty):
        assembler.add(chunk)
    assert assembler.answer() == completion({"role": "assistant", "content": "a"})


def test_a_whole_completion_stands_for_itself_and_is_not_changed() -> None:
    whole = completion({"content": "a"})
    assembler = Assembler()
    assembler.add(whole)
    assert assembler.answer() == completion({"role": "assistant", "content": "a"})
    assert whole == completion({"content": "a"})


def assembled(*deltas: dict[str, Any]) -> dict[str, Any]:
    assembler = Assembler()
    for delta in deltas:
        assembler.add({**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    message: dict[str, Any] = assembler.answer()["choices"][0]["message"]
    return message


def test_pieces_of_a_function_call_of_the_old_form_are_joined() -> None:
    first, second = {"name": "f", "arguments": '{"a"'}, {"arguments": ":1}"}
    message = assembled({"role": "assistant"}, {"function_call": first}, {"function_call": second})
    assert message["function_call"] == {"name": "f", "arguments": '{"a":1}'}
    assert round_trip(completion(message, "function_call"))["choices"][0]["message"] == message


def test_lists_unknown_to_us_are_joined() -> None:
    details = [{"reasoning_details": [{"text": text}]} for text in "ab"]
    assert assembled(*details)["reasoning_details"] == [{"text": "a"}, {"text": "b"}]


def test_tool_calls_without_a_number_are_calls_of_their_own() -> None:
    calls = [{"id": name, "index": None, "function": {"name": name, "arguments": "{}"}} for name in "ab"]
    message = assembled({"tool_calls": None}, *({"tool_calls": [call]} for call in calls))
    assert [call["id"] for call in message["tool_calls"]] == ["a", "b"]


def test_content_in_parts_and_what_a_choice_has_besides_survive() -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "a"}]
    whole = completion({"role": "assistant", "content": parts})
    whole["choices"][0] |= {"stop_reason": 7, "content_filter_results": {}}
    assert round_trip(whole) == whole
    assert text_in(parts) == "a"


def test_usage_is_taken_out_and_an_empty_chunk_with_it() -> None:
    assert without_usage({"choices": [], "usage": {}}) is None
    assert without_usage({"choices": [{"index": 0}], "usage": {}, "id": "x"}) == {
        "choices": [{"index": 0}],
        "id": "x",
    }


def test_a_frame_is_one_event() -> None:
    assert frame(b"{}") == b"data: {}\n\n"
