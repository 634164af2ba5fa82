"""How hard a model shall think: Anthropic's budgets and efforts, and OpenAI's efforts."""

from __future__ import annotations

from gateway.wire.dialect import Json

LEAST_BUDGET_TOKENS = 1_024
"""Anthropic takes none below (https://platform.claude.com/docs/en/build-with-claude/extended-thinking)."""

BUDGET_TOKENS = {
    "minimal": LEAST_BUDGET_TOKENS,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 32_768,
}
"""OpenAI's `reasoning_effort` as a thinking budget; our choice, since neither API relates the two."""

_MOST_LOW_TOKENS = 4_096
_MOST_MEDIUM_TOKENS = 12_288
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""OpenAI-compatible servers have these three in common."""


def reasoning_effort(body: Json) -> str | None:
    """An Anthropic request's thinking as OpenAI's `reasoning_effort`: `low` up to 4,096 tokens of budget,
    `medium` up to 12,288, `high` above. Adaptive thinking has its effort in `output_config`. None where the
    client asks for none: the server's own default holds."""
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "disabled":
        return None
    if budget := thinking.get("budget_tokens"):
        if budget <= _MOST_LOW_TOKENS:
            return "low"
        return "medium" if budget <= _MOST_MEDIUM_TOKENS else "high"
    return _EFFORTS.get(str((body.get("output_config") or {}).get("effort")))
