"""What OpenAI's APIs write alike: events and errors. (Responses has events of its own.)"""

from __future__ import annotations

from typing import Any

import orjson

from gateway.errors import RequestError, openai_error_body
from gateway.wire import chat_stream
from gateway.wire.dialect import Json


class OpenAIWire:
    """Base of the dialects of chat completions, completions and embeddings."""

    def frame(self, event: Json) -> bytes:
        return chat_stream.frame(orjson.dumps(event))

    def error_body(self, error: RequestError) -> bytes:
        return openai_error_body(error)

    def error_frame(self, error: RequestError) -> bytes:
        return chat_stream.error_frame(error)


def without_last_text(message: Json) -> dict[str, Any]:
    """The message without its content; of a content in parts, without the last of them."""
    content = message.get("content")
    rest = {name: value for name, value in message.items() if name != "content"}
    if isinstance(content, list) and len(content) > 1:
        rest["content"] = content[:-1]
    return rest
