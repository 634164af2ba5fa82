"""Chat completions through OpenAI's client: asking, and reading what streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import openai
from openai.types.chat import ChatCompletionChunk


def user(content: Any) -> list[Any]:
    return [{"role": "user", "content": content}]


def streamed(client: openai.OpenAI, **asked: Any) -> tuple[list[ChatCompletionChunk], str]:
    """(chunks, x-lockgate-cache)"""
    raw = client.chat.completions.with_raw_response.create(stream=True, **asked)
    return list(raw.parse()), raw.headers["x-lockgate-cache"]


def text_of(chunks: Iterable[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def finish_of(chunks: Iterable[ChatCompletionChunk]) -> list[str]:
    return [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
