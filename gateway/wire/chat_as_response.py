"""A chat completion, whole or in chunks, as a `response` object and as its stream of events."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.ids import random_hex
from gateway.wire.chat_stream import text_in
from gateway.wire.dialect import Json
from gateway.wire.response_object import flat_annotation, logprobs_of, response_object, status_of
from gateway.wire.responses_stream import Numbered

_NOT_AN_ID = re.compile(r"[^A-Za-z0-9]")


def response_of(completion: Json, asked: Json) -> dict[str, Any]:
    """The answer that a stream of this completion would have ended with."""
    writer = ResponseWriter(asked)
    events = [*writer.feed(completion), *writer.end()]
    response: dict[str, Any] = events[-1]["response"]
    return response


class ResponseWriter:
    """Writes a response while a chat completion's chunks come in: an EventTranslator.

    Reasoning, and a message, end when something else begins. Function calls stay open until the end, for
    the pieces of calls made at once may come in any order. Of several choices the first is taken.
    """

    def __init__(self, asked: Json) -> None:
        self._asked = asked
        self._numbered = Numbered()
        self._head: dict[str, Any] = {}
        self._suffix = ""
        self._usage: Any = None
        self._finish: str | None = None
        self._items: list[dict[str, Any]] = []
        self._open: set[int] = set()
        self._calls: dict[int, Any] = {}  # a call's index in the chunks, by that of its item
        self._text: dict[str, Any] | None = None  # the last text part: late annotations belong to it

    def feed(self, event: Json) -> Iterator[dict[str, Any]]:
        if isinstance(event.get("usage"), Mapping):
            self._usage = event["usage"]
        for choice in event.get("choices") or ():
            if choice.get("index") not in (None, 0):
                continue
            yield from self._begin(event)
            yield from self._take(choice)

    def end(self) -> Iterator[dict[str, Any]]:
        yield from self._begin({})
        status = status_of(self._finish)
        last = len(self._items) - 1
        for index in sorted(self._open):
            yield from self._close(index, status if index == last else "completed")
        yield self._numbered.ended(self._response(status))

    def _begin(self, event: Json) -> Iterator[dict[str, Any]]:
        """With the first chunk that has a choice: some servers send others before, without an id."""
        if self._head:
            return
        given = _NOT_AN_ID.sub("", str(event.get("id") or "").removeprefix("chatcmpl-"))
        self._suffix = given or random_hex()
        self._head = {
            "id": f"resp_{self._suffix}",
            "created_at": event.get("created") or 0,
            "model": event.get("model") or self._asked.get("model"),
            "service_tier": event.get("service_tier") or self._asked.get("service_tier"),
        }
        yield from self._numbered.begun(self._response("in_progress"))

    def _take(self, choice: Json) -> Iterator[dict[str, Any]]:
        said = choice.get("delta") or choice.get("message") or {}
        reasoning = said.get("reasoning_content") or said.get("reasoning")
        if isinstance(reasoning, str) and reasoning:
            yield from self._reason(reasoning)
        logprobs = logprobs_of(choice.get("logprobs"))
        if text := text_in(said.get("content")):
            yield from self._say("output_text", "text", text, logprobs)
        elif logprobs and self._text is not None:
            self._text["logprobs"].extend(logprobs)
        if isinstance(said.get("refusal"), str) and said["refusal"]:
            yield from self._say("refusal", "refusal", said["refusal"], [])
        for annotation in said.get("annotations") or ():
            yield from self._annotate(flat_annotation(annotation))
        for i, call in enumerate(said.get("tool_calls") or ()):
            yield from self._call(call if choice.get("delta") else {**call, "index": i})
        self._finish = choice.get("finish_reason") or self._finish

    def _reason(self, text: str) -> Iterator[dict[str, Any]]:
        index = self._current("reasoning")
        if index is None:
            item = {"id": self._id("rs"), "type": "reasoning", "summary": [], "status": "in_progress"}
            yield from self._open_item(item)
            index = len(self._items) - 1
            part = {"type": "summary_text", "text": ""}
            self._items[index]["summary"].append(part)
            yield self._event("reasoning_summary_part.added", index, summary_index=0, part=dict(part))
        self._items[index]["summary"][0]["text"] += text
        yield self._event("reasoning_summary_text.delta", index, summary_index=0, delta=text)

    def _say(self, kind: str, name: str, text: str, logprobs: list[Any]) -> Iterator[dict[str, Any]]:
        index = self._current("message")
        if index is None:
            item = {"id": self._id("msg"), "type": "message", "role": "assistant", "content": []}
            yield from self._open_item({**item, "status": "in_progress"})
            index = len(self._items) - 1
        content = self._items[index]["content"]
        if not content or content[-1]["type"] != kind:
            if content:
                yield from self._close_part(index)
            part: dict[str, Any] = {"type": kind, name: ""}
            if kind == "output_text":
                part |= {"annotations": [], "logprobs": []}
                self._text = part
            content.append(part)
            yield self._event(
                "content_part.added", index, content_index=len(content) - 1, part=copy.deepcopy(part)
            )
        content[-1][name] += text
        more = {"content_index": len(content) - 1, "delta": text}
        if kind == "output_text":
            content[-1]["logprobs"].extend(logprobs)
            more["logprobs"] = logprobs
        yield self._event(f"{kind}.delta", index, **more)

    def _annotate(self, annotation: Json) -> Iterator[dict[str, Any]]:
        if self._text is None:
            return
        self._text["annotations"].append(annotation)
        index = self._current("message")
        if index is None or self._items[index]["content"][-1] is not self._text:
            return  # the part has ended: the response that ends the stream has it
        yield self._event(
            "output_text.annotation.added",
            index,
            content_index=len(self._items[index]["content"]) - 1,
            annotation_index=len(self._text["annotations"]) - 1,
            annotation=annotation,
        )

    def _call(self, piece: Json) -> Iterator[dict[str, Any]]:
        function = piece.get("function") or {}
        index = self._call_index(piece, function)
        if index is None:
            name = function.get("name") or ""
            number = len(self._calls)
            item = {
                "id": self._id("fc", number),
                "type": "function_call",
                "call_id": piece.get("id") or self._id("call", number),
                "name": name,
                "arguments": "",
                "status": "in_progress",
            }
            yield from self._open_item(item)
            index = len(self._items) - 1
            self._calls[index] = piece.get("index")
        item = self._items[index]
        item["name"] = item["name"] or function.get("name") or ""
        if arguments := function.get("arguments"):
            item["arguments"] += arguments
            yield self._event("function_call_arguments.delta", index, delta=arguments)

    def _call_index(self, piece: Json, function: Json) -> int | None:
        """The item of the call that this is a piece of; None when it begins one.

        A new id together with a name begins one: some servers number all their calls 0, or not at all.
        """
        named = [index for index, key in self._calls.items() if key == piece.get("index")]
        if piece.get("id") and function.get("name"):
            named = [index for index in named if self._items[index]["call_id"] == piece["id"]]
        return named[-1] if named else None

    def _open_item(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for index in sorted(self._open):
            if self._items[index]["type"] != "function_call":
                yield from self._close(index, "completed")
        self._items.append(item)
        self._open.add(len(self._items) - 1)
        yield self._numbered.event(
            "response.output_item.added", output_index=len(self._items) - 1, item=copy.deepcopy(item)
        )

    def _close(self, index: int, status: str) -> Iterator[dict[str, Any]]:
        item = self._items[index]
        if item["type"] == "message":
            yield from self._close_part(index)
        elif item["type"] == "reasoning":
            part = item["summary"][0]
            yield self._event("reasoning_summary_text.done", index, summary_index=0, text=part["text"])
            yield self._event("reasoning_summary_part.done", index, summary_index=0, part=dict(part))
        else:
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield self._event("function_call_arguments.done", index, **done)
        item["status"] = status
        self._open.discard(index)
        yield self._numbered.event("response.output_item.done", output_index=index, item=copy.deepcopy(item))

    def _close_part(self, index: int) -> Iterator[dict[str, Any]]:
        content = self._items[index]["content"]
        part, at = copy.deepcopy(content[-1]), {"content_index": len(content) - 1}
        if part["type"] == "output_text":
            said = {"text": part["text"], "logprobs": part["logprobs"]}
            yield self._event("output_text.done", index, **at, **said)
        else:
            yield self._event("refusal.done", index, **at, refusal=part["refusal"])
        yield self._event("content_part.done", index, **at, part=part)

    def _current(self, kind: str) -> int | None:
        """The open item of a kind. None once something else has begun."""
        return next((index for index in self._open if self._items[index]["type"] == kind), None)

    def _id(self, kind: str, number: int | None = None) -> str:
        number = len(self._items) if number is None else number
        return f"{kind}_{self._suffix}_{number}"

    def _event(self, kind: str, index: int, **fields: Any) -> dict[str, Any]:
        item_id = self._items[index]["id"]
        return self._numbered.event(f"response.{kind}", item_id=item_id, output_index=index, **fields)

    def _response(self, status: str) -> dict[str, Any]:
        return response_object(
            self._head,
            self._asked,
            status=status,
            finish_reason=self._finish,
            output=copy.deepcopy(self._items),
            usage=self._usage,
        )
