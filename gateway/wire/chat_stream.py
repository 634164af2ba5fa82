"""Chat completions between their two forms: one object, and a stream of chunks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.errors import RequestError, openai_error_body
from policies.types import Usage

DONE = b"data: [DONE]\n\n"

_WORDS = re.compile(r"\s*\S+|\s+")
_WORDS_A_CHUNK = 8


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
    are lists; the rest is kept as last seen, so that fields unknown to us survive.
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
                    choice["logprobs"] = merge_logprobs(choice["logprobs"], value)
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

    def answer(self) -> dict[str, Any]:
        return self.completion()


def _merge(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        if name == "tool_calls" and isinstance(value, list):
            if not isinstance(message.get(name), list):
                message[name] = []
            _merge_tool_calls(message[name], value)
        elif name == "function_call" and isinstance(value, dict):
            message[name] = _merge_function(message.get(name) or {}, value)
        elif isinstance(value, list) and isinstance(message.get(name), list):
            message[name] = [*message[name], *value]
        elif isinstance(value, str) and isinstance(message.get(name), str) and name != "role":
            message[name] += value
        elif value is not None or name not in message:
            message[name] = value


def _merge_tool_calls(calls: list[dict[str, Any]], pieces: list[Any]) -> None:
    for piece in pieces:
        index = piece.get("index")
        index = index if isinstance(index, int) else len(calls)
        while len(calls) <= index:
            calls.append({})
        call = calls[index]
        for name, value in piece.items():
            if name == "function":
                call[name] = _merge_function(call.get(name) or {}, value or {})
            elif name != "index" and value is not None:
                call[name] = value


def _merge_function(function: Mapping[str, Any], piece: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(function)
    for name, value in piece.items():
        if name == "arguments" and value is not None:
            merged[name] = (merged.get(name) or "") + value
        elif value is not None:
            merged[name] = value
    return merged


def merge_logprobs(whole: Mapping[str, Any], piece: Mapping[str, Any]) -> dict[str, Any]:
    """Log-probabilities of one piece of text after those of the text before it: lists are joined."""
    merged = dict(whole)
    for name, value in piece.items():
        if isinstance(value, list) and isinstance(merged.get(name), list):
            merged[name] = [*merged[name], *value]
        elif value is not None:
            merged[name] = value
    return merged


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
        yield chunk(index, {"role": role, "content": "" if isinstance(content, str) else None})
        for name, value in message.items():
            if value is not None:
                yield chunk(index, {name: value})
        for text in pieces(content) if isinstance(content, str) else ():
            yield chunk(index, {"content": text})
        if isinstance(content, list):
            yield chunk(index, {"content": content})
        for i, call in enumerate(tool_calls or ()):
            yield chunk(index, {"tool_calls": [{"index": i, **call}]})
        last = chunk(index, {}, choice.get("finish_reason"))
        # Log-probabilities, and what is unknown to us, in one piece.
        last["choices"][0] |= {
            name: value for name, value in choice.items() if name not in ("index", "message", "finish_reason")
        }
        yield last
    if include_usage and completion.get("usage") is not None:
        yield {**head, "choices": [], "usage": completion["usage"]}


def pieces(text: str) -> Iterator[str]:
    """The text in pieces of a few words; joined they give it back exactly."""
    words = _WORDS.findall(text)
    for at in range(0, len(words), _WORDS_A_CHUNK):
        yield "".join(words[at : at + _WORDS_A_CHUNK])


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
