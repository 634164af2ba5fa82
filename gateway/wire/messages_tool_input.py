"""A tool's input between its two forms: Anthropic's JSON object, and OpenAI's text of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

RAW = "_raw"
"""The one field of an input that stands for a text that is no JSON object. Models do write such texts, and an
answer cut at its limit ends in one; a tool that checks its input refuses this, and nothing is lost."""


def as_input(text: str) -> dict[str, Any]:
    """The object that `arguments` or joined `partial_json` stand for; {} for nothing at all."""
    if not text.strip():
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {RAW: text}
    return value if isinstance(value, dict) else {RAW: text}


def as_text(tool_input: Any) -> str:
    """The text of an input: what `as_input` was given, or the same JSON."""
    if isinstance(tool_input, Mapping) and list(tool_input) == [RAW] and isinstance(tool_input[RAW], str):
        return str(tool_input[RAW])
    return orjson.dumps(tool_input if tool_input is not None else {}).decode()


def is_whole(text: str) -> bool:
    """True when the text is a JSON object from end to end: no part of one is."""
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
