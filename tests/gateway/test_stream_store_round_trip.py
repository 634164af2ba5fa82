"""From an upstream's stream to the answer that is kept, to the stream that is replayed, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from hypothesis import HealthCheck, given, settings
from openai._models import construct_type
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from backends.sse import SseReader
from gateway.wire.chat_dialect import ChatDialect
from gateway.wire.completions import CompletionsDialect
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MessagesDialect
from gateway.wire.responses import ResponsesDialect
from tests.gateway.response_cases import response_cases
from tests.gateway.stream_cases import chat_cases, completion_cases, message_cases
from tests.openai_types import accumulated

Case = tuple[dict[str, Any], list[dict[str, Any]]]
CHAT, COMPLETIONS = ChatDialect(), CompletionsDialect()
MESSAGES, RESPONSES = MessagesDialect(), ResponsesDialect()
many = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def assembled(dialect: Dialect, events: list[dict[str, Any]]) -> dict[str, Any]:
    assembler = dialect.assembler()
    for event in events:
        assembler.add(event)
    return assembler.answer()


def sent(dialect: Dialect, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a replay as a client reads them from its bytes."""
    data = b"".join(map(dialect.frame, dialect.events(answer, include_usage=True))) + dialect.end
    events = [event.data for event in SseReader().feed(data) if event.data is not None]
    if dialect.end:
        assert events.pop() == b"[DONE]"
    return [json.loads(event) for event in events]


def check(dialect: Dialect, case: Case) -> list[dict[str, Any]]:
    whole, stream = case
    before = json.dumps(stream)
    kept = assembled(dialect, stream)
    assert kept == whole
    again = sent(dialect, kept)
    assert assembled(dialect, again) == whole
    assert json.dumps(stream) == before
    return again


@pytest.mark.filterwarnings("ignore:Pydantic serializer")  # OpenAI's client knows no content in parts
@given(chat_cases())
@many
def test_a_chat_completion(case: Case) -> None:
    again = check(CHAT, case)
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in again:
        parsed: Any = construct_type(type_=ChatCompletionChunk, value=chunk)
        state.handle_chunk(parsed)
    final: Any = state.current_completion_snapshot.to_dict(warnings=False)
    for choice in final["choices"]:
        for number, call in enumerate(choice["message"].get("tool_calls") or ()):
            assert call.pop("index") == number
    assert without_none(final) == without_none(case[0])


@given(completion_cases())
@many
def test_a_completion(case: Case) -> None:
    check(COMPLETIONS, case)


@given(message_cases())
@many
def test_a_message(case: Case) -> None:
    again = check(MESSAGES, case)
    assert without_none(read_by_anthropic(again)) == without_none(read_by_anthropic(case[1]))


@given(response_cases())
@many
def test_a_response(case: Case) -> None:
    again = check(RESPONSES, case)
    assert [event["sequence_number"] for event in again] == list(range(len(again)))
    assert accumulated(again) == accumulated(case[1])


def read_by_anthropic(events: list[dict[str, Any]]) -> Any:
    """The message as Anthropic's client has it at the end of a stream."""
    snapshot: Any = None
    inputs: dict[int, bytes] = {}
    for event in events:
        if event["type"] != "ping":
            raw: Any = event
            snapshot = accumulate_event(event=raw, current_snapshot=snapshot, json_bufs=inputs)
    return snapshot.to_dict(warnings=False)


def without_none(value: Any) -> Any:
    """What is null may be left out: the clients' types give null for it."""
    if isinstance(value, dict):
        return {name: without_none(inner) for name, inner in value.items() if inner is not None}
    return [without_none(inner) for inner in value] if isinstance(value, list) else value
