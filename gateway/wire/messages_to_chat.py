"""An Anthropic client answered by a backend that speaks chat completions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gateway.errors import RequestError
from gateway.wire.dialect import Json
from gateway.wire.messages_to_chat_answer import ChatStreamAsMessage, message_of
from gateway.wire.messages_view import chat_view, without_form
from policies.types import Api

_ANTHROPICS_OWN = ("container", "mcp_servers")
_OF_A_MODEL_THAT_REASONS = re.compile(r"^(?:gpt-[5-9]|o\d)")
"""OpenAI's own such models refuse `max_tokens`; other servers know it better than its successor."""


class MessagesToChat:
    """Thinking in the history is left out (see `chat_view`), and `reasoning_effort` stands for the thinking
    that is asked for (see `messages_effort`). A last message of the assistant's is passed on as it is:
    whether the server goes on with its text or begins a new turn is the server's way.
    """

    source: Api = "messages"
    target: Api = "chat"

    def request(self, body: Json) -> dict[str, Any]:
        """Raises RequestError (400) for what runs at Anthropic's (its own tools, MCP servers, containers,
        stored files) and for citations."""
        for field in _inexpressible(body):
            raise RequestError(
                f"{field}: the model that answers this is behind an API that cannot express it.",
                param=field,
                code="unsupported_parameter",
            )
        asked = chat_view({name: value for name, value in body.items() if name not in _ANTHROPICS_OWN})
        if _OF_A_MODEL_THAT_REASONS.match(str(body.get("model"))):
            asked["max_completion_tokens"] = asked.pop("max_tokens")
        if body.get("stream"):
            asked["stream_options"] = {"include_usage": True}
        return asked

    def answer(self, answer: Json, asked: Json) -> dict[str, Any]:
        return message_of(answer, asked)

    def events(self, asked: Json) -> ChatStreamAsMessage:
        return ChatStreamAsMessage(asked)


def _inexpressible(body: Json) -> Iterator[str]:
    for name in _ANTHROPICS_OWN:
        if body.get(name):
            yield name
    for i, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") not in (None, "custom"):
            yield f"tools[{i}].type"
    for i, message in enumerate(body.get("messages") or ()):
        if isinstance(message.get("content"), list):
            yield from _without_form(message["content"], f"messages[{i}].content")


def _without_form(blocks: list[Json], path: str) -> Iterator[str]:
    for i, block in enumerate(blocks):
        match block.get("type"):
            case "tool_use" | "thinking" | "redacted_thinking":
                continue
            case "tool_result":
                if isinstance(block.get("content"), list):
                    yield from _without_form(block["content"], f"{path}[{i}].content")
            case _:
                if field := without_form(block):
                    yield f"{path}[{i}].{field}"
