"""The dialect: usage, what is kept, and a stored answer made fresh."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.wire.dialect import Dialect
from gateway.wire.messages import MessagesDialect
from policies.types import Usage
from tests.gateway.wire.messages_cases import asking, message, text, tool_use

DIALECT: Dialect = MessagesDialect()
COUNTS = {
    "input_tokens": 3,
    "cache_read_input_tokens": 8,
    "cache_creation_input_tokens": 2,
    "output_tokens": 5,
}
WHOLE = Usage(prompt_tokens=13, completion_tokens=5, cached_tokens=8, cache_write_tokens=2)


def test_the_prompt_is_what_was_read_from_the_cache_written_to_it_and_neither() -> None:
    assert DIALECT.usage(message(usage=COUNTS)) == WHOLE


def test_usage_is_found_in_the_first_and_last_events() -> None:
    first = {"type": "message_start", "message": message(usage={**COUNTS, "output_tokens": 1})}
    last = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5}}
    assert DIALECT.usage(first) == Usage(
        prompt_tokens=13, completion_tokens=1, cached_tokens=8, cache_write_tokens=2
    )
    assert DIALECT.usage(last) == Usage(completion_tokens=5)


def test_usage_of_an_assembled_stream_is_whole() -> None:
    assembler = DIALECT.assembler()
    for event in DIALECT.events(message(text("a"), usage=COUNTS), include_usage=True):
        assembler.add(event)
    assert DIALECT.usage(assembler.answer()) == WHOLE


@pytest.mark.parametrize("event", [{}, {"type": "ping"}, {"type": "message_start"}, {"usage": None}])
def test_an_event_without_usage_says_none(event: dict[str, Any]) -> None:
    assert DIALECT.usage(event) is None


@pytest.mark.parametrize("value", [None, "3", -1])
def test_a_count_that_is_none_is_zero(value: Any) -> None:
    assert DIALECT.usage({"usage": {"input_tokens": value, "output_tokens": 2}}) == Usage(completion_tokens=2)


@pytest.mark.parametrize(
    "answer",
    [
        message(text("a")),
        message(text("a"), stop_reason="stop_sequence"),
        message(tool_use("t", "f", {}), stop_reason="tool_use"),
        message({"type": "later"}),
    ],
)
def test_a_clean_answer_may_be_kept(answer: dict[str, Any]) -> None:
    assert DIALECT.why_not_stored(answer) == ""


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (message(text("a"), stop_reason="max_tokens"), "the answer ended with max_tokens"),
        (message(text("a"), stop_reason="refusal"), "the answer ended with refusal"),
        (message(text("a"), stop_reason="pause_turn"), "the answer ended with pause_turn"),
        (
            message(text("a"), stop_reason="model_context_window_exceeded"),
            "the answer ended with model_context_window_exceeded",
        ),
        (message(text("a"), stop_reason=None), "the answer ended with no stop reason"),
        (message(), "the answer is empty"),
        (message(text(" \n")), "the answer is empty"),
        (message({"type": "thinking", "thinking": "hm", "signature": "s"}), "the answer is empty"),
    ],
)
def test_any_other_answer_is_not_kept_and_it_says_why(answer: dict[str, Any], why: str) -> None:
    assert DIALECT.why_not_stored(answer) == why


def test_a_stored_answer_becomes_a_fresh_one() -> None:
    stored = message(text("a"), later=1)
    fresh = DIALECT.renewed(stored, model="auto", now=5.0)
    assert fresh["id"].startswith("msg_")
    assert fresh["id"] not in ("msg_1", DIALECT.renewed(stored, model="auto", now=5.0)["id"])
    assert {**fresh, "id": "msg_1"} == {**stored, "model": "auto"}


def test_usage_is_in_a_stream_even_of_one_who_did_not_ask() -> None:
    events = list(DIALECT.events(message(text("a")), include_usage=False))
    assert events == list(DIALECT.events(message(text("a")), include_usage=True))


def test_nothing_follows_the_last_event() -> None:
    assert DIALECT.end == b""
    assert DIALECT.api == "messages"


def test_a_request_is_checked_and_seen_as_a_chat() -> None:
    body = asking(stream=True)
    assert DIALECT.check(body).stream
    assert DIALECT.chat_view(body)["messages"] == body["messages"]
    assert DIALECT.without_question(body)["messages"] == [{"role": "user", "content": ""}]
