"""OpenAI's client, chat completions: misses, hits, streams, tools, images, JSON."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.clients.fake_model import (
    CACHED_TOKENS,
    COMPLETION_TOKENS,
    JSON_ANSWER,
    PIXEL,
    PROMPT_TOKENS,
    REASONING,
    described_image,
    echo,
)
from tests.clients.openai_chat import finish_of, streamed, text_of, user
from tests.clients.stack import Stack

BACKENDS = ("gpt", "plain", "claude")
"""An OpenAI client gets the same of each."""


class City(BaseModel):
    city: str
    inhabitants: int


@pytest.mark.parametrize("model", [*BACKENDS, "auto"])
def test_a_miss_and_then_an_exact_hit(openai_client: openai.OpenAI, stack: Stack, model: str) -> None:
    def ask() -> tuple[Any, Any]:
        raw = openai_client.chat.completions.with_raw_response.create(
            model=model, messages=[{"role": "system", "content": "Be brief."}, *user("What is a key?")]
        )
        return raw.parse(), raw.headers

    first, headers = ask()
    assert headers["x-lockgate-cache"] == "miss"
    assert first.choices[0].message.content == echo("What is a key?", "Be brief.")
    assert first.choices[0].finish_reason == "stop"
    asked = len(stack.openai.received) + len(stack.plain.received) + len(stack.claude.received)
    again, headers = ask()
    assert headers["x-lockgate-cache"] == "hit-exact"
    assert again.choices == first.choices
    assert again.usage == first.usage
    assert again.id != first.id
    assert again.model == model
    assert len(stack.openai.received) + len(stack.plain.received) + len(stack.claude.received) == asked


@pytest.mark.parametrize("model", BACKENDS)
def test_usage_comes_through(openai_client: openai.OpenAI, model: str) -> None:
    usage = openai_client.chat.completions.create(model=model, messages=user("What costs it?")).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (PROMPT_TOKENS, COMPLETION_TOKENS)
    assert usage.total_tokens == PROMPT_TOKENS + COMPLETION_TOKENS
    assert usage.prompt_tokens_details.cached_tokens == CACHED_TOKENS


@pytest.mark.parametrize("model", BACKENDS)
def test_a_stream_that_misses_and_one_that_hits_have_the_text(
    openai_client: openai.OpenAI, model: str
) -> None:
    asked: Any = {"model": model, "messages": user("What is a stream?")}
    for cache in ("miss", "hit-exact"):
        chunks, told = streamed(openai_client, **asked)
        assert told == cache
        assert text_of(chunks) == echo("What is a stream?")
        assert len(chunks) > 3
        assert finish_of(chunks) == ["stop"]
        assert len({chunk.id for chunk in chunks}) == 1


@pytest.mark.parametrize("model", BACKENDS)
@pytest.mark.parametrize("asked_usage", [True, False])
def test_usage_is_in_a_stream_only_when_asked(
    openai_client: openai.OpenAI, model: str, asked_usage: bool
) -> None:
    asked: Any = {"model": model, "messages": user(f"Usage: {asked_usage}?")}
    for _ in ("miss", "hit-exact"):
        chunks, _ = streamed(openai_client, **asked, stream_options={"include_usage": asked_usage})
        told = [chunk.usage for chunk in chunks if chunk.usage is not None]
        if not asked_usage:
            assert told == []
            assert all(chunk.choices for chunk in chunks)
            continue
        assert [usage.total_tokens for usage in told] == [PROMPT_TOKENS + COMPLETION_TOKENS]
        assert chunks[-1].usage is not None
        assert chunks[-1].choices == []


def test_a_stream_and_a_whole_answer_share_one_entry(openai_client: openai.OpenAI) -> None:
    asked: Any = {"model": "gpt", "messages": user("Shared by both forms?")}
    streamed(openai_client, **asked)
    raw = openai_client.chat.completions.with_raw_response.create(**asked)
    assert raw.headers["x-lockgate-cache"] == "hit-exact"
    assert raw.parse().choices[0].message.content == echo("Shared by both forms?")


@pytest.mark.parametrize("model", BACKENDS)
def test_the_streaming_helper_accumulates_text(openai_client: openai.OpenAI, model: str) -> None:
    with openai_client.chat.completions.stream(model=model, messages=user("Helped?")) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert text == echo("Helped?")
    assert final.choices[0].message.content == text


@pytest.mark.parametrize("model", BACKENDS)
def test_an_image_reaches_the_model_and_makes_another_question(
    openai_client: openai.OpenAI, model: str
) -> None:
    def ask(*images: str) -> tuple[str | None, str]:
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in images]
        raw = openai_client.chat.completions.with_raw_response.create(
            model=model, messages=user([{"type": "text", "text": "What is this?"}, *parts])
        )
        return raw.parse().choices[0].message.content, raw.headers["x-lockgate-cache"]

    inline, linked = f"data:image/png;base64,{PIXEL}", "https://example.test/cat.png"
    assert ask(inline) == (f"I see {described_image('image/png', PIXEL)}.", "miss")
    assert ask(linked) == (f"I see {linked}.", "miss")
    assert ask(inline, linked)[1] == "miss"
    assert ask(linked) == (f"I see {linked}.", "hit-exact")


def test_an_image_of_megabytes_comes_through(openai_client: openai.OpenAI) -> None:
    data = base64.b64encode(bytes(5_000_000)).decode()
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    for model in ("gpt", "claude"):
        answer = openai_client.chat.completions.create(model=model, messages=user([part]))
        assert answer.choices[0].message.content == "I see image/png of 5000000 bytes."


def test_a_pdf_reaches_a_claude(openai_client: openai.OpenAI, stack: Stack) -> None:
    file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"}
    parts = [{"type": "text", "text": "Read it."}, {"type": "file", "file": file}]
    openai_client.chat.completions.create(model="claude", messages=user(parts))
    (message,) = stack.claude.last.json()["messages"]
    source = {"type": "base64", "media_type": "application/pdf", "data": PIXEL}
    assert message["content"][1] == {"type": "document", "source": source, "title": "a.pdf"}


@pytest.mark.parametrize("model", BACKENDS)
def test_json_by_a_schema_is_parsed_by_the_client(openai_client: openai.OpenAI, model: str) -> None:
    for _ in ("miss", "hit-exact"):
        answer = openai_client.chat.completions.parse(
            model=model, messages=user("Which city?"), response_format=City
        )
        assert answer.choices[0].message.parsed == City(**JSON_ANSWER)


def test_json_without_a_schema_is_another_question_than_text(openai_client: openai.OpenAI) -> None:
    def ask(kind: str) -> str | None:
        wanted: Any = {"type": kind}
        answer = openai_client.chat.completions.create(
            model="gpt", messages=user("JSON or text?"), response_format=wanted
        )
        return answer.choices[0].message.content

    assert ask("text") == echo("JSON or text?")
    assert json.loads(ask("json_object") or "") == JSON_ANSWER


@pytest.mark.parametrize("model", ["gpt-thinks", "claude-thinks"])
def test_reasoning_comes_through_whole_and_streamed(openai_client: openai.OpenAI, model: str) -> None:
    for _ in ("miss", "hit-exact"):
        whole = openai_client.chat.completions.create(model=model, messages=user("Why?"))
        assert whole.choices[0].message.model_extra is not None
        assert whole.choices[0].message.model_extra["reasoning_content"] == REASONING
    for cache in ("miss", "hit-exact"):
        chunks, told = streamed(openai_client, model=model, messages=user("Why, in a stream?"))
        assert told == cache
        deltas = [chunk.choices[0].delta.model_extra or {} for chunk in chunks if chunk.choices]
        assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == REASONING
        assert text_of(chunks) == echo("Why, in a stream?")


def test_an_effort_lets_a_claude_think(openai_client: openai.OpenAI) -> None:
    answer = openai_client.chat.completions.create(
        model="claude", messages=user("Think hard."), reasoning_effort="high"
    )
    assert answer.choices[0].message.model_extra is not None
    assert answer.choices[0].message.model_extra["reasoning_content"] == REASONING


def test_several_choices_come_whole_and_streamed(openai_client: openai.OpenAI) -> None:
    asked: Any = {"model": "gpt", "messages": user("Two of them?"), "n": 2}
    for _ in range(2):
        whole = openai_client.chat.completions.create(**asked)
        assert [choice.message.content for choice in whole.choices] == [echo("Two of them?")] * 2
        chunks, _ = streamed(openai_client, **asked)
        for index in (0, 1):
            pieces = [
                choice.delta.content or ""
                for chunk in chunks
                for choice in chunk.choices
                if choice.index == index
            ]
            assert "".join(pieces) == echo("Two of them?")


def test_what_a_claude_cannot_do_is_refused_and_named(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.chat.completions.create(model="claude", messages=user("Two?"), n=2)
    assert refused.value.param == "n"


@pytest.mark.parametrize("model", BACKENDS)
def test_system_and_developer_messages_are_told(openai_client: openai.OpenAI, model: str) -> None:
    for role in ("system", "developer"):
        messages: Any = [{"role": role, "content": f"I am {role}."}, *user("Who are you?")]
        answer = openai_client.chat.completions.create(model=model, messages=messages)
        assert answer.choices[0].message.content == echo("Who are you?", f"I am {role}.")


def test_a_route_takes_the_model_that_the_client_pins(openai_client: openai.OpenAI) -> None:
    for tier, model in (("small", "gpt"), ("large", "claude")):
        raw = openai_client.chat.completions.with_raw_response.create(
            model="auto", messages=user(f"Pinned, {tier}?"), extra_headers={"x-lockgate-route": tier}
        )
        assert (raw.headers["x-lockgate-route"], raw.headers["x-lockgate-model"]) == (tier, model)
        assert raw.parse().choices[0].message.content == echo(f"Pinned, {tier}?")


async def test_equal_questions_at_once_are_one_call_upstream(stack: Stack) -> None:
    before = len(stack.openai.received)
    async with openai.AsyncOpenAI(base_url=stack.server.base_url, api_key="sk-many") as client:

        async def ask(stream: bool) -> tuple[str, str]:
            raw = await client.chat.completions.with_raw_response.create(
                model="gpt", messages=user("All at once?"), stream=stream
            )
            answer: Any = raw.parse()
            kind = raw.headers["x-lockgate-cache"]
            if stream:
                return text_of([chunk async for chunk in answer]), kind
            return answer.choices[0].message.content, kind

        told = await asyncio.gather(*(ask(stream=i % 2 == 0) for i in range(10)))
    assert {text for text, _ in told} == {echo("All at once?")}
    assert [kind for _, kind in told].count("miss") == 1
    assert len(stack.openai.received) == before + 1


def test_cache_control_is_obeyed(openai_client: openai.OpenAI) -> None:
    def ask(directive: str) -> str:
        raw = openai_client.chat.completions.with_raw_response.create(
            model="gpt", messages=user("Fresh?"), extra_headers={"cache-control": directive}
        )
        return str(raw.headers["x-lockgate-cache"])

    with pytest.raises(openai.InternalServerError, match="only-if-cached") as refused:
        ask("only-if-cached")
    assert refused.value.status_code == 504
    assert [ask(d) for d in ("no-store", "max-age=60", "max-age=60")] == ["miss", "miss", "hit-exact"]
    assert ask("no-cache") != "hit-exact"
    assert ask("only-if-cached") == "hit-exact"


def test_one_clients_answers_are_not_anothers(openai_client: openai.OpenAI) -> None:
    asked: Any = {"model": "gpt", "messages": user("Whose is it?")}
    openai_client.chat.completions.create(**asked)
    other = openai_client.with_options(api_key="sk-another")
    raw = other.chat.completions.with_raw_response.create(**asked)
    assert raw.headers["x-lockgate-cache"] == "miss"


def test_the_clients_key_is_what_the_upstream_gets(
    openai_client: openai.OpenAI, stack: Stack, key: str
) -> None:
    openai_client.chat.completions.create(model="gpt", messages=user("Which key?"))
    assert stack.openai.last.headers["authorization"] == f"Bearer {key}"
    openai_client.chat.completions.create(model="claude", messages=user("Which key?"))
    assert stack.claude.last.headers["x-api-key"] == key
    assert "authorization" not in stack.claude.last.headers
