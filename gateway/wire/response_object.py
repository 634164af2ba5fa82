"""The `response` object around what a chat completion said.

Fields: https://platform.openai.com/docs/api-reference/responses/object
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.wire.chat_dialect import CLEAN_FINISHES
from gateway.wire.chat_stream import tokens
from gateway.wire.dialect import Json

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "user": None,
}
"""Request fields that an answer repeats, with what they are when the client left them out."""


def status_of(finish_reason: str | None) -> str:
    """An answer without a finish reason has not said that it is complete."""
    return "completed" if finish_reason in CLEAN_FINISHES else "incomplete"


def response_object(
    head: Json,
    asked: Json,
    *,
    status: str,
    finish_reason: str | None,
    output: list[dict[str, Any]],
    usage: Json | None,
) -> dict[str, Any]:
    """`head` has what the backend said of itself, `asked` is the client's request, `usage` the chat
    completion's. Nothing is stored, so `store` is false; nothing is truncated, whatever was asked."""
    reason = _INCOMPLETE.get(finish_reason or "") if status == "incomplete" else None
    echoed = {name: default if asked.get(name) is None else asked[name] for name, default in _ECHOED.items()}
    return {
        "object": "response",
        "status": status,
        **head,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        **echoed,
        "output": output,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None, **(asked.get("reasoning") or {})},
        "store": False,
        "text": {"format": {"type": "text"}, **(asked.get("text") or {})},
        "truncation": "disabled",
        "usage": _usage(usage) if status != "in_progress" else None,
    }


def _usage(usage: Any) -> dict[str, Any] | None:
    if not isinstance(usage, Mapping):
        return None
    read, written = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    prompt, completion = tokens(usage.get("prompt_tokens")), tokens(usage.get("completion_tokens"))
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": tokens(read.get("cached_tokens")),
            "cache_write_tokens": tokens(read.get("cache_write_tokens")),
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": tokens(written.get("reasoning_tokens"))},
        "total_tokens": tokens(usage.get("total_tokens")) or prompt + completion,
    }


def logprobs_of(logprobs: Any) -> list[dict[str, Any]]:
    """Chat completions leaves `bytes` and `top_logprobs` out where there are none; Responses never does."""
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    return [{**one, "bytes": one.get("bytes") or [], "top_logprobs": _tops(one)} for one in content or ()]


def _tops(one: Json) -> list[dict[str, Any]]:
    return [{**top, "bytes": top.get("bytes") or []} for top in one.get("top_logprobs") or ()]


def flat_annotation(annotation: Json) -> dict[str, Any]:
    """Chat completions nests a citation under the name of its type; Responses does not."""
    kind = annotation.get("type")
    inner = annotation.get(kind) if isinstance(kind, str) else None
    return {"type": kind, **inner} if isinstance(inner, Mapping) else dict(annotation)
