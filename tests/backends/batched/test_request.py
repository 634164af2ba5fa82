from __future__ import annotations

from typing import Any

import pytest

from backends.batched.request import messages_of, refuse_unsupported, sampling_of
from backends.errors import InvalidCall
from backends.protocols import Sampling

USER = {"role": "user", "content": "hi"}


def refused(check: Any, body: dict[str, Any]) -> str | None:
    with pytest.raises(InvalidCall) as caught:
        check(body)
    assert caught.value.param is not None
    assert str(caught.value).startswith(caught.value.param)
    return caught.value.param


def test_messages_become_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": "be kind"}, {"role": "user", "content": parts}]
    assert messages_of({"messages": messages}) == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "ab"},
    ]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([USER, {"role": "robot", "content": "hi"}], "messages[1].role"),
        ([USER, {"role": "tool", "content": "hi"}], "messages[1].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 3}], "messages[0].content"),
        ([{"role": "user", "content": ["hi"]}], "messages[0].content[0]"),
        ([USER, USER, {"role": "user", "content": [{"type": "image_url"}]}], "messages[2].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": "\ud800"}], "messages[0].content"),
        ([{"role": "assistant", "content": "", "tool_calls": [{}]}], "messages[0].tool_calls"),
    ],
)
def test_messages_that_are_refused(messages: object, param: str) -> None:
    assert refused(messages_of, {"messages": messages}) == param


def test_sampling_fields() -> None:
    body = {
        "max_tokens": 5,
        "temperature": 0,
        "top_p": 1,
        "top_k": -1,
        "min_p": 0.1,
        "seed": -3,
        "frequency_penalty": -2,
        "presence_penalty": 2,
        "repetition_penalty": 1.1,
        "stop": "x",
    }
    assert sampling_of(body) == Sampling(
        max_tokens=5,
        temperature=0.0,
        top_p=1.0,
        top_k=0,
        min_p=0.1,
        seed=-3,
        frequency_penalty=-2.0,
        presence_penalty=2.0,
        repetition_penalty=1.1,
        stop=("x",),
    )


def test_absent_and_null_mean_the_default() -> None:
    assert (
        sampling_of({}) == sampling_of({"temperature": None, "stop": None, "max_tokens": None}) == Sampling()
    )


def test_the_newer_name_of_max_tokens_wins() -> None:
    assert sampling_of({"max_completion_tokens": 3, "max_tokens": 9}).max_tokens == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", "warm"),
        ("temperature", True),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_p", 1.1),
        ("max_tokens", 0),
        ("max_tokens", 2**70),
        ("max_completion_tokens", -1),
        ("seed", "7"),
        ("frequency_penalty", 2.5),
        ("presence_penalty", -2.5),
        ("repetition_penalty", 0),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("stop", [""]),
        ("stop", [1]),
        ("stop", 5),
        ("stop", ["\ud800"]),
    ],
)
def test_sampling_that_is_refused(field: str, value: object) -> None:
    assert refused(sampling_of, {field: value}) == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function"}]),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function"}),
        ("functions", [{}]),
        ("n", 2),
        ("n", 0),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("logit_bias", {"1": 2}),
        ("audio", {"voice": "x"}),
        ("modalities", ["text", "audio"]),
        ("response_format", {"type": "json_object"}),
        ("response_format", "text"),
    ],
)
def test_what_a_text_engine_does_not_do(field: str, value: object) -> None:
    assert refused(refuse_unsupported, {field: value}) == field


def test_fields_that_ask_for_nothing_pass() -> None:
    refuse_unsupported(
        {
            "tools": [],
            "tool_choice": "none",
            "functions": None,
            "n": 1,
            "logprobs": False,
            "top_logprobs": None,
            "logit_bias": {},
            "modalities": ["text"],
            "response_format": {"type": "text"},
            "user": "someone",
        }
    )
