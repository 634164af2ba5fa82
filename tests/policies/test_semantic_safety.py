"""Which requests may be answered by similarity."""

from __future__ import annotations

from typing import Any

import pytest

from policies.semantic_safety import asks_about_now, message_text, why_unsafe


@pytest.mark.parametrize(
    "text",
    [
        "What is the weather in Paris?",
        "latest news about AI",
        "What time is it in Tokyo?",
        "What's the current price of gold?",
        "How much does an iPhone 20 cost?",
        "Who won last night?",
        "What happened today?",
        "오늘 서울 날씨 어때?",
        "지금 환율 알려줘",
        "삼성전자 주가는?",
    ],
)
def test_volatile(text: str) -> None:
    assert asks_about_now(text)


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of France?",
        "How does alternating current work?",
        "Explain how TCP works",
        "프랑스의 수도는 어디인가요?",
        "How do I sort a list in Python?",
    ],
)
def test_not_volatile(text: str) -> None:
    assert not asks_about_now(text)


def body(content: Any = "hello there", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **fields}


def test_text_is_compared() -> None:
    assert why_unsafe(body()) == ("", "hello there")
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert why_unsafe(body(parts)) == ("", "a\nb")


@pytest.mark.parametrize(
    ("request_body", "reason"),
    [
        (body([{"type": "text", "text": "a"}, {"type": "image_url"}]), "images"),
        (body([{"type": "text", "text": "a", "cache_control": {}}]), "not text"),
        (body(n=2), "several choices"),
        (body(logprobs=True), "log-prob"),
        (body("  "), "no text"),
        (body("what time is it?"), "about now"),
        ({"messages": []}, "no messages"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "not the user's"),
        (
            {"messages": [{"role": "tool", "content": "3"}, {"role": "user", "content": "and?"}]},
            "tool results",
        ),
    ],
)
def test_unsafe(request_body: dict[str, Any], reason: str) -> None:
    why, text = why_unsafe(request_body)
    assert text is None
    assert reason in why


def test_content_of_other_types_is_no_text() -> None:
    assert message_text(None) is None
    assert message_text([]) is None
    assert message_text(["a"]) is None
    assert message_text([{"type": "text", "text": 3}]) is None
