"""OpenAI's client, responses: native, translated to chat completions, and over both to messages."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.clients.fake_model import (
    CACHED_TOKENS,
    COMPLETION_TOKENS,
    JSON_ANSWER,
    NOTE,
    PIXEL,
    PROMPT_TOKENS,
    REASONING,
    described_image,
    echo,
)
from tests.clients.stack import CANCELLED_WITHIN_S, Stack

BACKENDS = ("gpt", "plain", "claude")
"""Native; chat completions alone; messages alone."""
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": None,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


class City(BaseModel):
    city: str
    inhabitants: int


@pytest.mark.parametrize("model", [*BACKENDS, "auto", "chat-alone"])
def test_a_miss_and_then_an_exact_hit(openai_client: openai.OpenAI, model: str) -> None:
    ids = set()
    for cache in ("miss", "hit-exact"):
        raw = openai_client.responses.with_raw_response.create(
            model=model, input="What is a lock?", instructions="Be brief.", store=False
        )
        assert raw.headers["x-lockgate-cache"] == cache
        answer = raw.parse()
        ids.add(answer.id)
        assert answer.output_text == echo("What is a lock?", "Be brief.")
        assert answer.status == "completed"
        assert answer.usage is not None
        assert (answer.usage.input_tokens, answer.usage.output_tokens) == (PROMPT_TOKENS, COMPLETION_TOKENS)
        assert answer.usage.input_tokens_details.cached_tokens == CACHED_TOKENS
    assert len(ids) == 2


def test_a_response_that_its_upstream_keeps_has_its_id_on_a_hit_too(openai_client: openai.OpenAI) -> None:
    first, again = (openai_client.responses.create(model="gpt", input="Which one?") for _ in range(2))
    assert first.id == again.id == "resp_up"


def test_an_upstream_without_responses_is_found_out_and_asked_for_chat(
    openai_client: openai.OpenAI, stack: Stack
) -> None:
    before = len(stack.plain.received)
    for number in range(2):
        answer = openai_client.responses.create(model="chat-alone", input=f"Do you know it, {number}?")
        assert answer.output_text == echo(f"Do you know it, {number}?")
    tried = [request.path for request in stack.plain.received[before:]]
    assert tried.count("/v1/chat/completions") == 2
    assert tried.count("/v1/responses") <= 1


@pytest.mark.parametrize("model", BACKENDS)
def test_a_stream_has_its_events_in_order_and_its_text(openai_client: openai.OpenAI, model: str) -> None:
    for cache in ("miss", "hit-exact"):
        raw = openai_client.responses.with_raw_response.create(
            model=model, input="What is an event?", stream=True
        )
        assert raw.headers["x-lockgate-cache"] == cache
        events = list(raw.parse())
        kinds = [event.type for event in events]
        assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
        assert kinds[-1] == "response.completed"
        assert [event.sequence_number for event in events] == list(range(len(events)))
        told = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert told == echo("What is an event?")
        last = events[-1]
        assert last.type == "response.completed"
        assert last.response.output_text == told
        assert last.response.usage is not None
        assert last.response.usage.total_tokens == PROMPT_TOKENS + COMPLETION_TOKENS


@pytest.mark.parametrize("model", BACKENDS)
def test_the_streaming_helper_puts_the_response_together(openai_client: openai.OpenAI, model: str) -> None:
    for _ in ("miss", "hit-exact"):
        with openai_client.responses.stream(model=model, input="Helped?") as stream:
            told = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            assert stream.get_final_response().output_text == told == echo("Helped?")


@pytest.mark.parametrize("model", BACKENDS)
def test_parallel_calls_and_their_outputs(openai_client: openai.OpenAI, model: str) -> None:
    asked: list[Any] = [{"role": "user", "content": "What is the weather in Paris and Seoul?"}]
    for _ in ("miss", "hit-exact"):
        answer = openai_client.responses.create(model=model, input=asked, tools=[WEATHER])
        calls: Any = [item for item in answer.output if item.type == "function_call"]
        assert [(call.call_id, call.name) for call in calls] == [
            ("call_paris", "weather"),
            ("call_seoul", "weather"),
        ]
        assert [json.loads(call.arguments) for call in calls] == [
            {"city": "Paris", "note": NOTE},
            {"city": "Seoul", "note": NOTE},
        ]
    outputs = [
        {"type": "function_call_output", "call_id": call.call_id, "output": f"{n}°"}
        for n, call in enumerate(calls)
    ]
    history: list[Any] = [*asked, *(item.to_dict() for item in answer.output), *outputs]
    told = openai_client.responses.create(model=model, input=history, tools=[WEATHER])
    assert told.output_text == "call_paris says 0°; call_seoul says 1°"


@pytest.mark.parametrize("model", BACKENDS)
def test_parallel_calls_stream(openai_client: openai.OpenAI, model: str) -> None:
    for cache in ("miss", "hit-exact"):
        raw = openai_client.responses.with_raw_response.create(
            model=model, input="The weather in Rome and Seoul?", tools=[WEATHER], stream=True
        )
        assert raw.headers["x-lockgate-cache"] == cache
        pieces: dict[int, str] = {}
        done: dict[int, str] = {}
        for event in raw.parse():
            if event.type == "response.function_call_arguments.delta":
                pieces[event.output_index] = pieces.get(event.output_index, "") + event.delta
            elif event.type == "response.function_call_arguments.done":
                done[event.output_index] = event.arguments
        assert pieces == done
        assert [json.loads(text)["city"] for text in pieces.values()] == ["Rome", "Seoul"]


@pytest.mark.parametrize("model", BACKENDS)
def test_an_image_reaches_the_model(openai_client: openai.OpenAI, model: str) -> None:
    parts: Any = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
    ]
    answer = openai_client.responses.create(model=model, input=[{"role": "user", "content": parts}])
    assert answer.output_text == f"I see {described_image('image/png', PIXEL)}."


@pytest.mark.parametrize("model", BACKENDS)
def test_json_by_a_schema_is_parsed_by_the_client(openai_client: openai.OpenAI, model: str) -> None:
    answer = openai_client.responses.parse(model=model, input="Which city?", text_format=City)
    assert answer.output_parsed == City(**JSON_ANSWER)


@pytest.mark.parametrize("model", ["gpt-thinks", "plain-thinks", "claude-thinks"])
def test_reasoning_is_an_item_of_its_own(openai_client: openai.OpenAI, model: str) -> None:
    for stream in (False, True):
        asked: Any = {"model": model, "input": f"Why, streamed: {stream}?", "stream": stream}
        for _ in ("miss", "hit-exact"):
            answer = openai_client.responses.create(**asked)
            if stream:
                answer = list(answer)[-1].response
            assert [item.type for item in answer.output] == ["reasoning", "message"]
            assert answer.output[0].summary[0].text == REASONING


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, openai.BadRequestError), (429, openai.RateLimitError), (500, openai.InternalServerError)],
)
def test_an_upstreams_error_is_the_clients_own(
    openai_client: openai.OpenAI, backend: str, status: int, kind: type[openai.APIStatusError]
) -> None:
    for stream in (False, True):
        with pytest.raises(kind, match=f"The model says {status}") as raised:
            openai_client.responses.create(model=f"{backend}-fails-{status}", input="Well?", stream=stream)
        assert raised.value.request_id


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stream_that_breaks_off_ends_with_an_error(openai_client: openai.OpenAI, backend: str) -> None:
    events = list(openai_client.responses.create(model=f"{backend}-dies", input="Streamed?", stream=True))
    last = events[-1]
    assert last.type == "error"
    assert last.code == "upstream_cut"
    assert "response.completed" not in [event.type for event in events]


@pytest.mark.parametrize("backend", BACKENDS)
def test_closing_a_stream_reaches_the_upstream(
    openai_client: openai.OpenAI, stack: Stack, backend: str
) -> None:
    upstream = {"gpt": stack.openai, "plain": stack.plain, "claude": stack.claude}[backend]
    before = upstream.aborted
    stream = openai_client.responses.create(model=f"{backend}-hangs", input="Left?", stream=True)
    next(iter(stream))
    stream.close()
    upstream.until(lambda counted: counted.aborted == before + 1, CANCELLED_WITHIN_S)


@pytest.mark.parametrize("model", ["plain", "claude"])
def test_what_a_translated_model_cannot_do_is_refused_and_named(
    openai_client: openai.OpenAI, model: str
) -> None:
    with pytest.raises(openai.BadRequestError) as context:
        openai_client.responses.create(model=model, input="Go on.", previous_response_id="resp_1")
    assert context.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError) as tool:
        openai_client.responses.create(model=model, input="Search.", tools=[{"type": "web_search"}])
    assert tool.value.param == "tools[0].type"
