"""Anthropic's messages: `POST /v1/messages` as a dialect.

API: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.errors import RequestError
from gateway.ids import random_hex
from gateway.wire import messages_errors, messages_stream, messages_view
from gateway.wire.dialect import Asked, Json
from gateway.wire.messages_fields import check_message_body
from policies.types import Api, Usage

CLEAN_STOPS = frozenset({"end_turn", "tool_use", "stop_sequence"})


class MessagesDialect:
    """An answer is a `message`; an event of its stream is `message_start`, `content_block_delta`, ..."""

    api: Api = "messages"
    end = b""

    def check(self, body: dict[str, Any]) -> Asked:
        return check_message_body(body)

    def chat_view(self, body: Json) -> Json:
        return messages_view.chat_view(body)

    def without_question(self, body: Json) -> Json:
        return messages_view.without_question(body)

    def assembler(self) -> messages_stream.MessageAssembler:
        return messages_stream.MessageAssembler()

    def usage(self, answer: Json) -> Usage | None:
        """Whole for a `message`, so for what an assembler ends with. Of a stream, `message_start` has the
        input's counts and `message_delta` the output's, sometimes with the input's again."""
        message = answer.get("message") if answer.get("type") == "message_start" else answer
        usage = message.get("usage") if isinstance(message, dict) else None
        if not isinstance(usage, dict):
            return None
        read = _tokens(usage.get("cache_read_input_tokens"))
        written = _tokens(usage.get("cache_creation_input_tokens"))
        # Anthropic's `input_tokens` are those that came neither from the prompt cache nor went to it.
        return Usage(
            prompt_tokens=_tokens(usage.get("input_tokens")) + read + written,
            completion_tokens=_tokens(usage.get("output_tokens")),
            cached_tokens=read,
            cache_write_tokens=written,
        )

    def why_not_stored(self, answer: Json) -> str:
        reason = answer.get("stop_reason")
        if reason not in CLEAN_STOPS:
            return f"the answer ended with {reason or 'no stop reason'}"
        return "" if any(_says(block) for block in answer.get("content") or ()) else "the answer is empty"

    def renewed(self, answer: Json, *, model: str, now: float) -> dict[str, Any]:
        """A message has no time of its own."""
        return {**answer, "id": f"msg_{random_hex()}", "model": model}

    def events(self, answer: Json, *, include_usage: bool) -> Iterator[dict[str, Any]]:
        """Usage is always there: Anthropic's clients cannot read a stream without."""
        return messages_stream.as_events(answer)

    def frame(self, event: Json) -> bytes:
        return messages_stream.frame(event)

    def error_body(self, error: RequestError) -> bytes:
        return messages_errors.error_body(error)

    def error_frame(self, error: RequestError) -> bytes:
        return messages_errors.error_frame(error)


def _says(block: Json) -> bool:
    match block.get("type"):
        case "text":
            return bool(str(block.get("text") or "").strip())
        case "thinking" | "redacted_thinking":
            return False
    return True


def _tokens(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0
