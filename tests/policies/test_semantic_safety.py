"""Which requests may be answered by similarity, whatever they ask."""

from __future__ import annotations

from typing import Any

import pytest

from policies.semantic_safety import message_text, why_unsafe


def body(content: Any = "hello there", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **fields}


def after(earlier: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [earlier, {"role": "user", "content": "and?"}]}


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "stream": True, "modalities": ["text"], "web_search_options": None, "plugins": []},
        {"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "custom"}, {"name": "f"}]},
        {"tools": 3, "modalities": None},
        {"logit_bias": {"5": 1}, "prediction": {"type": "content", "content": "x"}, "logprobs": False},
        {"temperature": 0.5, "seed": 3, "stop": ["a"], "response_format": {"type": "json_object"}},
    ],
)
def test_what_the_partition_covers_is_no_reason(fields: dict[str, Any]) -> None:
    assert why_unsafe(body(**fields)) == ("", "hello there")


def test_earlier_turns_of_text_are_no_reason() -> None:
    turns = [{"role": "developer", "content": "Be brief."}, {"role": "assistant", "content": None}]
    assert why_unsafe({"messages": [*turns, {"role": "user", "content": "and?"}]}) == ("", "and?")


def test_text_is_compared() -> None:
    assert why_unsafe(body()) == ("", "hello there")
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert why_unsafe(body(parts)) == ("", "a\nb")


@pytest.mark.parametrize(
    ("request_body", "reason"),
    [
        (body([{"type": "text", "text": "a"}, {"type": "image_url"}]), "images"),
        (body([{"type": "text", "text": "a", "cache_control": {}}]), "not text"),
        (body(n=2), "several choices"),
        (body(logprobs=True), "log-prob"),
        (body("  "), "no text"),
        (body(n="two"), "several choices"),
        (body(top_logprobs=3), "log-prob"),
        (
            body(modalities=["text", "audio"], audio={"voice": "a", "format": "wav"}),
            "answer that is not text",
        ),
        (body(modalities=["image", "text"]), "answer that is not text"),
        (body(web_search_options={}), "search the web"),
        (body(search_parameters={"mode": "auto"}), "search the web"),
        (body(plugins=[{"id": "web"}]), "search the web"),
        (body(tools=[{"type": "web_search"}]), "provider's tools"),
        (body(tools=[{"type": "web_search_20250305", "name": "web_search"}]), "provider's tools"),
        (body(tools=[{"type": "function"}, {"type": "mcp"}]), "provider's tools"),
        (body(tools=["web_search"]), "provider's tools"),
        (body(None), "no text"),
        (after({"role": "function", "name": "f", "content": "3"}), "tool results"),
        (after({"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}), "tool results"),
        (after({"role": "assistant", "content": None, "function_call": {"name": "f"}}), "tool results"),
        (after({"role": "assistant", "content": None, "audio": {"id": "a"}}), "not text"),
        (after({"role": "user", "content": [{"type": "input_audio"}]}), "not text"),
        (after({"role": "user", "content": [{"type": "file"}]}), "not text"),
        ({"messages": []}, "no messages"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "not the user's"),
        (
            {"messages": [{"role": "tool", "content": "3"}, {"role": "user", "content": "and?"}]},
            "tool results",
        ),
    ],
)
def test_unsafe(request_body: dict[str, Any], reason: str) -> None:
    why, text = why_unsafe(request_body)
    assert text is None
    assert reason in why


def test_content_of_other_types_is_no_text() -> None:
    assert message_text(None) is None
    assert message_text([]) is None
    assert message_text(["a"]) is None
    assert message_text([{"type": "text", "text": 3}]) is None
