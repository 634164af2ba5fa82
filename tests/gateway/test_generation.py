"""What may be kept of an answer."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.generation import assemble, why_not_stored
from tests.gateways import chunk


def completion(finish_reason: str | None = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": finish_reason, "message": message}]}


@pytest.mark.parametrize(
    "whole",
    [
        completion(content="yes"),
        completion("tool_calls", content=None, tool_calls=[{"id": "c"}]),
        completion(content=None, refusal="No."),
        completion("function_call", content=None, function_call={"name": "f"}),
    ],
)
def test_clean_answers(whole: dict[str, Any]) -> None:
    assert why_not_stored(whole) == ""


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        ({}, "no choices"),
        ({"choices": []}, "no choices"),
        (completion("length", content="cut"), "length"),
        (completion("content_filter", content="x"), "content_filter"),
        (completion(None, content="x"), "no finish reason"),
        (completion(content=""), "empty"),
        (completion(content=" \n"), "empty"),
        (completion(content=None), "empty"),
    ],
)
def test_others(whole: dict[str, Any], reason: str) -> None:
    assert reason in why_not_stored(whole)


def test_one_bad_choice_of_two_is_enough() -> None:
    whole = completion(content="a")
    whole["choices"].append(completion("length", content="b")["choices"][0])
    assert why_not_stored(whole)


def test_a_whole_object_is_kept_as_it_came() -> None:
    body = {"object": "chat.completion", "choices": [], "vendor": 1}
    assert assemble([chunk(body)]) == body


def test_one_chunk_is_still_a_stream() -> None:
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
    assert assemble([chunk({"object": "chat.completion.chunk", "choices": [choice]})])["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    ]
