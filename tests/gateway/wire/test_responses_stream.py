"""Between one response and its stream of events."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

from gateway.wire.responses_stream import ResponseAssembler, events_of, frame
from tests.openai_types import accumulated, texts

HEAD: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "completed_at": 2,
    "status": "completed",
    "model": "m",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "vendor": {"a": 1},
    "usage": {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    },
}
CITATION = {"type": "url_citation", "start_index": 0, "end_index": 1, "url": "http://a", "title": "A"}
LOGPROB = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}


def message(*content: dict[str, Any]) -> dict[str, Any]:
    said = {"type": "message", "role": "assistant", "status": "completed", "content": list(content)}
    return {"id": "msg_1", **said}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": said, "annotations": [], **more}


texts_of_items = st.text(max_size=60)
items = st.one_of(
    st.builds(message, st.builds(text, texts_of_items), st.builds(text, texts_of_items)),
    st.builds(lambda said: message({"type": "refusal", "refusal": said}), texts_of_items),
    st.builds(
        lambda said, thought: {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": said}],
            "content": [{"type": "reasoning_text", "text": thought}],
        },
        texts_of_items,
        texts_of_items,
    ),
    st.builds(
        lambda said: {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": said},
        texts_of_items,
    ),
    st.builds(
        lambda said: {"type": "custom_tool_call", "id": "ct", "call_id": "c", "name": "f", "input": said},
        texts_of_items,
    ),
)


def numbered(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With ids of their own, as a client expects of the items of one response."""
    own = [{**item, "id": f"{item['id']}{i}"} for i, item in enumerate(output)]
    return [{**item, "call_id": f"c{i}"} if "call_id" in item else item for i, item in enumerate(own)]


def assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    assembler = ResponseAssembler()
    for event in events:
        assembler.add(event)
    return assembler.answer()


@given(st.lists(items, max_size=4).map(numbered))
@settings(deadline=None)
def test_an_answer_survives_both_ways(output: list[dict[str, Any]]) -> None:
    answer = {**HEAD, "output": output}
    events = list(events_of(answer))
    assert assembled(events) == answer
    assert texts(accumulated(events)) == texts(Response.model_validate(answer))


@given(st.lists(items, max_size=4).map(numbered))
@settings(deadline=None)
def test_the_deltas_alone_give_the_items(output: list[dict[str, Any]]) -> None:
    events = [
        event for event in events_of({**HEAD, "output": output}) if event["type"].endswith(("added", "delta"))
    ]
    assert [without_status(item) for item in assembled(events).get("output", [])] == [
        without_status(item) for item in output
    ]


def without_status(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "status"}


def test_events_come_in_the_order_that_openai_documents() -> None:
    answer = {**HEAD, "output": [message(text("a", annotations=[CITATION], logprobs=[LOGPROB]))]}
    events = list(events_of(answer))
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.annotation.added", "output_text.done", "content_part.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    assert events[6]["logprobs"] == [LOGPROB]
    assert assembled(events) == answer


def test_a_text_comes_in_pieces_of_a_few_words() -> None:
    events = events_of({**HEAD, "output": [message(text("word " * 40))]})
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert len(deltas) >= 5
    assert "".join(deltas) == "word " * 40


def test_an_answer_in_progress_has_no_usage_and_no_output() -> None:
    created = next(events_of({**HEAD, "output": [message(text("a"))]}))["response"]
    assert (created["status"], created["usage"], created["output"]) == ("in_progress", None, [])
    assert "completed_at" not in created


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
def test_the_last_event_is_named_after_the_status(status: str) -> None:
    *_, last = events_of({**HEAD, "status": status, "output": []})
    assert last["type"] == f"response.{status}"


def test_an_item_of_an_unknown_kind_is_added_and_done() -> None:
    item = {"type": "hologram", "id": "h"}
    events = list(events_of({**HEAD, "output": [item]}))
    assert [event["item"] for event in events if "item" in event] == [item, item]


def test_unknown_events_are_passed_over() -> None:
    answer = {**HEAD, "output": [message(text("a"))]}
    events = list(events_of(answer))
    odd = {"type": "response.hologram.delta", "output_index": 0, "content_index": 0, "delta": "x"}
    assert assembled([*events[:4], odd, {"type": "keepalive"}, *events[4:]]) == answer


def test_a_whole_answer_stands_for_itself() -> None:
    answer = {**HEAD, "output": [message(text("a"))]}
    assert assembled([answer]) == answer


def test_items_that_the_last_event_leaves_out_are_kept() -> None:
    answer = {**HEAD, "output": [message(text("a"))]}
    *events, last = events_of(answer)
    assert assembled([*events, {**last, "response": {**HEAD, "output": []}}]) == answer


def test_of_a_cut_stream_what_had_come_is_there() -> None:
    events = list(events_of({**HEAD, "output": [message(text("one two " * 20))]}))
    cut = assembled(events[:6])
    assert cut["status"] == "in_progress"
    assert cut["output"][0]["content"][0]["text"] == events[4]["delta"] + events[5]["delta"]


def test_the_events_are_not_changed_by_the_assembler() -> None:
    events = list(events_of({**HEAD, "output": [message(text("a b"))]}))
    before = orjson.dumps(events)
    assembled(events)
    assert orjson.dumps(events) == before


def test_a_frame_is_named_after_its_event() -> None:
    assert frame({"type": "response.created", "sequence_number": 0}) == (
        b'event: response.created\ndata: {"type":"response.created","sequence_number":0}\n\n'
    )
