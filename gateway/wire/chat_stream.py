"""Chat completions between their two forms: one object, and a stream of chunks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

DONE = b"data: [DONE]\n\n"

_WORDS = re.compile(r"\s*\S+|\s+")
_WORDS_A_CHUNK = 8


def frame(data: bytes) -> bytes:
    """One server-sent event. `data` is JSON and so has no line break of its own."""
    return b"data: " + data + b"\n\n"


class Assembler:
    """Puts a stream's chunks together to the `chat.completion` they stand for.

    Text fields of a delta (content, reasoning_content, refusal, tool-call arguments) are joined; the
    rest is kept as last seen, so that fields unknown to us survive.
    """

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self.usage: Mapping[str, Any] | None = None

    def add(self, body: Mapping[str, Any]) -> None:
        """Take in one `chat.completion.chunk`, or a whole `chat.completion`."""
        for name, value in body.items():
            if name not in ("choices", "usage"):
                self._head[name] = value
        if isinstance(body.get("usage"), dict):
            self.usage = body["usage"]
        for piece in body.get("choices") or ():
            choice = self._choices.setdefault(
                piece.get("index", 0), {"index": piece.get("index", 0), "message": {}, "finish_reason": None}
            )
            for name, value in piece.items():
                if name == "delta":
                    _merge(choice["message"], value or {})
                elif name == "logprobs" and value and choice.get("logprobs"):
                    _merge_logprobs(choice["logprobs"], value)
                elif name != "index" and (value is not None or name not in choice):
                    choice[name] = value

    def completion(self) -> dict[str, Any]:
        """The `chat.completion` so far; `usage` is there when it was seen."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        for choice in choices:
            message = choice["message"]
            message.setdefault("role", "assistant")
            message.setdefault("content", None)
        whole = {**self._head, "object": "chat.completion", "choices": choices}
        if self.usage is not None:
            whole["usage"] = self.usage
        return whole


def _merge(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        if name == "tool_calls" and isinstance(value, list):
            _merge_tool_calls(message.setdefault("tool_calls", []), value)
        elif isinstance(value, str) and isinstance(message.get(name), str) and name != "role":
            message[name] += value
        elif value is not None or name not in message:
            message[name] = value


def _merge_tool_calls(calls: list[dict[str, Any]], pieces: list[Any]) -> None:
    for piece in pieces:
        index = piece.get("index", len(calls))
        while len(calls) <= index:
            calls.append({})
        call = calls[index]
        for name, value in piece.items():
            if name == "function":
                function = call.setdefault("function", {})
                for key, part in value.items():
                    if key == "arguments" and part is not None:
                        function[key] = (function.get(key) or "") + part
                    elif part is not None:
                        function[key] = part
            elif name != "index" and value is not None:
                call[name] = value


def _merge_logprobs(whole: dict[str, Any], piece: Mapping[str, Any]) -> None:
    for name, value in piece.items():
        if isinstance(value, list) and isinstance(whole.get(name), list):
            whole[name] = [*whole[name], *value]
        elif value is not None:
            whole[name] = value


def as_chunks(completion: Mapping[str, Any], *, include_usage: bool) -> Iterator[dict[str, Any]]:
    """The `chat.completion.chunk` objects a stream of this completion would have had."""
    head = {name: value for name, value in completion.items() if name not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"

    def chunk(index: int, delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": index, "delta": delta, "finish_reason": finish_reason}]}

    for choice in completion.get("choices", ()):
        index = choice.get("index", 0)
        message = dict(choice.get("message") or {})
        tool_calls = message.pop("tool_calls", None)
        content = message.pop("content", None)
        role = message.pop("role", "assistant")
        yield chunk(index, {"role": role, "content": "" if content is not None else None})
        for name, value in message.items():
            if value is not None:
                yield chunk(index, {name: value})
        for text in _pieces(content or ""):
            yield chunk(index, {"content": text})
        for i, call in enumerate(tool_calls or ()):
            yield chunk(index, {"tool_calls": [{"index": i, **call}]})
        last = chunk(index, {}, choice.get("finish_reason"))
        if choice.get("logprobs") is not None:
            last["choices"][0]["logprobs"] = choice["logprobs"]
        yield last
    if include_usage and completion.get("usage") is not None:
        yield {**head, "choices": [], "usage": completion["usage"]}


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces of a few words; joined they give it back exactly."""
    words = _WORDS.findall(text)
    for at in range(0, len(words), _WORDS_A_CHUNK):
        yield "".join(words[at : at + _WORDS_A_CHUNK])


def without_usage(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The chunk as a client sees it that did not ask for usage; None when nothing else was in it."""
    if not body.get("choices"):
        return None
    return {name: value for name, value in body.items() if name != "usage"}
