"""Counting tokens without a tokenizer."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.wire.messages_tokens import TOKENS_PER_IMAGE, TOKENS_PER_PDF, estimated_input_tokens
from tests.gateway.wire.messages_cases import asking, text, tool_use

LONG = "word " * 60  # 300 bytes: 100 tokens
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 99_999}}
PDF = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 99_999},
}


def of(*content: Any, **fields: Any) -> int:
    return estimated_input_tokens(asking(messages=[{"role": "user", "content": list(content)}], **fields))


@pytest.mark.parametrize(
    "more",
    [
        {"system": LONG},
        {"system": [text(LONG)]},
        {"messages": [{"role": "user", "content": "hello" + LONG}]},
        {"tools": [{"name": "f", "description": LONG, "input_schema": {}}]},
    ],
)
def test_text_everywhere_is_counted(more: dict[str, Any]) -> None:
    added = estimated_input_tokens(asking(**more)) - estimated_input_tokens(asking())
    assert 99 <= added <= 130


@pytest.mark.parametrize(
    "block",
    [
        text(LONG),
        tool_use("t", "f", {"a": LONG}),
        {"type": "tool_result", "tool_use_id": "t", "content": LONG},
        {"type": "tool_result", "tool_use_id": "t", "content": [text(LONG)]},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": LONG}},
        {"type": "document", "source": {"type": "content", "content": [text(LONG)]}},
        {"type": "later", "words": LONG},
    ],
)
def test_blocks_of_every_kind_are_counted(block: dict[str, Any]) -> None:
    assert 99 <= of(block) - of() <= 130


def test_images_and_files_count_by_the_piece_not_by_their_bytes() -> None:
    assert of(IMAGE, IMAGE) - of() == 2 * TOKENS_PER_IMAGE
    assert of(PDF) - of() == TOKENS_PER_PDF
    assert of({"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}) - of() == TOKENS_PER_IMAGE


def test_thinking_of_earlier_turns_and_the_limit_are_not_counted() -> None:
    assert of({"type": "thinking", "thinking": LONG, "signature": LONG}) == of()
    assert of(text("a"), max_tokens=9_999) == of(text("a"))


def test_bytes_count_not_characters() -> None:
    assert of(text("안녕하세요 " * 30)) > of(text("hello " * 30))
