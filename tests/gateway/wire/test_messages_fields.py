"""Anthropic requests: what is accepted, and what is said of what is not."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestError
from gateway.wire.messages_fields import check_count, check_message_body
from tests.gateway.wire.messages_cases import HELLO, asking, json_values, text, tool_use

TOOL = {"name": "f", "input_schema": {"type": "object"}}


def of_user(*content: Any) -> dict[str, Any]:
    return asking(messages=[{"role": "user", "content": list(content)}])


def test_the_model_and_the_form_are_read() -> None:
    asked = check_message_body(asking(stream=True, later=[1]))
    assert (asked.model, asked.stream, asked.include_usage) == ("auto", True, True)


@pytest.mark.parametrize(
    "content",
    [
        "hi",
        "",
        [],
        [text("hi", cache_control={"type": "ephemeral"})],
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}],
        [{"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}],
        [{"type": "image", "source": {"type": "file", "file_id": "file_1"}}],
        [
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "x"},
                "title": "t",
            }
        ],
        [{"type": "document", "source": {"type": "content", "content": [text("x")]}}],
        [{"type": "document", "source": {"type": "later", "x": 1}}],
        [tool_use("t", "f", {"a": 1})],
        [{"type": "tool_result", "tool_use_id": "t"}],
        [{"type": "tool_result", "tool_use_id": "t", "content": [text("x")], "is_error": True}],
        [{"type": "thinking", "thinking": "", "signature": "s"}],
        [{"type": "redacted_thinking", "data": "x"}],
        [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}],
        [{"type": "web_search_tool_result", "tool_use_id": "s", "content": []}],
        [{"type": "later", "text": 3}],
    ],
)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_content_of_every_form(content: Any, role: str) -> None:
    check_message_body(asking(messages=[*HELLO, {"role": role, "content": content}]))


@pytest.mark.parametrize(
    "fields",
    [
        {"system": "Be brief."},
        {"system": [text("Be brief.", cache_control={"type": "ephemeral"})]},
        {"messages": [{"role": "system", "content": "Be brief."}, *HELLO]},
        {"tools": [TOOL, {**TOOL, "type": "custom"}, {"type": "web_search_20250305", "name": "web_search"}]},
        {"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]},
        {"tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}},
        {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        {"thinking": {"type": "adaptive"}},
        {"thinking": {"type": "disabled"}},
        {"metadata": {"user_id": "u"}},
        {"temperature": None, "top_p": None, "system": None, "tools": None, "stream": None},
        {"service_tier": "auto", "stop_sequences": ["x"], "top_k": 0, "temperature": 1, "top_p": 0.5},
    ],
)
def test_fields_of_every_form(fields: dict[str, Any]) -> None:
    check_message_body(asking(**fields))


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({}, "model", "missing"),
        ({"model": "a", "messages": HELLO}, "max_tokens", "missing"),
        (asking(model=""), "model", "length >= 1"),
        (asking(max_tokens=0), "max_tokens", ">= 1"),
        (asking(max_tokens="9"), "max_tokens", "got `str`"),
        (asking(messages=[]), "messages", "length >= 1"),
        (asking(messages=[{"role": "tool", "content": "x"}]), "messages[0].role", "user, assistant, system"),
        (asking(messages=[*HELLO, {"role": "user"}]), "messages[1].content", "missing"),
        (asking(messages=[{"role": "user", "content": None}]), "messages[0].content", "got `null`"),
        (of_user("x"), "messages[0].content[0]", "expected `object`"),
        (of_user({}), "messages[0].content[0].type", "missing"),
        (of_user({"type": 3}), "messages[0].content[0].type", "missing"),
        (of_user(text("a"), {"type": "text"}), "messages[0].content[1].text", "missing"),
        (of_user({"type": "image"}), "messages[0].content[0].source", "missing"),
        (of_user({"type": "image", "source": {}}), "messages[0].content[0].source.type", "missing"),
        (
            of_user({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}),
            "messages[0].content[0].source.data",
            "missing",
        ),
        (of_user({"type": "tool_use", "id": "t", "name": "f"}), "messages[0].content[0].input", "missing"),
        (of_user({"type": "tool_result"}), "messages[0].content[0].tool_use_id", "missing"),
        (
            of_user({"type": "tool_result", "tool_use_id": "t", "content": [text("a"), {"type": "text"}]}),
            "messages[0].content[0].content[1].text",
            "missing",
        ),
        (asking(system=3), "system", "got `int`"),
        (asking(system=[{"type": "text"}]), "system[0].text", "missing"),
        (asking(temperature=1.5), "temperature", "<= 1"),
        (asking(top_p=2), "top_p", "<= 1"),
        (asking(top_k=-1), "top_k", ">= 0"),
        (asking(stop_sequences="x"), "stop_sequences", "got `str`"),
        (asking(stop_sequences=[1]), "stop_sequences[0]", "got `int`"),
        (asking(stream="yes"), "stream", "got `str`"),
        (asking(tools={}), "tools", "expected `array"),
        (asking(tools=[{"input_schema": {}}]), "tools[0].name", "missing"),
        (asking(tools=[TOOL, {"name": "g"}]), "tools[1].input_schema", "missing"),
        (asking(tool_choice="auto"), "tool_choice", "got `str`"),
        (asking(tool_choice={"type": "some"}), "tool_choice.type", "auto, any, tool, none"),
        (asking(tool_choice={"type": "tool"}), "tool_choice.name", "missing"),
        (asking(thinking={"type": "enabled"}), "thinking.budget_tokens", "missing"),
        (asking(thinking={}), "thinking.type", "missing"),
        (asking(metadata={"user_id": 3}), "metadata.user_id", "got `int`"),
        (asking(service_tier=3), "service_tier", "got `int`"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_message_body(body)
    assert caught.value.status == 400
    assert caught.value.param == param
    assert said in str(caught.value)


def test_counting_needs_no_limit_but_all_else() -> None:
    assert check_count({"model": "a", "messages": HELLO}).model == "a"
    for body in ({"model": "a"}, {"model": "a", "messages": [{"role": "user", "content": [{}]}]}):
        with pytest.raises(RequestError):
            check_count(body)


FIELDS = ["messages", "model", "system", "tools", "tool_choice", "thinking", "metadata", "stop_sequences"]


@given(
    st.dictionaries(st.sampled_from(FIELDS), json_values),
    st.lists(
        st.dictionaries(st.sampled_from(["type", "text", "source", "content"]), json_values), max_size=2
    ),
)
def test_no_value_in_any_field_gets_past_as_anything_but_a_request_error(
    fields: dict[str, Any], content: list[dict[str, Any]]
) -> None:
    body = {**of_user(*content), **fields}
    for check in (check_message_body, check_count):
        with suppress(RequestError):
            check(body)
