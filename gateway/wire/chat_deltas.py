"""What the deltas of a chat completion's stream add to the message they are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

WHOLE_TEXTS = frozenset({"id", "name", "role", "type"})
"""Fields of a delta whose text comes whole, and may come again: it is not joined."""
_TEXTS = frozenset({"arguments", "data", "input", "transcript"})
"""Fields of the objects in a delta (tool calls, audio) whose text comes in pieces."""


def put(known: dict[str, Any], name: str, value: Any) -> None:
    """Sets a field, unless the news is empty and something is known."""
    if (value is not None and value != "") or name not in known or known[name] is None:
        known[name] = value


def grow(message: dict[str, Any], name: str, value: Any) -> None:
    """Adds what a delta has of a field: texts and lists are joined, the rest is kept as last seen."""
    known = message.get(name)
    if isinstance(known, str) and isinstance(value, str) and name not in WHOLE_TEXTS:
        message[name] = known + value
    elif name == "content" and value and (isinstance(known, list) or (known and isinstance(value, list))):
        message[name] = _joined_parts(_as_parts(known), _as_parts(value))
    elif isinstance(known, list) and isinstance(value, list):
        message[name] = [*known, *value]
    elif isinstance(known, Mapping) and isinstance(value, Mapping):
        message[name] = _merged(known, value)
    else:
        put(message, name, value)


def _as_parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _joined_parts(known: list[Any], more: list[Any]) -> list[Any]:
    """Of content in parts: what goes on in a part's text goes on in that part."""
    joined = [*known, *more]
    at = len(known)
    if known and more and (grown := _grown_part(joined[at - 1], joined[at])) is not None:
        joined[at - 1 : at + 1] = [grown]
    return joined


def _grown_part(part: Any, more: Any) -> dict[str, Any] | None:
    if isinstance(part, Mapping) and isinstance(more, Mapping) and part.get("type") == more.get("type"):
        name = str(part.get("type"))  # Mistral has its thinking in a list of parts within
        if set(part) == set(more) == {"type", name}:
            if isinstance(part[name], str) and isinstance(more[name], str):
                return {**part, name: part[name] + more[name]}
            if isinstance(part[name], list) and isinstance(more[name], list):
                return {**part, name: _joined_parts(part[name], more[name])}
    return None


def add_tool_calls(calls: list[dict[str, Any]], pieces: Iterable[Mapping[str, Any]]) -> None:
    """Takes in what one delta has of tool calls. Each call of `calls` has its `index`."""
    for piece in pieces:
        at = _place(calls, piece)
        if at is None:
            index = piece.get("index")
            if not isinstance(index, int):
                index = 1 + max((call["index"] for call in calls), default=-1)
            calls.append({**piece, "index": index})
        else:
            calls[at] = {**_merged(calls[at], piece), "index": calls[at]["index"]}


def _place(calls: list[dict[str, Any]], piece: Mapping[str, Any]) -> int | None:
    """Which call a piece belongs to; None: to one that begins with it."""
    index, call_id = piece.get("index"), piece.get("id")
    kind = piece.get("function") or piece.get("custom") or {}
    named = bool(kind.get("name"))
    if isinstance(index, int):
        at = next((at for at in reversed(range(len(calls))) if calls[at]["index"] == index), None)
        # Some servers give all calls of an answer the same index.
        other = at is not None and named and call_id and calls[at].get("id") not in (None, "", call_id)
        return None if other else at
    if call_id:
        return next((at for at, call in enumerate(calls) if call.get("id") == call_id), None)
    return len(calls) - 1 if calls and not named else None


def _merged(known: Mapping[str, Any], piece: Mapping[str, Any]) -> dict[str, Any]:
    """An object within a delta, and the piece of it that came next."""
    merged = dict(known)
    for name, value in piece.items():
        seen = merged.get(name)
        if name in _TEXTS and isinstance(seen, str) and isinstance(value, str):
            merged[name] = seen + value
        elif isinstance(seen, Mapping) and isinstance(value, Mapping):
            merged[name] = _merged(seen, value)
        else:
            put(merged, name, value)
    return merged


def merged_logprobs(whole: Mapping[str, Any], piece: Mapping[str, Any]) -> dict[str, Any]:
    """Log-probabilities of one piece of text after those of the text before it: lists are joined."""
    merged = dict(whole)
    for name, value in piece.items():
        if isinstance(value, list) and isinstance(merged.get(name), list):
            merged[name] = [*merged[name], *value]
        elif value is not None:
            merged[name] = value
    return merged
