"""An Anthropic client's request for a chat completions backend."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import RequestError
from gateway.wire.chat import parse_chat
from gateway.wire.dialect import Translator
from gateway.wire.messages_stream import frame
from gateway.wire.messages_to_chat import MessagesToChat
from tests.gateway.wire.messages_cases import HELLO, asking, text, tool_use

TRANSLATOR: Translator = MessagesToChat()


def test_it_is_between_these_two() -> None:
    assert (TRANSLATOR.source, TRANSLATOR.target) == ("messages", "chat")


def test_the_model_the_limit_and_the_form_are_kept() -> None:
    assert TRANSLATOR.request(asking()) == {"model": "auto", "max_tokens": 64, "messages": HELLO}


def test_a_stream_is_asked_for_its_usage() -> None:
    asked = TRANSLATOR.request(asking(stream=True))
    assert asked["stream"] is True
    assert asked["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-mini", "o3", "o4-mini"])
def test_openais_reasoning_models_get_the_limit_by_its_new_name(model: str) -> None:
    asked = TRANSLATOR.request(asking(model=model))
    assert asked["max_completion_tokens"] == 64
    assert "max_tokens" not in asked


@pytest.mark.parametrize("model", ["gpt-4o", "openchat", "my-8b-model"])
def test_all_others_get_it_by_its_old_name(model: str) -> None:
    assert TRANSLATOR.request(asking(model=model))["max_tokens"] == 64


def test_a_whole_conversation_is_a_valid_chat_request() -> None:
    body = asking(
        system=[text("Be brief.", cache_control={"type": "ephemeral"})],
        messages=[
            {"role": "user", "content": "What is the weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    text("Let me see."),
                    tool_use("t1", "weather", {"city": "Rome"}),
                    tool_use("t2", "weather", {"city": "Oslo"}),
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "sun"},
                    {"type": "tool_result", "tool_use_id": "t2", "content": [text("rain")]},
                    text("Thanks."),
                ],
            },
            {"role": "assistant", "content": "It is"},
        ],
        tools=[{"name": "weather", "input_schema": {"type": "object"}}],
    )
    asked = TRANSLATOR.request(body)
    roles = [message["role"] for message in asked["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user", "assistant"]
    raw = frame(asked).partition(b"data: ")[2]
    assert parse_chat(raw, tenant="t").body == asked


def in_turn(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [*HELLO, {"role": role, "content": [text("a"), *content]}]}


CITED = {"citations": {"enabled": True}}
WORDS = {"type": "text", "media_type": "text/plain", "data": "x"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]}, "mcp_servers"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        (
            {"tools": [{"name": "f", "input_schema": {}}, {"type": "computer_20250124", "name": "computer"}]},
            "tools[1].type",
        ),
        (
            in_turn("user", {"type": "image", "source": {"type": "file", "file_id": "f"}}),
            "messages[1].content[1].source.type",
        ),
        (
            in_turn("user", {"type": "document", "source": {"type": "url", "url": "https://x"}}),
            "messages[1].content[1].source.type",
        ),
        (
            in_turn("user", {"type": "document", "source": WORDS, **CITED}),
            "messages[1].content[1].citations",
        ),
        (
            in_turn("user", {"type": "search_result", "title": "", "source": "", "content": [], **CITED}),
            "messages[1].content[1].citations",
        ),
        (in_turn("user", {"type": "container_upload", "file_id": "f"}), "messages[1].content[1].type"),
        (
            in_turn("assistant", {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
            "messages[1].content[1].type",
        ),
        (
            in_turn(
                "user",
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}],
                },
            ),
            "messages[1].content[1].content[0].source.type",
        ),
    ],
)
def test_what_chat_cannot_say_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        TRANSLATOR.request(asking(**fields))
    assert (caught.value.status, caught.value.param) == (400, param)
    assert str(caught.value).startswith(f"{param}: ")


def test_empty_lists_of_what_cannot_be_said_are_no_reason_to_refuse() -> None:
    cited = {"type": "document", "source": WORDS, "citations": {"enabled": False}}
    asked = TRANSLATOR.request(asking(mcp_servers=[], container=None, tools=[], **in_turn("user", cited)))
    assert set(asked) == {"model", "max_tokens", "messages"}


def test_the_clients_request_is_left_as_it_was() -> None:
    body = asking(messages=[{"role": "user", "content": [text("a", cache_control={})]}], stream=True)
    before = repr(body)
    TRANSLATOR.request(body)
    assert repr(body) == before
