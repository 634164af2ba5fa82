"""Chat completions between their two forms: one object, and a stream of chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

import orjson

from gateway.errors import RequestError, openai_error_body
from gateway.wire.chat_deltas import WHOLE_TEXTS, add_tool_calls, grow, merged_logprobs, put
from gateway.wire.pieces import pieces
from policies.types import Usage

DONE = b"data: [DONE]\n\n"

_ORDER = {"content": 1, "refusal": 2, "annotations": 3, "function_call": 4, "tool_calls": 5}
"""Of a message's fields in a stream; others come before them, for most are of reasoning."""


def frame(data: bytes) -> bytes:
    """One server-sent event. `data` is JSON and so has no line break of its own."""
    return b"data: " + data + b"\n\n"


def error_frame(error: RequestError) -> bytes:
    """An error as an event of a stream that had begun: OpenAI's clients raise it."""
    # An upstream's own body may be written over many lines; an event's data is one.
    return frame(orjson.dumps(orjson.loads(openai_error_body(error))))


def usage_of(body: Mapping[str, Any]) -> Usage | None:
    """The `usage` of a chat completion, a completion or a chunk of one; None when it has none.

    OpenAI counts the tokens read from its prompt cache into `prompt_tokens`.
    """
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        return None
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, Mapping) else {}
    return Usage(
        prompt_tokens=tokens(usage.get("prompt_tokens")),
        completion_tokens=tokens(usage.get("completion_tokens")),
        cached_tokens=tokens(details.get("cached_tokens")),
        cache_write_tokens=tokens(details.get("cache_write_tokens")),
    )


def tokens(value: Any) -> int:
    """A count as an upstream wrote it; 0 for what is none."""
    return int(value) if isinstance(value, int | float) and value > 0 else 0


class Assembler:
    """Puts a stream's chunks together to the `chat.completion` they stand for.

    Text fields of a delta (content, reasoning_content, refusal, tool-call arguments) are joined, and so
    are lists; the rest is kept as last seen, so that fields unknown to us survive. What is empty says nothing
    of what was seen before.
    """

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._calls: dict[int, list[dict[str, Any]]] = {}
        """The tool calls by choice, each with its `index`."""
        self.usage: Mapping[str, Any] | None = None

    def add(self, body: Mapping[str, Any]) -> None:
        """Take in one `chat.completion.chunk`, or a whole `chat.completion`."""
        for name, value in body.items():
            if name not in ("choices", "usage", "obfuscation"):  # that is noise against eavesdroppers
                put(self._head, name, value)
        if isinstance(body.get("usage"), dict):
            self.usage = body["usage"]
        for index, piece in indexed(body.get("choices")):
            choice = self._choices.setdefault(index, {"index": index, "message": {}, "finish_reason": None})
            # Beside a delta some servers have the whole message so far: the same once more.
            delta, message = piece.get("delta"), piece.get("message")
            if delta is not None:
                self._grow(index, choice["message"], delta)
            elif message is not None:
                choice["message"] = dict(message)
                self._calls.pop(index, None)
            for name, value in piece.items():
                if name == "logprobs" and value and choice.get("logprobs"):
                    choice["logprobs"] = merged_logprobs(choice["logprobs"], value)
                elif name not in ("index", "delta", "message"):
                    put(choice, name, value)

    def _grow(self, index: int, message: dict[str, Any], delta: Mapping[str, Any]) -> None:
        for name, value in delta.items():
            if name == "tool_calls" and value:
                message[name] = []  # keeps its place; filled in at the end
                add_tool_calls(self._calls.setdefault(index, []), value)
            else:
                grow(message, name, value)

    def completion(self) -> dict[str, Any]:
        """The `chat.completion` so far; `usage` is there when it was seen."""
        choices = []
        for index in sorted(self._choices):
            message = dict(self._choices[index]["message"])
            message.setdefault("role", "assistant")
            message.setdefault("content", None)
            if calls := self._calls.get(index):
                message["tool_calls"] = [
                    {name: value for name, value in call.items() if name != "index"}
                    for call in sorted(calls, key=itemgetter("index"))
                ]
            choices.append({**self._choices[index], "message": message})
        whole = {**self._head, "object": "chat.completion", "choices": choices}
        if self.usage is not None:
            whole["usage"] = self.usage
        return whole

    def answer(self) -> dict[str, Any]:
        return self.completion()


def indexed(choices: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Choices with their indexes; where a server leaves an index out, its place stands for it."""
    for place, choice in enumerate(choices or ()):
        index = choice.get("index")
        yield (index if isinstance(index, int) else place), choice


def as_chunks(completion: Mapping[str, Any], *, include_usage: bool) -> Iterator[dict[str, Any]]:
    """The `chat.completion.chunk` objects a stream of this completion would have had."""
    head = {name: value for name, value in completion.items() if name not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    # OpenAI's client counts on choices to begin in their order.
    for index, choice in sorted(indexed(completion.get("choices")), key=itemgetter(0)):
        for delta in _deltas(choice.get("message") or {}):
            yield {**head, "choices": [{"index": index, "delta": delta, "finish_reason": None}]}
        # Log-probabilities, and what is unknown to us, in one piece.
        ending = {name: value for name, value in choice.items() if name != "message"}
        yield {**head, "choices": [{"finish_reason": None, **ending, "index": index, "delta": {}}]}
    if include_usage and completion.get("usage") is not None:
        yield {**head, "choices": [], "usage": completion["usage"]}


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """In the order of OpenAI's streams: what is empty with the role, then reasoning, the content, what is
    said about the content, and tool calls."""
    content = message.get("content")
    empty = {name: value for name, value in message.items() if value is None or value in ("", [])}
    began = "" if isinstance(content, str) else empty.get("content")
    yield {**empty, "role": message.get("role") or "assistant", "content": began}
    told = [name for name in message if name not in empty and name != "role"]
    for name in sorted(told, key=lambda name: _ORDER.get(name, 0)):
        yield from _field_deltas(name, message[name])


def _field_deltas(name: str, value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, str) and name not in WHOLE_TEXTS:
        yield from ({name: text} for text in pieces(value))
    elif name == "tool_calls" and isinstance(value, list):
        for index, call in enumerate(value):
            yield from ({name: [piece]} for piece in _call_pieces({**call, "index": index}))
    elif name == "function_call" and isinstance(value, Mapping):
        yield from ({name: piece} for piece in _part_pieces(value, "arguments"))
    else:
        yield {name: value}


def _call_pieces(call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for kind, text in (("function", "arguments"), ("custom", "input")):
        if isinstance(call.get(kind), Mapping):
            first, *rest = _part_pieces(call[kind], text)
            yield {**call, kind: first}
            yield from ({"index": call["index"], kind: piece} for piece in rest)
            return
    yield dict(call)


def _part_pieces(part: Mapping[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """First all but its text, then that in pieces."""
    if isinstance(part.get(text), str):
        yield {**part, text: ""}
        yield from ({text: piece} for piece in pieces(part[text]))
    else:
        yield dict(part)


def text_in(content: Any) -> str:
    """The text of an answer's `content`, which some servers write as a list of parts."""
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def without_usage(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The chunk as a client sees it that did not ask for usage; None when nothing else was in it."""
    if not body.get("choices"):
        return None
    return {name: value for name, value in body.items() if name != "usage"}
