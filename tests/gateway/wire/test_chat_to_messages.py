"""An OpenAI client's request for a backend that speaks Anthropic's messages."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestError
from gateway.wire.chat_to_messages import DEFAULT_MAX_TOKENS, ChatToMessages
from gateway.wire.dialect import Translator
from gateway.wire.messages_effort import BUDGET_TOKENS
from gateway.wire.messages_fields import check_message_body
from gateway.wire.messages_to_chat import MessagesToChat
from tests.gateway.wire.messages_cases import HELLO, call, chatting, said, tool_inputs, tool_names

TRANSLATOR: Translator = ChatToMessages()
NEW, OLD, OTHER = "claude-sonnet-5", "claude-haiku-4-5-20251001", "deepseek-chat"
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALLED: list[dict[str, Any]] = [
    *HELLO,
    {"role": "assistant", "content": None, "tool_calls": [call("c", "f", "{}")]},
    {"role": "tool", "tool_call_id": "c", "content": "3"},
]


def request(**fields: Any) -> dict[str, Any]:
    return TRANSLATOR.request(chatting(**fields))


def test_it_is_between_these_two() -> None:
    assert (TRANSLATOR.source, TRANSLATOR.target) == ("chat", "messages")


def test_a_limit_is_found_or_set() -> None:
    assert request() == {"model": "claude-haiku-4-5", "max_tokens": DEFAULT_MAX_TOKENS, "messages": HELLO}
    assert request(max_tokens=9)["max_tokens"] == 9
    assert request(max_tokens=9, max_completion_tokens=8)["max_tokens"] == 8


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"stream": True, "stream_options": {"include_usage": True}}, {"stream": True}),
        ({"stop": "END"}, {"stop_sequences": ["END"]}),
        ({"stop": ["a", "b"]}, {"stop_sequences": ["a", "b"]}),
        ({"stop": None, "stream": False}, {"stream": False}),
        ({"user": "u"}, {"metadata": {"user_id": "u"}}),
        ({"safety_identifier": "u"}, {"metadata": {"user_id": "u"}}),
        ({"metadata": {"a": "b"}, "store": True, "service_tier": "flex"}, {}),
        ({"seed": 3, "presence_penalty": 1, "frequency_penalty": 0}, {}),
        ({"n": 1, "logprobs": False, "logit_bias": {}, "functions": [], "modalities": ["text"]}, {}),
        ({"response_format": {"type": "text"}}, {}),
        ({"mcp_servers": [1], "later": 2}, {"mcp_servers": [1], "later": 2}),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {"type": "object"}},
                }
            },
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        ),
    ],
)
def test_fields_have_anthropics_names(fields: dict[str, Any], told: dict[str, Any]) -> None:
    assert request(**fields) == {**request(), **told}


@pytest.mark.parametrize(
    ("model", "fields", "told"),
    [
        (OLD, {"temperature": 0}, {"temperature": 0}),
        (OLD, {"temperature": 1.7}, {"temperature": 1}),
        (OLD, {"top_p": 0.5}, {"top_p": 0.5}),
        (OLD, {"temperature": 1, "top_p": 0.5}, {"top_p": 0.5}),
        (OLD, {"temperature": 0.2, "top_p": 0.5}, {"temperature": 0.2}),
        (OLD, {"temperature": 0.2, "top_p": 1, "top_k": 5}, {"temperature": 0.2, "top_k": 5}),
        (OLD, {"temperature": None, "top_p": None, "top_k": None}, {}),
        (OTHER, {"temperature": 0.2}, {"temperature": 0.2}),
        (NEW, {"temperature": 0.2, "top_p": 0.5, "top_k": 5}, {}),
        ("claude-sonnet-4-6", {"temperature": 0.2}, {"temperature": 0.2}),
    ],
)
def test_sampling_is_what_the_model_takes(model: str, fields: dict[str, Any], told: dict[str, Any]) -> None:
    asked = request(model=model, **fields)
    assert {name: asked[name] for name in ("temperature", "top_p", "top_k") if name in asked} == told


def test_json_without_a_schema_is_a_word_to_the_model() -> None:
    asked = request(
        messages=[{"role": "system", "content": "Be brief."}, *HELLO], response_format={"type": "json_object"}
    )
    assert asked["system"][0]["text"] == "Be brief."
    assert "JSON object" in asked["system"][1]["text"]
    assert "JSON object" in request(response_format={"type": "json_object"})["system"]


@pytest.mark.parametrize("effort", sorted(BUDGET_TOKENS))
def test_an_effort_is_a_budget_beside_the_answers_room(effort: str) -> None:
    asked = request(model=OLD, reasoning_effort=effort)
    assert asked["thinking"] == {"type": "enabled", "budget_tokens": BUDGET_TOKENS[effort]}
    assert asked["max_tokens"] == DEFAULT_MAX_TOKENS + BUDGET_TOKENS[effort]


def test_a_budget_stays_below_the_clients_limit() -> None:
    asked = request(model=OLD, reasoning_effort="high", max_completion_tokens=3_000)
    assert asked["thinking"]["budget_tokens"] == 2_999
    assert asked["max_tokens"] == 3_000
    assert "thinking" not in request(model=OLD, reasoning_effort="high", max_completion_tokens=1_024)


def test_newer_models_think_adaptively_with_an_effort() -> None:
    asked = request(model=NEW, reasoning_effort="minimal")
    assert asked["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert asked["output_config"] == {"effort": "low"}
    assert asked["max_tokens"] == DEFAULT_MAX_TOKENS


def test_an_effort_and_a_schema_go_together() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    config = request(model=NEW, reasoning_effort="high", response_format=wanted)["output_config"]
    assert config["effort"] == "high"
    assert config["format"]["schema"] == {"type": "object"}


@pytest.mark.parametrize("effort", ["none", None])
def test_no_effort_is_no_thinking(effort: Any) -> None:
    assert "thinking" not in request(reasoning_effort=effort)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": TOOLS, "tool_choice": "required"},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"messages": [*HELLO, {"role": "assistant", "content": "It is"}]},
        {"messages": CALLED},
    ],
)
@pytest.mark.parametrize("model", [OLD, NEW])
def test_no_thinking_where_anthropic_refuses_it(fields: dict[str, Any], model: str) -> None:
    assert "thinking" not in request(model=model, reasoning_effort="high", **fields)


def test_calls_sent_back_with_their_thinking_can_go_on_thinking() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    messages = [CALLED[0], {**CALLED[1], "thinking_blocks": [thought]}, CALLED[2]]
    asked = request(model=OLD, reasoning_effort="low", messages=messages)
    assert asked["messages"][1]["content"][0] == thought
    assert asked["thinking"]["type"] == "enabled"


def test_thinking_and_sampling_do_not_meet() -> None:
    asked = request(model=OLD, reasoning_effort="low", temperature=0.2, top_p=0.5, top_k=5)
    assert asked["thinking"]
    assert not {"temperature", "top_p", "top_k"} & set(asked)


def test_anthropics_own_thinking_goes_through() -> None:
    asked = request(thinking={"type": "disabled"}, reasoning_effort="high")
    assert asked["thinking"] == {"type": "disabled"}


def test_functions_are_tools() -> None:
    strict = {
        "type": "function",
        "function": {"name": "g", "strict": True},
        "cache_control": {"type": "ephemeral"},
    }
    assert request(tools=[*TOOLS, strict])["tools"] == [
        {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}},
        {
            "name": "g",
            "input_schema": {"type": "object", "properties": {}},
            "strict": True,
            "cache_control": {"type": "ephemeral"},
        },
    ]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, None),
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none"}, {"type": "none"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, {"type": "tool", "name": "f"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"parallel_tool_calls": True}, None),
        (
            {"tool_choice": "required", "parallel_tool_calls": False},
            {"type": "any", "disable_parallel_tool_use": True},
        ),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
    ],
)
def test_the_choice_of_a_tool_is_told(fields: dict[str, Any], told: Any) -> None:
    assert request(tools=TOOLS, **fields).get("tool_choice") == told
    assert "tool_choice" not in request(**fields)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"functions": [FUNCTION]}, "functions"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"audio": {"voice": "alloy"}}, "audio"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"web_search_options": {"a": 1}}, "web_search_options"),
        ({"tools": [*TOOLS, {"type": "custom", "custom": {"name": "g"}}]}, "tools[1].type"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"stop": "\n\n"}, "stop"),
        ({"stop": ["END", "\n"]}, "stop[1]"),
    ],
)
def test_what_anthropic_cannot_say_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        request(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert str(caught.value).startswith(f"{param}: ")


def test_the_clients_request_is_left_as_it_was() -> None:
    parts = [{"type": "text", "text": "a "}]
    body = chatting(
        messages=[{"role": "system", "content": "b"}, *CALLED, {"role": "assistant", "content": parts}],
        response_format={"type": "json_object"},
        tools=TOOLS,
    )
    before = repr(body)
    TRANSLATOR.request(body)
    assert repr(body) == before


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns as OpenAI's clients keep them: all the results of a turn's calls right after it."""
    messages: list[dict[str, Any]] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(said)})
    for turn in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(said)})
        calls = [
            call(f"call_{turn}_{i}", draw(tool_names), orjson.dumps(draw(tool_inputs)).decode())
            for i in range(draw(st.integers(0, 2)))
        ]
        content = draw(said.map(str.rstrip)) if not calls else draw(st.none() | said)
        messages.append(
            {"role": "assistant", "content": content, "tool_calls": calls}
            if calls
            else {"role": "assistant", "content": content}
        )
        messages += [{"role": "tool", "tool_call_id": one["id"], "content": draw(said)} for one in calls]
    return messages


def read(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With arguments as JSON: their spaces do not count."""
    seen = orjson.loads(orjson.dumps(messages))
    for message in seen:
        for one in message.get("tool_calls") or ():
            one["function"]["arguments"] = orjson.loads(one["function"]["arguments"])
    return list(seen)


@given(conversations(), st.booleans())
def test_a_conversation_keeps_its_texts_tools_and_order_there_and_back(
    messages: list[dict[str, Any]], armed: bool
) -> None:
    body = chatting(messages=messages, max_tokens=9, **({"tools": TOOLS} if armed else {}))
    there = TRANSLATOR.request(body)
    check_message_body(there)
    roles = [message["role"] for message in there["messages"]]
    assert all(one != other for one, other in pairwise(roles))
    back = MessagesToChat().request(there)
    assert read(back.pop("messages")) == read(body.pop("messages"))
    assert back == body
