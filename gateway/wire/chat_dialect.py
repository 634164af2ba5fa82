"""OpenAI's chat completions as a dialect: https://platform.openai.com/docs/api-reference/chat"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.ids import random_hex
from gateway.wire import chat, chat_stream
from gateway.wire.dialect import Asked, Json
from gateway.wire.openai_wire import OpenAIWire, without_last_text
from policies.types import Api, Usage

CLEAN_FINISHES = frozenset({"stop", "tool_calls", "function_call"})


class ChatDialect(OpenAIWire):
    """`POST /v1/chat/completions`; an answer is a `chat.completion`, an event a `chat.completion.chunk`."""

    api: Api = "chat"
    end = chat_stream.DONE

    def check(self, body: dict[str, Any]) -> Asked:
        return chat.check(body)

    def chat_view(self, body: Json) -> Json:
        return body

    def without_question(self, body: Json) -> Json:
        messages = list(body.get("messages") or ())
        if messages:
            messages[-1] = without_last_text(messages[-1])
        return {**body, "messages": messages}

    def assembler(self) -> chat_stream.Assembler:
        return chat_stream.Assembler()

    def usage(self, answer: Json) -> Usage | None:
        return chat_stream.usage_of(answer)

    def why_not_stored(self, answer: Json) -> str:
        choices = answer.get("choices") or ()
        if not choices:
            return "the answer has no choices"
        for choice in choices:
            reason = choice.get("finish_reason")
            if reason not in CLEAN_FINISHES:
                return f"the answer ended with {reason or 'no finish reason'}"
            message = choice.get("message") or {}
            content = message.get("content")
            said = content.strip() if isinstance(content, str) else content
            if not (
                said or message.get("tool_calls") or message.get("function_call") or message.get("refusal")
            ):
                return "the answer is empty"
        return ""

    def renewed(self, answer: Json, *, model: str, now: float) -> dict[str, Any]:
        return {**answer, "id": f"chatcmpl-{random_hex()}", "created": int(now), "model": model}

    def events(self, answer: Json, *, include_usage: bool) -> Iterator[dict[str, Any]]:
        return chat_stream.as_chunks(answer, include_usage=include_usage)
