"""OpenAI's client, chat completions with tools."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.clients.fake_model import NOTE, echo
from tests.clients.openai_chat import finish_of, streamed, user
from tests.clients.stack import Stack

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Today's weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
ARGUMENTS = {city: {"city": city, "note": NOTE} for city in ("Paris", "Rome", "Seoul")}
BACKENDS = ("gpt", "plain", "claude")


@pytest.mark.parametrize("model", BACKENDS)
def test_parallel_tool_calls_come_whole(openai_client: openai.OpenAI, model: str) -> None:
    for cache in ("miss", "hit-exact"):
        raw = openai_client.chat.completions.with_raw_response.create(
            model=model, messages=user("What is the weather in Paris and Rome?"), tools=[WEATHER]
        )
        assert raw.headers["x-lockgate-cache"] == cache
        choice = raw.parse().choices[0]
        assert choice.finish_reason == "tool_calls"
        calls: list[Any] = choice.message.tool_calls or []
        assert [call.id for call in calls] == ["call_paris", "call_rome"]
        assert {call.function.name for call in calls} == {"weather"}
        assert [json.loads(call.function.arguments) for call in calls] == [
            ARGUMENTS["Paris"],
            ARGUMENTS["Rome"],
        ]


@pytest.mark.parametrize("model", BACKENDS)
def test_parallel_tool_calls_stream(openai_client: openai.OpenAI, model: str) -> None:
    for cache in ("miss", "hit-exact"):
        chunks, told = streamed(
            openai_client,
            model=model,
            messages=user("The weather in Paris, Rome and Seoul?"),
            tools=[WEATHER],
        )
        assert told == cache
        calls: dict[int, dict[str, str]] = {}
        for chunk in chunks:
            for piece in chunk.choices[0].delta.tool_calls or ():
                assert piece.function is not None
                call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += piece.id or ""
                call["name"] += piece.function.name or ""
                call["arguments"] += piece.function.arguments or ""
        assert [calls[i]["id"] for i in range(3)] == ["call_paris", "call_rome", "call_seoul"]
        assert [calls[i]["name"] for i in range(3)] == ["weather"] * 3
        assert [json.loads(calls[i]["arguments"]) for i in range(3)] == list(ARGUMENTS.values())
        assert finish_of(chunks) == ["tool_calls"]


@pytest.mark.parametrize("model", BACKENDS)
def test_a_conversation_goes_on_with_the_results_of_tools(openai_client: openai.OpenAI, model: str) -> None:
    messages = user("The weather in Rome and Seoul, now?")
    answer = openai_client.chat.completions.create(model=model, messages=messages, tools=[WEATHER])
    message: Any = answer.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": f"{n}°"}
        for n, call in enumerate(message.tool_calls)
    ]
    history: list[Any] = [*messages, message, *results]
    told = openai_client.chat.completions.create(model=model, messages=history, tools=[WEATHER])
    assert told.choices[0].message.content == "call_rome says 0°; call_seoul says 1°"
    assert told.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("model", BACKENDS)
def test_tools_and_the_choice_among_them_make_another_question(
    openai_client: openai.OpenAI, model: str
) -> None:
    def ask(**more: Any) -> tuple[str | None, str]:
        raw = openai_client.chat.completions.with_raw_response.create(
            model=model, messages=user("Any tool?"), **more
        )
        return raw.parse().choices[0].message.content, raw.headers["x-lockgate-cache"]

    named = {"type": "function", "function": {"name": "weather"}}
    for more in (
        {},
        {"tools": [WEATHER]},
        {"tools": [WEATHER], "tool_choice": "required"},
        {"tools": [WEATHER], "tool_choice": named},
    ):
        assert ask(**more) == (echo("Any tool?"), "miss")
        assert ask(**more) == (echo("Any tool?"), "hit-exact")


def test_the_choice_of_tools_is_told_to_a_claude(openai_client: openai.OpenAI, stack: Stack) -> None:
    def sent(choice: Any, **more: Any) -> Any:
        openai_client.chat.completions.create(
            model="claude", messages=user(f"{choice}?"), tools=[WEATHER], tool_choice=choice, **more
        )
        return stack.claude.last.json()["tool_choice"]

    assert sent("auto") == {"type": "auto"}
    assert sent("required", parallel_tool_calls=False) == {"type": "any", "disable_parallel_tool_use": True}
    assert sent("none") == {"type": "none"}
    assert sent({"type": "function", "function": {"name": "weather"}}) == {"type": "tool", "name": "weather"}


def test_a_custom_tool_is_openais_alone(openai_client: openai.OpenAI, stack: Stack) -> None:
    tools: Any = [{"type": "custom", "custom": {"name": "shell", "description": "A line of sh"}}]
    openai_client.chat.completions.create(model="gpt", messages=user("Custom?"), tools=tools)
    assert stack.openai.last.json()["tools"] == tools
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.chat.completions.create(model="claude", messages=user("Custom?"), tools=tools)
    assert refused.value.param == "tools[0].type"
