"""Responses between their two forms: one object, and a stream of events.

Events: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.wire.dialect import Json
from gateway.wire.pieces import pieces

TERMINAL = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
}
"""The event that ends a stream, by the answer's status."""


def frame(event: Json) -> bytes:
    """One server-sent event, named after its type."""
    return b"event: " + str(event.get("type", "")).encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"


class Numbered:
    """Makes the events of one stream, numbered from 0."""

    def __init__(self) -> None:
        self._next = 0

    def event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._next += 1
        return {"type": kind, "sequence_number": self._next - 1, **fields}

    def begun(self, response: Json) -> Iterator[dict[str, Any]]:
        """`response` as it stood at its beginning, created and in progress."""
        blank = {**response, "status": "in_progress", "output": [], "usage": None, "error": None}
        blank["incomplete_details"] = None
        blank.pop("completed_at", None)
        yield self.event("response.created", response=blank)
        yield self.event("response.in_progress", response=blank)

    def ended(self, response: Json) -> dict[str, Any]:
        kind = TERMINAL.get(str(response.get("status")), "response.completed")
        return self.event(kind, response=response)


def events_of(answer: Json) -> Iterator[dict[str, Any]]:
    """The events a stream of this answer would have had; texts in pieces of a few words."""
    numbered = Numbered()
    yield from numbered.begun(answer)
    for index, item in enumerate(answer.get("output") or ()):
        yield numbered.event("response.output_item.added", output_index=index, item=_empty(item))
        at = {"item_id": item.get("id") or item.get("call_id") or "", "output_index": index}
        for kind, fields in _inside(item):
            yield numbered.event(f"response.{kind}", **at, **fields)
        yield numbered.event("response.output_item.done", output_index=index, item=item)
    yield numbered.ended(answer)


_Inside = Iterator[tuple[str, dict[str, Any]]]


def _empty(item: Json) -> dict[str, Any]:
    """The item before anything was in it."""
    began = dict(item)
    if "status" in began:
        began["status"] = "in_progress"
    for name in ("content", "summary"):
        if isinstance(began.get(name), list):
            began[name] = []
    for name in ("arguments", "input"):
        if isinstance(began.get(name), str):
            began[name] = ""
    return began


def _inside(item: Json) -> _Inside:
    """The events between an item's beginning and its end."""
    match item.get("type"):
        case "message" | "reasoning":
            for i, part in enumerate(item.get("summary") or ()):
                yield from _summary(part, {"summary_index": i})
            for i, part in enumerate(item.get("content") or ()):
                yield from _part(part, {"content_index": i})
        case "function_call":
            text = item.get("arguments") or ""
            yield from _deltas("function_call_arguments", text, {})
            yield "function_call_arguments.done", {"arguments": text, "name": item.get("name")}
        case "custom_tool_call":
            text = item.get("input") or ""
            yield from _deltas("custom_tool_call_input", text, {})
            yield "custom_tool_call_input.done", {"input": text}


def _summary(part: Json, at: Json) -> _Inside:
    text = part.get("text") or ""
    yield "reasoning_summary_part.added", {**at, "part": {**part, "text": ""}}
    yield from _deltas("reasoning_summary_text", text, at)
    yield "reasoning_summary_text.done", {**at, "text": text}
    yield "reasoning_summary_part.done", {**at, "part": part}


def _part(part: Json, at: Json) -> _Inside:
    began = dict(part)
    for name, value in part.items():
        if name in ("text", "refusal"):
            began[name] = ""
        elif name in ("annotations", "logprobs") and isinstance(value, list):
            began[name] = []
    yield "content_part.added", {**at, "part": began}
    match part.get("type"):
        case "output_text":
            text, logprobs = part.get("text") or "", part.get("logprobs") or []
            yield from _deltas("output_text", text, {**at, "logprobs": []})
            for i, annotation in enumerate(part.get("annotations") or ()):
                yield "output_text.annotation.added", {**at, "annotation_index": i, "annotation": annotation}
            yield "output_text.done", {**at, "text": text, "logprobs": logprobs}
        case "refusal":
            yield from _deltas("refusal", part.get("refusal") or "", at)
            yield "refusal.done", {**at, "refusal": part.get("refusal") or ""}
        case "reasoning_text":
            yield from _deltas("reasoning_text", part.get("text") or "", at)
            yield "reasoning_text.done", {**at, "text": part.get("text") or ""}
    yield "content_part.done", {**at, "part": part}


def _deltas(kind: str, text: str, at: Json) -> _Inside:
    for piece in pieces(text):
        yield f"{kind}.delta", {**at, "delta": piece}


class ResponseAssembler:
    """Puts the events of a stream together: the response of the last event is the answer.

    Of a stream that was cut, the answer is what had come: items that were done as they are, others as far
    as their deltas went. Events unknown to us are passed over. A whole answer stands for itself.
    """

    def __init__(self) -> None:
        self._response: dict[str, Any] = {}
        self._items: dict[int, dict[str, Any]] = {}

    def add(self, event: Json) -> None:
        if event.get("object") == "response":
            self._response = dict(event)
            return
        kind = str(event.get("type", "")).removeprefix("response.")
        index = event.get("output_index")
        if isinstance(event.get("response"), Mapping):
            self._response = dict(event["response"])
        elif not isinstance(index, int):
            return
        elif kind in ("output_item.added", "output_item.done") and isinstance(event.get("item"), Mapping):
            self._items[index] = copy.deepcopy(dict(event["item"]))
        elif index in self._items:
            _grow(self._items[index], kind, event)

    def answer(self) -> dict[str, Any]:
        # Some servers send the items once, and leave them out of the response that ends the stream.
        if self._response.get("output") or not self._items:
            return self._response
        return {**self._response, "output": [self._items[index] for index in sorted(self._items)]}


_GROWING = {
    "function_call_arguments.delta": "arguments",
    "custom_tool_call_input.delta": "input",
}
_GROWING_PARTS = {
    "output_text.delta": "text",
    "refusal.delta": "refusal",
    "reasoning_text.delta": "text",
    "reasoning_summary_text.delta": "text",
}


def _grow(item: dict[str, Any], kind: str, event: Json) -> None:
    delta = event.get("delta") or ""
    if (name := _GROWING.get(kind)) is not None:
        item[name] = (item.get(name) or "") + delta
        return
    summary = kind.startswith("reasoning_summary")
    at = event.get("summary_index" if summary else "content_index")
    if not isinstance(at, int):
        return
    parts = item.setdefault("summary" if summary else "content", [])
    if isinstance(event.get("part"), Mapping) and at <= len(parts):
        parts[at : at + 1] = [copy.deepcopy(dict(event["part"]))]
    elif (name := _GROWING_PARTS.get(kind)) is not None and at < len(parts):
        parts[at][name] = (parts[at].get(name) or "") + delta
