"""How many tokens the input of an Anthropic request has, from the length of its text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from gateway.wire.dialect import Json
from policies.requirements import BYTES_PER_TOKEN, TOKENS_PER_MESSAGE

TOKENS_PER_IMAGE = 1_600
"""Anthropic counts width x height / 750 and scales down what is over 1.15 megapixels: about 1,600 at most
(https://platform.claude.com/docs/en/build-with-claude/vision)."""
TOKENS_PER_PDF = 3_000
"""One page: Anthropic's range is 1,500 to 3,000 a page, and how many there are is inside the file
(https://platform.claude.com/docs/en/build-with-claude/pdf-support)."""


def estimated_input_tokens(body: Json) -> int:
    """Of system, tools and messages together, without room for an answer. An estimate: no tokenizer is
    asked, and thinking of earlier turns, which Anthropic does not count, is not counted."""
    size = _of_content(body.get("system"))
    for tool in body.get("tools") or ():
        size += len(orjson.dumps(tool))
    for message in body.get("messages") or ():
        size += TOKENS_PER_MESSAGE * BYTES_PER_TOKEN + _of_content(message.get("content"))
    return max(1, -(-size // BYTES_PER_TOKEN))


def _of_content(content: Any) -> int:
    """In bytes: a text, or a list of blocks."""
    if isinstance(content, str):
        return len(content.encode("utf-8", "replace"))
    return sum(_of_block(block) for block in _blocks(content))


def _of_block(block: Json) -> int:
    match block.get("type"):
        case "image":
            return TOKENS_PER_IMAGE * BYTES_PER_TOKEN
        case "document":
            source = block.get("source") or {}
            size = _of_content(block.get("title")) + _of_content(block.get("context"))
            if source.get("type") == "text":
                return size + _of_content(source.get("data"))
            if source.get("type") == "content":
                return size + _of_content(source.get("content"))
            return size + TOKENS_PER_PDF * BYTES_PER_TOKEN
        case "thinking" | "redacted_thinking":
            return 0
        case "text":
            return _of_content(block.get("text"))
        case "tool_result":
            return _of_content(block.get("content"))
        case _:
            return len(orjson.dumps(block))


def _blocks(content: Any) -> Iterable[Json]:
    if not isinstance(content, list):
        return ()
    return (block for block in content if isinstance(block, dict))
