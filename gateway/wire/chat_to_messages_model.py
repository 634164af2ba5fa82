"""What the Claude models take: three generations of one API differ.

Up to 4.5 thinking has a budget; from 4.6 on it is adaptive, with an effort
(https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking). From 4.7 on `temperature`, `top_p`
and `top_k` are refused (https://platform.claude.com/docs/en/about-claude/models/migration-guide).
"""

from __future__ import annotations

import re

_VERSION = re.compile(r"(?<![\d.])(\d{1,2})(?:[-.](\d{1,2}))?(?![\d.])")
_NEWEST = (99, 0)
_OLD = (0, 0)


def version(model: str) -> tuple[int, int]:
    """(4, 5) of `claude-haiku-4-5-20251001`, (3, 7) of `claude-3-7-sonnet-latest`. A Claude without a number
    is taken for the newest, and any other model for an old one: others copied the first form of the API."""
    _, named, rest = model.lower().rpartition("claude")
    if not named:
        return _OLD
    found = _VERSION.search(rest)
    return (int(found[1]), int(found[2] or 0)) if found else _NEWEST


def thinks_adaptively(model: str) -> bool:
    return version(model) >= (4, 6)


def takes_sampling(model: str) -> bool:
    return version(model) < (4, 7)
