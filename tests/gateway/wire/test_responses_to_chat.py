"""Responses requests for a chat backend: translated whole, or refused with the field's name."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

from gateway.errors import RequestError
from gateway.wire import chat
from gateway.wire.dialect import Translator
from gateway.wire.responses_to_chat import ResponsesToChat
from tests.chat_streams import chunk, completion

TRANSLATOR: Translator = ResponsesToChat()
USER = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
_CHAT: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsNonStreaming)


def translated(**fields: Any) -> dict[str, Any]:
    request = TRANSLATOR.request({"model": "auto", "input": "hello", **fields})
    chat.check(request)
    _CHAT.validate_python({name: value for name, value in request.items() if name != "stream"})
    return request


def test_a_text_is_the_users_message() -> None:
    assert translated() == {"model": "auto", "messages": [USER]}


def test_every_parameter_with_a_counterpart_goes_on() -> None:
    request = translated(
        instructions="Be brief.",
        tools=[TOOL],
        tool_choice={"type": "function", "name": "f"},
        parallel_tool_calls=False,
        text={
            "format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True},
            "verbosity": "low",
        },
        reasoning={"effort": "low", "summary": "auto"},
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.9,
        user="u",
        service_tier="flex",
    )
    assert request == {
        "model": "auto",
        "messages": [{"role": "system", "content": "Be brief."}, USER],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": "d",
                    "parameters": {"type": "object"},
                    "strict": True,
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {}, "strict": True},
        },
        "verbosity": "low",
        "reasoning_effort": "low",
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "user": "u",
        "service_tier": "flex",
    }


def test_what_does_not_change_the_answer_stays_behind() -> None:
    kept = translated(
        store=True,
        metadata={"a": "b"},
        truncation="auto",
        include=["reasoning.encrypted_content"],
        background=False,
        previous_response_id=None,
        text={"format": {"type": "text"}},
        tool_choice="auto",
        parallel_tool_calls=True,
    )
    assert kept == {"model": "auto", "messages": [USER]}


def test_unknown_fields_go_on() -> None:
    assert translated(seed=1, repetition_penalty=1.1) == {
        "model": "auto",
        "messages": [USER],
        "seed": 1,
        "repetition_penalty": 1.1,
    }


def test_a_stream_is_asked_for_with_its_usage() -> None:
    request = translated(stream=True, stream_options={"include_obfuscation": False})
    assert request["stream"] is True
    assert request["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
        ({"top_logprobs": 0}, {}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    ],
)
def test_log_probabilities_and_json(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert translated(**fields) == {"model": "auto", "messages": [USER], **expected}


def test_a_choice_among_some_tools_is_translated() -> None:
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert translated(tools=[TOOL], tool_choice=allowed)["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": tools},
    }


def test_files_and_images_are_sent_as_they_are_written() -> None:
    content = [
        {"type": "input_image", "image_url": "data:,", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,"},
    ]
    assert translated(input=[{"role": "user", "content": content}])["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": "data:,", "detail": "auto"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,"}},
    ]


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"input": [USER, {"role": "user", "content": list(content)}]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True}, "background"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"tools": [TOOL, {"type": "web_search"}]}, "tools[1].type"),
        ({"tools": [{"type": "custom", "name": "f"}]}, "tools[0].type"),
        ({"tools": [TOOL], "tool_choice": {"type": "mcp"}}, "tool_choice.type"),
        ({"input": [USER, {"type": "item_reference", "id": "i"}]}, "input[1].type"),
        ({"input": [{"type": "web_search_call", "id": "i"}]}, "input[0].type"),
        (user({"type": "input_file", "file_id": "f"}), "input[1].content[0].file_id"),
        (user({"type": "input_image", "file_id": "f"}), "input[1].content[0].file_id"),
        (user({"type": "input_file", "file_url": "http://a"}), "input[1].content[0].file_data"),
        (user({"type": "input_text", "text": "a"}, {"type": "hologram"}), "input[1].content[1].type"),
        (
            {
                "input": [
                    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]}
                ]
            },
            "input[0].output[0].type",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        TRANSLATOR.request({"model": "auto", "input": "hello", **fields})
    assert (caught.value.status, caught.value.param) == (400, param)
    assert str(caught.value).startswith(f"{param}: ")


def test_an_answer_comes_back_whole_and_streamed() -> None:
    asked = {"model": "auto", "input": "hello", "store": True}
    whole = TRANSLATOR.answer(completion({"content": "a"}), asked)
    events = TRANSLATOR.events(asked)
    streamed = [*events.feed(chunk({"content": "a"}, "stop", completion({})["usage"])), *events.end()]
    assert streamed[-1]["response"] == whole
    assert whole["store"] is False


def test_the_body_is_not_changed() -> None:
    asked = {"model": "auto", "input": [USER, {"role": "assistant", "content": "a"}], "tools": [TOOL]}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    asked["input"] = [*asked["input"], call]
    before = repr(asked)
    TRANSLATOR.request(asked)
    assert repr(asked) == before
