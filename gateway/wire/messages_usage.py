"""Token counts and reasons to stop, between Anthropic's words and OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.wire.dialect import Json

_FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    # A paused turn is unfinished; of OpenAI's words this one tells a client so.
    "pause_turn": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_STOPS = {
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


def finish_reason(stop_reason: str | None) -> str | None:
    """None while there is none."""
    return None if stop_reason is None else _FINISHES.get(stop_reason, "stop")


def stop_reason(finish_reason: str | None, *, calls_tools: bool, refuses: bool) -> str | None:
    """None while there is none. Servers say `stop` of some answers that call a tool or refuse."""
    if finish_reason is None:
        return None
    stop = _STOPS.get(finish_reason, "end_turn")
    if stop == "end_turn" and refuses:
        return "refusal"
    return "tool_use" if stop == "end_turn" and calls_tools else stop


def messages_usage(usage: Any) -> dict[str, Any]:
    """OpenAI's usage in Anthropic's fields, zeros when there is none. OpenAI counts the tokens of its
    prompt cache into the prompt, Anthropic beside it. A prompt cache that is written to is counted as some
    servers do, in `cache_write_tokens`."""
    usage = usage if isinstance(usage, Mapping) else {}
    prompt, details = usage.get("prompt_tokens") or 0, usage.get("prompt_tokens_details") or {}
    read, written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
    said: dict[str, Any] = {
        "input_tokens": max(0, prompt - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": usage.get("completion_tokens") or 0,
    }
    if thought := (usage.get("completion_tokens_details") or {}).get("reasoning_tokens"):
        said["output_tokens_details"] = {"thinking_tokens": thought}
    return said


def chat_usage(usage: Json) -> dict[str, Any]:
    """Anthropic's usage in OpenAI's fields."""
    read, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
    prompt, completion = (usage.get("input_tokens") or 0) + read + written, usage.get("output_tokens") or 0
    details = {"cached_tokens": read} | ({"cache_write_tokens": written} if written else {})
    said: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": details,
    }
    if thought := (usage.get("output_tokens_details") or {}).get("thinking_tokens"):
        said["completion_tokens_details"] = {"reasoning_tokens": thought}
    return said
