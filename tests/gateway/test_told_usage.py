"""What streams tell of usage before their end."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.told_usage import ToldUsage
from gateway.wire.chat_dialect import ChatDialect
from gateway.wire.messages import MessagesDialect
from policies.types import Usage
from tests.gateways import chunk, whole

START = {"type": "message_start", "message": {"usage": {"input_tokens": 7, "cache_read_input_tokens": 2}}}
DELTA = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5}}
SILENT: dict[str, Any] = {"choices": []}


def chat(completion_tokens: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": completion_tokens}}


def test_nothing_is_told_by_events_without_usage() -> None:
    told = ToldUsage.of([chunk(SILENT), chunk({"choices": [], "usage": None})], ChatDialect())
    assert told.usage is None
    assert not told.tells_output


def test_what_was_told_last_counts() -> None:
    told = ToldUsage.of([chunk(chat(1)), chunk(chat(4)), chunk(SILENT)], ChatDialect())
    assert told.usage == Usage(prompt_tokens=3, completion_tokens=4)
    assert told.tells_output


def test_of_one_chunk_the_last_event_counts() -> None:
    told = ToldUsage(ChatDialect())
    told.add([chat(1), chat(4)])
    assert told.usage == Usage(prompt_tokens=3, completion_tokens=4)


@pytest.mark.parametrize("at_once", [True, False])
def test_the_two_halves_of_an_anthropic_stream_are_put_together(at_once: bool) -> None:
    if at_once:
        told = ToldUsage.of([chunk(START), chunk({"type": "ping"}), chunk(DELTA)], MessagesDialect())
    else:
        told = ToldUsage(MessagesDialect())
        told.add([START])
        told.add([{"type": "ping"}, DELTA])
    assert told.usage == Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=2)
    assert told.tells_output


def test_an_anthropic_stream_begins_with_the_input_alone() -> None:
    told = ToldUsage.of([chunk(START)], MessagesDialect())
    assert told.usage == Usage(prompt_tokens=9, cached_tokens=2)
    assert not told.tells_output


def test_a_whole_answer_tells_all() -> None:
    body = {"type": "message", "usage": {"input_tokens": 1, "output_tokens": 2}}
    told = ToldUsage.of([whole(body)], MessagesDialect())
    assert told.usage == Usage(prompt_tokens=1, completion_tokens=2)
    assert told.tells_output
