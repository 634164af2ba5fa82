"""Chat completions as responses: whole, and streamed in every way a server may stream."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

from gateway.wire.chat_as_response import ResponseWriter, response_of
from tests.chat_streams import HEAD, USAGE, chunk, completion, messages, streams, tool_call
from tests.openai_types import accumulated, texts

ASKED: dict[str, Any] = {"model": "auto", "input": "hi"}


def written(chunks: list[dict[str, Any]], asked: dict[str, Any] = ASKED) -> list[dict[str, Any]]:
    writer = ResponseWriter(asked)
    events = [event for one in chunks for event in writer.feed(one)]
    return [*events, *writer.end()]


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


@given(messages(), st.sampled_from(["stop", "tool_calls", "length", "content_filter", None]), st.data())
@settings(deadline=None)
def test_a_stream_says_what_the_whole_answer_says(
    message: dict[str, Any], finish_reason: str | None, data: st.DataObject
) -> None:
    whole = completion(message, finish_reason)
    response = response_of(whole, ASKED)
    events = written(data.draw(streams(whole)))
    assert events[-1]["response"] == response
    assert Response.model_validate(response).status == response["status"]
    assert texts(accumulated(events)) == texts(Response.model_validate(response))
    for stage in ("added", "done"):
        at = sorted(
            event["output_index"] for event in events if event["type"] == f"response.output_item.{stage}"
        )
        assert at == list(range(len(response["output"])))


def test_reasoning_text_and_calls_are_items_in_this_order() -> None:
    message = {"reasoning_content": "Why", "content": "Well", "tool_calls": [tool_call(0), tool_call(1)]}
    response = response_of(completion(message, "tool_calls"), ASKED)
    assert [item["type"] for item in response["output"]] == [
        "reasoning", "message", "function_call", "function_call",
    ]  # fmt: skip
    assert response["output"][0]["summary"] == [{"type": "summary_text", "text": "Why"}]
    assert response["output"][1]["content"] == [
        {"type": "output_text", "text": "Well", "annotations": [], "logprobs": []}
    ]
    assert response["output"][3] == {
        "id": "fc_1a_1",
        "type": "function_call",
        "call_id": "call1",
        "name": "f1",
        "arguments": "{}",
        "status": "completed",
    }


def test_events_come_in_the_order_that_openai_documents() -> None:
    chunks = [chunk({"content": "a "}), chunk({"content": "b"}), chunk({}, "stop", USAGE)]
    assert types(written(chunks)) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip


def test_reasoning_ends_when_the_answer_begins() -> None:
    chunks = [chunk({"reasoning": "Hm"}), chunk({"content": "b"}), chunk({}, "stop")]
    assert types(written(chunks))[2:10] == [
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
        "output_item.added", "content_part.added",
    ]  # fmt: skip


def test_one_chunk_may_carry_text_end_and_usage() -> None:
    events = written([chunk({"content": "a"}, "stop", USAGE)])
    response = events[-1]["response"]
    assert (response["status"], response["usage"]["input_tokens"]) == ("completed", 9)
    assert texts(accumulated(events)) == ["a"]


def test_usage_is_mapped_with_its_details() -> None:
    assert response_of(completion({"content": "a"}), ASKED)["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 13,
    }
    assert response_of(completion({"content": "a"}, usage=None), ASKED)["usage"] is None


@pytest.mark.parametrize(
    ("finish_reason", "status", "reason"),
    [
        ("stop", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
        (None, "incomplete", None),
    ],
)
def test_the_status_says_how_the_answer_ended(
    finish_reason: str | None, status: str, reason: str | None
) -> None:
    events = written([chunk({"content": "a"}), chunk({}, finish_reason)])
    response = events[-1]["response"]
    assert events[-1]["type"] == f"response.{status}"
    assert response["status"] == response["output"][-1]["status"] == status
    assert response["incomplete_details"] == (reason and {"reason": reason})


def test_what_was_asked_is_repeated() -> None:
    asked = {
        **ASKED,
        "instructions": "Be brief.",
        "temperature": 0.5,
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
        "metadata": {"a": "b"},
        "text": {"verbosity": "low"},
        "reasoning": {"effort": "low"},
        "max_output_tokens": 9,
        "store": True,
        "truncation": "auto",
    }
    response = response_of(completion({"content": "a"}), asked)
    for name in ("instructions", "temperature", "tools", "metadata", "max_output_tokens"):
        assert response[name] == asked[name]
    assert response["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert response["reasoning"] == {"effort": "low", "summary": None}
    assert (response["store"], response["truncation"]) == (False, "disabled")
    assert Response.model_validate(response).metadata == {"a": "b"}


def test_pieces_of_calls_made_at_once_find_their_call() -> None:
    def piece(index: int, arguments: str) -> dict[str, Any]:
        return chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})

    begun = [chunk({"tool_calls": [{"index": i, **tool_call(i, "")}]}) for i in (0, 1)]
    events = written([*begun, piece(0, "a"), piece(1, "x"), piece(0, "b"), chunk({}, "tool_calls")])
    assert texts(accumulated(events)) == ["ab", "x"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [(item["call_id"], item["arguments"]) for item in done] == [("call0", "ab"), ("call1", "x")]


def test_a_call_may_be_named_after_it_has_begun() -> None:
    late = {"index": 0, "function": {"name": "f", "arguments": "{}"}}
    events = written(
        [chunk({"tool_calls": [{"index": 0, "id": "c"}]}), chunk({"tool_calls": [late]}, "tool_calls")]
    )
    (call,) = events[-1]["response"]["output"]
    assert (call["call_id"], call["name"], call["arguments"]) == ("c", "f", "{}")


@pytest.mark.parametrize("index", [{}, {"index": 0}, {"index": None}])
def test_calls_that_a_server_does_not_number_stay_apart(index: dict[str, Any]) -> None:
    calls = [{**tool_call(i, f"{{{i}}}"), **index} for i in (0, 1)]
    response = written([chunk({"tool_calls": [call]}) for call in calls])[-1]["response"]
    assert [item["arguments"] for item in response["output"]] == ["{0}", "{1}"]


def test_log_probabilities_belong_to_the_text() -> None:
    def said(token: str) -> dict[str, Any]:
        return {"content": [{"token": token, "logprob": -0.5, "bytes": None, "top_logprobs": []}]}

    chunks = [chunk({"content": t}, logprobs=said(t)) for t in ("a", "b")]
    events = written([*chunks, chunk({"tool_calls": [tool_call(0)]}), chunk({}, "stop", logprobs=said("c"))])
    logprobs = events[-1]["response"]["output"][0]["content"][0]["logprobs"]
    assert [(one["token"], one["bytes"]) for one in logprobs] == [("a", []), ("b", []), ("c", [])]
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [delta["logprobs"][0]["token"] for delta in deltas] == ["a", "b"]
    assert texts(accumulated(events)) == ["ab", "{}"]


def test_citations_are_annotations() -> None:
    citation = {"start_index": 0, "end_index": 1, "url": "http://a", "title": "A"}
    nested = {"type": "url_citation", "url_citation": citation}
    events = written([chunk({"content": "a"}), chunk({"annotations": [nested]}), chunk({}, "stop")])
    assert "output_text.annotation.added" in types(events)
    part = events[-1]["response"]["output"][0]["content"][0]
    assert part["annotations"] == [{"type": "url_citation", **citation}]
    assert texts(accumulated(events)) == ["a"]


def test_a_refusal_after_a_text_is_a_part_of_its_own() -> None:
    events = written([chunk({"content": "a"}), chunk({"refusal": "no"}), chunk({}, "stop")])
    parts = events[-1]["response"]["output"][0]["content"]
    assert [part["type"] for part in parts] == ["output_text", "refusal"]
    assert types(events)[5:9] == [
        "output_text.done",
        "content_part.done",
        "content_part.added",
        "refusal.delta",
    ]


def test_chunks_before_the_first_choice_do_not_name_the_answer() -> None:
    early = {"id": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}
    events = written([early, chunk({"content": "a"}, "stop")])
    assert {event["response"]["id"] for event in events if "response" in event} == {"resp_1a"}
    assert events[0]["response"]["model"] == HEAD["model"]


def test_an_answer_without_an_id_gets_one() -> None:
    ids = {response_of(completion({"content": "a"}, id=given), ASKED)["id"] for given in ("", None)}
    assert len(ids) == 2
    assert all(len(one) == len("resp_") + 32 for one in ids)


def test_an_empty_stream_is_an_incomplete_answer() -> None:
    events = written([])
    assert types(events) == ["created", "in_progress", "incomplete"]
    assert accumulated(events).output == []


def test_text_in_parts_is_text() -> None:
    message = {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert response_of(completion(message), ASKED)["output"][0]["content"][0]["text"] == "ab"
