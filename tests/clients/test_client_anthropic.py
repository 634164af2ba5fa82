"""Anthropic's client before Anthropic's API and before OpenAI's."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from pydantic import BaseModel

from tests.clients import fake_anthropic
from tests.clients.fake_model import (
    CACHED_TOKENS,
    COMPLETION_TOKENS,
    JSON_ANSWER,
    NOTE,
    PIXEL,
    PROMPT_TOKENS,
    REASONING,
    SIGNATURE,
    described_image,
    echo,
)
from tests.clients.stack import Stack

BACKENDS = ("claude", "gpt", "plain")
WEATHER: Any = {
    "name": "weather",
    "description": "Today's weather in a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class City(BaseModel):
    city: str
    inhabitants: int


def user(content: Any) -> list[Any]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize("model", [*BACKENDS, "auto"])
def test_a_miss_and_then_an_exact_hit(anthropic_client: anthropic.Anthropic, model: str) -> None:
    ids = set()
    for cache in ("miss", "hit-exact"):
        raw = anthropic_client.messages.with_raw_response.create(
            model=model, max_tokens=300, system="Be brief.", messages=user("What is a key?")
        )
        assert raw.headers["x-lockgate-cache"] == cache
        answer = raw.parse()
        ids.add(answer.id)
        assert [block.to_dict() for block in answer.content] == [
            {"type": "text", "text": echo("What is a key?", "Be brief.")}
        ]
        assert (answer.type, answer.role, answer.stop_reason) == ("message", "assistant", "end_turn")
        assert answer.usage.input_tokens == PROMPT_TOKENS - CACHED_TOKENS
        assert answer.usage.cache_read_input_tokens == CACHED_TOKENS
        assert answer.usage.output_tokens == COMPLETION_TOKENS
        assert answer._request_id
    assert len(ids) == 2


def test_what_anthropic_answers_comes_as_it_is(anthropic_client: anthropic.Anthropic, stack: Stack) -> None:
    asked: Any = {"model": "claude-thinks", "max_tokens": 300, "messages": user("Byte for byte?")}
    raw = anthropic_client.messages.with_raw_response.create(**asked)
    sent = fake_anthropic.answer(stack.claude.last)
    assert raw.http_response.content == b"".join(sent.pieces)
    raw = anthropic_client.messages.with_raw_response.create(
        **{**asked, "messages": user("In a stream?")}, stream=True
    )
    told = b"".join(raw.http_response.iter_bytes())
    assert told == b"".join(fake_anthropic.answer(stack.claude.last).pieces)


def test_what_the_client_asks_comes_to_anthropic_as_it_is(
    anthropic_client: anthropic.Anthropic, stack: Stack, key: str
) -> None:
    system: Any = [{"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    asked: Any = {
        "model": "claude",
        "max_tokens": 2_000,
        "system": system,
        "messages": user([{"type": "text", "text": "All of it?", "cache_control": {"type": "ephemeral"}}]),
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
        "tools": [{**WEATHER, "cache_control": {"type": "ephemeral"}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "metadata": {"user_id": "u-1"},
        "stop_sequences": ["END"],
        "service_tier": "auto",
    }
    anthropic_client.messages.create(**asked, extra_headers={"anthropic-beta": "some-beta-2026-01-01"})
    assert stack.claude.last.json() == asked
    headers = stack.claude.last.headers
    assert headers["x-api-key"] == key
    assert headers["anthropic-beta"] == "some-beta-2026-01-01"
    assert headers["anthropic-version"] == anthropic_client.default_headers["anthropic-version"]


@pytest.mark.parametrize("model", BACKENDS)
def test_a_stream_that_misses_and_one_that_hits_have_the_text(
    anthropic_client: anthropic.Anthropic, model: str
) -> None:
    for cache in ("miss", "hit-exact"):
        raw = anthropic_client.messages.with_raw_response.create(
            model=model, max_tokens=300, messages=user("What is a stream?"), stream=True
        )
        assert raw.headers["x-lockgate-cache"] == cache
        events = [event for event in raw.parse() if event.type != "ping"]  # type: ignore[comparison-overlap]
        kinds = [event.type for event in events]
        assert kinds[:2] == ["message_start", "content_block_start"]
        assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
        assert kinds.count("content_block_delta") > 1
    for _ in ("hit-exact", "hit-exact"):
        with anthropic_client.messages.stream(
            model=model, max_tokens=300, messages=user("What is a stream?")
        ) as stream:
            told = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert told == echo("What is a stream?")
        assert final.usage.output_tokens == COMPLETION_TOKENS
        assert final.usage.input_tokens == PROMPT_TOKENS - CACHED_TOKENS
        assert final.stop_reason == "end_turn"


@pytest.mark.parametrize("model", BACKENDS)
def test_the_streaming_helper_reads_a_miss(anthropic_client: anthropic.Anthropic, model: str) -> None:
    with anthropic_client.messages.stream(model=model, max_tokens=300, messages=user("Helped?")) as stream:
        assert stream.response.headers["x-lockgate-cache"] == "miss"
        final = stream.get_final_message()
    assert [block.to_dict() for block in final.content] == [{"type": "text", "text": echo("Helped?")}]
    assert final.usage.output_tokens == COMPLETION_TOKENS
    assert final.usage.input_tokens == PROMPT_TOKENS - CACHED_TOKENS


@pytest.mark.parametrize("model", BACKENDS)
@pytest.mark.parametrize("stream", [False, True])
def test_parallel_tools_and_their_results(
    anthropic_client: anthropic.Anthropic, model: str, stream: bool
) -> None:
    messages = user(f"What is the weather in Paris and Rome (streamed: {stream})?")
    asked: Any = {"model": model, "max_tokens": 300, "messages": messages, "tools": [WEATHER]}
    for _ in ("miss", "hit-exact"):
        if stream:
            with anthropic_client.messages.stream(**asked) as opened:
                answer: Any = opened.get_final_message()
        else:
            answer = anthropic_client.messages.create(**asked)
        assert answer.stop_reason == "tool_use"
        calls = answer.content
        assert [(call.type, call.id, call.name) for call in calls] == [
            ("tool_use", "call_paris", "weather"),
            ("tool_use", "call_rome", "weather"),
        ]
        assert [call.input for call in calls] == [
            {"city": "Paris", "note": NOTE},
            {"city": "Rome", "note": NOTE},
        ]
    results = [
        {"type": "tool_result", "tool_use_id": "call_paris", "content": "18°"},
        {"type": "tool_result", "tool_use_id": "call_rome", "content": [{"type": "text", "text": "25°"}]},
    ]
    told = anthropic_client.messages.create(
        **{**asked, "messages": [*messages, {"role": "assistant", "content": calls}, *user(results)]}
    )
    assert told.content[0].to_dict() == {"type": "text", "text": "call_paris says 18°; call_rome says 25°"}


@pytest.mark.parametrize("model", BACKENDS)
def test_system_blocks_and_images(anthropic_client: anthropic.Anthropic, model: str) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    answer = anthropic_client.messages.create(
        model=model,
        max_tokens=300,
        system=[{"type": "text", "text": "Look "}, {"type": "text", "text": "well."}],
        messages=user([{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]),
    )
    told: Any = answer.content[0]
    assert told.text == f"I see {described_image('image/png', PIXEL)}."
    answer = anthropic_client.messages.create(
        model=model,
        max_tokens=300,
        system=[{"type": "text", "text": "Look "}, {"type": "text", "text": "well."}],
        messages=user("And now?"),
    )
    told = answer.content[0]
    assert json.dumps(told.text).count("Look ") == 1
    assert "well." in told.text


@pytest.mark.parametrize("model", BACKENDS)
def test_an_image_in_a_tools_result_reaches_the_model(
    anthropic_client: anthropic.Anthropic, model: str
) -> None:
    call: Any = {"type": "tool_use", "id": "call_1", "name": "weather", "input": {}}
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    content = [{"type": "text", "text": "See."}, {"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": content}
    answer = anthropic_client.messages.create(
        model=model,
        max_tokens=300,
        messages=[*user("A picture?"), {"role": "assistant", "content": [call]}, *user([result])],
        tools=[WEATHER],
    )
    told: Any = answer.content[0]
    assert described_image("image/png", PIXEL) in told.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("model", "signature"), [("claude", SIGNATURE), ("gpt", ""), ("plain", "")])
def test_thinking_comes_before_the_text(
    anthropic_client: anthropic.Anthropic, model: str, signature: str, stream: bool
) -> None:
    asked: Any = {
        "model": model,
        "max_tokens": 2_000,
        "messages": user(f"Why (streamed: {stream})?"),
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
    }
    for _ in ("miss", "hit-exact"):
        if stream:
            with anthropic_client.messages.stream(**asked) as opened:
                answer = opened.get_final_message()
        else:
            answer = anthropic_client.messages.create(**asked)
        assert [block.to_dict() for block in answer.content] == [
            {"type": "thinking", "thinking": REASONING, "signature": signature},
            {"type": "text", "text": echo(f"Why (streamed: {stream})?")},
        ]


@pytest.mark.parametrize("model", BACKENDS)
def test_json_by_a_schema_is_parsed_by_the_client(anthropic_client: anthropic.Anthropic, model: str) -> None:
    answer = anthropic_client.messages.parse(
        model=model, max_tokens=300, messages=user("Which city?"), output_format=City
    )
    assert answer.parsed_output == City(**JSON_ANSWER)


def test_tokens_are_counted_by_anthropic_and_else_estimated(anthropic_client: anthropic.Anthropic) -> None:
    def count(model: str) -> tuple[int, str | None]:
        raw = anthropic_client.messages.with_raw_response.count_tokens(
            model=model, system="Be brief.", messages=user("How many words are there in this sentence?")
        )
        return raw.parse().input_tokens, raw.headers.get("x-lockgate-estimated")

    assert count("claude") == (fake_anthropic.COUNTED, None)
    tokens, estimated = count("plain")
    assert 8 <= tokens <= 30
    assert estimated == "true"


def test_models_are_in_anthropics_form(anthropic_client: anthropic.Anthropic) -> None:
    models = {model.id: model for model in anthropic_client.models.list()}
    assert {"auto", "claude", "gpt"} <= models.keys()
    assert models["claude"].type == "model"
    assert models["claude"].created_at.year >= 2024
    assert anthropic_client.models.retrieve("gpt").display_name == "gpt"
    with pytest.raises(anthropic.NotFoundError):
        anthropic_client.models.retrieve("nobody")
