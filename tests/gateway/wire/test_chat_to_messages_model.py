"""Which form of the API a model knows, from its name."""

from __future__ import annotations

import pytest

from gateway.wire.chat_to_messages_model import takes_sampling, thinks_adaptively, version


@pytest.mark.parametrize(
    ("model", "numbers"),
    [
        ("claude-3-7-sonnet-20250219", (3, 7)),
        ("claude-opus-4-20250514", (4, 0)),
        ("claude-opus-4-1@20250805", (4, 1)),
        ("claude-haiku-4-5-20251001", (4, 5)),
        ("anthropic.claude-opus-4-6-v1", (4, 6)),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", (4, 5)),
        ("anthropic/claude-3.5-sonnet", (3, 5)),
        ("claude-opus-4-7", (4, 7)),
        ("claude-sonnet-5", (5, 0)),
        ("claude-fable-5-2", (5, 2)),
        ("Claude-Opus-5", (5, 0)),
    ],
)
def test_a_name_tells_its_version(model: str, numbers: tuple[int, int]) -> None:
    assert version(model) == numbers


@pytest.mark.parametrize(
    ("model", "adaptive", "sampling"),
    [
        ("claude-haiku-4-5", False, True),
        ("claude-sonnet-4-6", True, True),
        ("claude-opus-4-7", True, False),
        ("claude-mythos-preview", True, False),
        ("deepseek-chat", False, True),
        ("kimi-k2", False, True),
    ],
)
def test_the_version_tells_what_it_takes(model: str, adaptive: bool, sampling: bool) -> None:
    assert thinks_adaptively(model) is adaptive
    assert takes_sampling(model) is sampling
