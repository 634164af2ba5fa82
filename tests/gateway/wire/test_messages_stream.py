"""Between one message and the events of its stream."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.messages_stream import MessageAssembler, as_events, frame
from tests.gateway.wire.messages_cases import USAGE, blocks, message, text, tool_use


def assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    assembler = MessageAssembler()
    for event in events:
        assembler.add(event)
    return assembler.answer()


def delta(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def start(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


START = {"type": "message_start", "message": message(stop_reason=None)}


@given(
    blocks(),
    st.sampled_from(["end_turn", "max_tokens", "tool_use", "refusal", None]),
    st.sampled_from([{}, {"cache_read_input_tokens": 8, "server_tool_use": {"web_search_requests": 1}}]),
    st.sampled_from([{}, {"stop_details": {"type": "refusal"}}, {"container": {"id": "c"}}, {"later": [1]}]),
)
def test_a_message_survives_both_ways(
    content: list[dict[str, Any]], stop_reason: str | None, usage: dict[str, Any], more: dict[str, Any]
) -> None:
    whole = message(*content, stop_reason=stop_reason, **more, usage={**USAGE, **usage})
    assert assembled(list(as_events(whole))) == whole


def test_events_come_in_anthropics_order() -> None:
    whole = message(text("Let me see."), tool_use("t", "f", {"a": 1}), stop_reason="tool_use")
    assert [event["type"] for event in as_events(whole)] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_a_long_text_and_a_long_input_are_more_than_one_event() -> None:
    whole = message(text("word " * 100), tool_use("t", "f", {"a": "x" * 500}))
    deltas = [event["delta"]["type"] for event in as_events(whole) if event["type"] == "content_block_delta"]
    assert deltas.count("text_delta") > 5
    assert deltas.count("input_json_delta") > 5


def test_usage_is_begun_in_the_first_event_and_whole_in_the_last() -> None:
    usage = {**USAGE, "cache_read_input_tokens": 8, "service_tier": "standard"}
    first, *_, last, _ = as_events(message(text("a"), usage=usage))
    assert first["message"]["usage"] == {**usage, "output_tokens": 1}
    assert last["usage"] == {**USAGE, "cache_read_input_tokens": 8}


def test_a_message_without_usage_still_has_what_clients_need() -> None:
    whole = message(text("a"))
    del whole["usage"]
    first, *_, last, _ = as_events(whole)
    assert first["message"]["usage"] == {"input_tokens": 0, "output_tokens": 0}
    assert last["usage"] == {"input_tokens": 0, "output_tokens": 0}


def test_thinking_ends_with_its_signature() -> None:
    events = list(as_events(message({"type": "thinking", "thinking": "6 by 7", "signature": "sig"})))
    assert events[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert [e["delta"]["type"] for e in events[2:4]] == ["thinking_delta", "signature_delta"]


def test_redacted_thinking_and_unknown_blocks_come_whole_in_their_start() -> None:
    for block in (
        {"type": "redacted_thinking", "data": "x"},
        {"type": "web_search_tool_result", "content": []},
    ):
        events = list(as_events(message(block)))
        assert events[1] == start(0, block)
        assert events[2]["type"] == "content_block_stop"


def test_a_real_stream_is_put_together() -> None:
    citation = {"type": "char_location", "cited_text": "x"}
    whole = assembled(
        [
            START,
            {"type": "ping"},
            start(0, {"type": "thinking", "thinking": "", "signature": ""}),
            delta(0, type="thinking_delta", thinking="6 "),
            delta(0, type="thinking_delta", thinking="by 7"),
            delta(0, type="signature_delta", signature="sig"),
            start(1, {"type": "text", "text": "", "citations": []}),
            delta(1, type="citations_delta", citation=citation),
            delta(1, type="text_delta", text="It is "),
            delta(1, type="text_delta", text="42."),
            start(2, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
            delta(2, type="input_json_delta", partial_json=""),
            delta(2, type="input_json_delta", partial_json='{"query":'),
            delta(2, type="input_json_delta", partial_json='"x"}'),
            {"type": "content_block_stop", "index": 2},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 20},
            },
            {"type": "message_stop"},
            {"type": "later_event"},
        ]
    )
    assert whole == message(
        {"type": "thinking", "thinking": "6 by 7", "signature": "sig"},
        {"type": "text", "text": "It is 42.", "citations": [citation]},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        usage={"input_tokens": 3, "output_tokens": 20},
    )


def test_the_answers_usage_has_the_inputs_side_from_the_start_and_the_outputs_from_the_end() -> None:
    opening = message(usage={"input_tokens": 3, "cache_read_input_tokens": 8, "output_tokens": 1})
    news = {"output_tokens": 20, "cache_read_input_tokens": None}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": news}
    whole = assembled([{"type": "message_start", "message": opening}, end])
    assert whole["usage"] == {"input_tokens": 3, "cache_read_input_tokens": 8, "output_tokens": 20}


@pytest.mark.parametrize(
    ("pieces", "tool_input"),
    [
        ([], {}),
        ([""], {}),
        (['{"a"', ":1}"], {"a": 1}),
        (['{"a": '], {"_raw": '{"a": '}),
        (["[1]"], {"_raw": "[1]"}),
    ],
)
def test_a_tools_input_is_read_when_all_pieces_are_there(pieces: list[str], tool_input: Any) -> None:
    events = [delta(0, type="input_json_delta", partial_json=piece) for piece in pieces]
    whole = assembled([START, start(0, tool_use("t", "f", {})), *events])
    assert whole["content"] == [tool_use("t", "f", tool_input)]


def test_unknown_deltas_are_kept() -> None:
    whole = assembled(
        [
            START,
            start(0, {"type": "compaction", "content": None}),
            delta(0, type="compaction_delta", content="What was "),
            delta(0, type="compaction_delta", content="said."),
            delta(1, type="later_delta", notes=[1], level=1),
            delta(1, type="later_delta", notes=[2], level=2),
        ]
    )
    assert whole["content"] == [
        {"type": "compaction", "content": "What was said."},
        {"type": "later", "notes": [1, 2], "level": 2},
    ]


def test_edits_of_the_context_are_told_beside_the_last_delta() -> None:
    edits = {"applied_edits": [{"type": "clear_thinking_20251015", "cleared_thinking_turns": 1}]}
    whole = message(text("a"), context_management=edits)
    events = list(as_events(whole))
    assert events[0]["message"]["context_management"] is None
    assert events[-2]["context_management"] == edits
    assert assembled(events) == whole
    none = message(text("a"), context_management=None)
    assert assembled(list(as_events(none))) == none


def test_the_answer_can_be_asked_for_at_any_time() -> None:
    assembler = MessageAssembler()
    events = list(as_events(message(text("a b c"), tool_use("t", "f", {"x": [1]}))))
    for event in events:
        assembler.add(event)
        assembler.answer()
    assert assembler.answer() == message(text("a b c"), tool_use("t", "f", {"x": [1]}))


def test_a_whole_message_is_taken_in_too() -> None:
    whole = message(text("a"))
    assert assembled([whole]) == whole


def test_a_frame_names_its_event() -> None:
    assert frame({"type": "message_stop"}) == b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
