"""Responses requests for a chat backend: translated whole, or refused with the field's name."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

from gateway.errors import RequestError
from gateway.wire import chat
from gateway.wire.dialect import Translator
from gateway.wire.responses import ResponsesDialect
from gateway.wire.responses_to_chat import ResponsesToChat
from policies.requirements import estimated_tokens, needed_capabilities
from policies.semantic_safety import why_unsafe
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
        ({"input": []}, "input"),
        ({"n": "two"}, "n"),
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "name", "text", "id"]), inner, max_size=4
        )
    ),
    max_leaves=5,
)


def odd(*kinds: str, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of these types whose fields are mostly right: one may be anything, or not there."""
    right = {"type": st.sampled_from(kinds), **fields}
    wrong = {name: right | {name: JSON} for name in right}
    less = {name: {other: right[other] for other in right if other != name} for name in right}
    return st.one_of(*map(st.fixed_dictionaries, [right, *wrong.values(), *less.values()]))


TEXT = st.text(max_size=5)
PARTS = st.lists(
    odd("input_text", "output_text", "input_image", "input_file", "refusal", text=TEXT, image_url=TEXT),
    max_size=2,
)
ITEMS = st.one_of(
    odd("message", role=st.sampled_from(["user", "assistant", "developer"]), content=TEXT | PARTS),
    odd("function_call", call_id=TEXT, name=TEXT, arguments=TEXT),
    odd("function_call_output", call_id=TEXT, output=TEXT | PARTS),
    odd("reasoning", "item_reference", id=TEXT, summary=JSON),
    JSON,
)
FORMAT = odd("json_schema", "json_object", "text", name=TEXT, schema=st.just({}))
TOOLS = st.lists(odd("function", name=TEXT, parameters=st.just({}), strict=JSON), max_size=2)
FIELDS = {
    "input": st.lists(ITEMS, max_size=4),
    "tools": TOOLS,
    "tool_choice": TEXT | odd("function", "allowed_tools", name=TEXT, mode=TEXT, tools=TOOLS),
    "text": st.fixed_dictionaries({"format": FORMAT | JSON, "verbosity": TEXT}),
    "reasoning": st.fixed_dictionaries({"effort": TEXT | JSON}),
    **dict.fromkeys(("instructions", "conversation", "prompt", "include", "top_logprobs", "metadata"), JSON),
    **dict.fromkeys(("previous_response_id", "stream", "parallel_tool_calls", "user", "background"), JSON),
    **dict.fromkeys(("n", "stop", "response_format", "messages", "functions", "logprobs"), JSON),
}


PAIRS = st.sampled_from(sorted(FIELDS)).flatmap(lambda name: st.tuples(st.just(name), FIELDS[name]))


@given(st.lists(PAIRS, min_size=1, max_size=2).map(dict))
@settings(max_examples=300, deadline=None)
def test_no_value_in_any_field_ends_in_anything_but_a_request_error(fields: dict[str, Any]) -> None:
    body = {"model": "auto", "input": "hello", **fields}
    dialect = ResponsesDialect()
    with suppress(RequestError):
        dialect.check(body)
        why_unsafe(dialect.chat_view(body))
        needed_capabilities(dialect.chat_view(body))
        dialect.without_question(body)
        TRANSLATOR.answer(completion({"content": "a"}), body)
        estimated_tokens(dialect.chat_view(body))
        request = TRANSLATOR.request(body)
        assert chat.check(request).model == "auto"
        needed_capabilities(request)


def test_the_body_is_not_changed() -> None:
    asked = {"model": "auto", "input": [USER, {"role": "assistant", "content": "a"}], "tools": [TOOL]}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    asked["input"] = [*asked["input"], call]
    before = repr(asked)
    TRANSLATOR.request(asked)
    assert repr(asked) == before
