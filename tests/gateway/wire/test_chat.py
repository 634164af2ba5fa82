"""Chat requests: what is accepted, and what is said of what is not."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestError
from gateway.wire.chat import parse_chat

HELLO = [{"role": "user", "content": "hello"}]


def raw(**fields: Any) -> bytes:
    return json.dumps({"model": "auto", "messages": HELLO, **fields}).encode()


def test_fields_are_read_and_all_are_kept() -> None:
    request = parse_chat(raw(stream=True, stream_options={"include_usage": True}, later=[1]), tenant="t")
    assert request.stream
    assert request.include_usage
    assert request.body["later"] == [1]
    assert request.tenant == "t"


def test_null_is_absent() -> None:
    request = parse_chat(raw(temperature=None, stream=None, stop=None, tools=None), tenant="t")
    assert not request.stream


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
        {"role": "assistant"},
        {"role": "tool", "content": "3", "tool_call_id": "c"},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        {"role": "user", "content": ""},
    ],
)
def test_messages_of_every_form(message: dict[str, Any]) -> None:
    assert parse_chat(raw(messages=[message, *HELLO]), tenant="t").body["messages"][0] == message


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        (b"{bad", None, "not valid JSON"),
        (b"", None, "not valid JSON"),
        (b"\xff", None, "not valid JSON"),
        (b"[]", None, "must be a JSON object"),
        (b"{}", "model", "the field is missing"),
        (b'{"model": "a"}', "messages", "the field is missing"),
        (raw(model=3), "model", "expected `str`, got `int`"),
        (raw(model=""), "model", "length >= 1"),
        (raw(messages=[]), "messages", "length >= 1"),
        (raw(messages="hi"), "messages", "expected `array`, got `str`"),
        (raw(messages=[{"role": "user", "content": 3}]), "messages[0].content", "got `int`"),
        (raw(messages=[*HELLO, {"role": "user"}]), "messages[1].content", "missing"),
        (raw(messages=[{"content": "x"}]), "messages[0].role", "missing"),
        (raw(messages=[{"role": "usr", "content": "x"}]), "messages[0].role", "expected one of system"),
        (raw(messages=[{"role": "tool", "content": "x"}]), "messages[0].tool_call_id", "missing"),
        (
            raw(messages=[{"role": "user", "content": [{"type": "text"}]}]),
            "messages[0].content[0].text",
            "missing",
        ),
        (raw(messages=[{"role": "user", "content": [{}]}]), "messages[0].content[0].type", "missing"),
        (raw(temperature="hot"), "temperature", "got `str`"),
        (raw(temperature=3), "temperature", "<= 2"),
        (raw(top_p=-1), "top_p", ">= 0"),
        (raw(n=0), "n", ">= 1"),
        (raw(max_tokens=0), "max_tokens", ">= 1"),
        (raw(max_completion_tokens=1.5), "max_completion_tokens", "got `float`"),
        (raw(stream="yes"), "stream", "got `str`"),
        (raw(stream_options={"include_usage": 1}), "stream_options.include_usage", "got `int`"),
        (raw(stop=[1]), "stop[0]", "got `int`"),
        (raw(stop=1), "stop", "got `int`"),
        (raw(seed="x"), "seed", "got `str`"),
        (raw(tools={}), "tools", "expected `array"),
        (raw(tools=[1]), "tools[0]", "expected `object`"),
        (raw(response_format="json"), "response_format", "got `str`"),
        (raw(logit_bias={"5": "x"}), "logit_bias", "got `str`"),
        (raw(user=1), "user", "got `int`"),
        (raw(metadata=[]), "metadata", "got `array`"),
        (raw(logprobs=1), "logprobs", "got `int`"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, param: str | None, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_chat(body, tenant="t")
    assert caught.value.status == 400
    assert caught.value.param == param
    assert said in str(caught.value)
    assert caught.value.kind == "invalid_request_error"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    "messages",
    "model",
    "temperature",
    "stop",
    "tools",
    "stream_options",
    "n",
    "logit_bias",
    "metadata",
]


@given(st.dictionaries(st.sampled_from(FIELDS), json_values, min_size=1))
def test_no_value_in_any_field_gets_past_as_anything_but_a_request_error(fields: dict[str, Any]) -> None:
    with suppress(RequestError):
        parse_chat(raw(**fields), tenant="t")
