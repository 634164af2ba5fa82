"""Anthropic's messages between their two forms: one `message`, and the events of its stream.

Events: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.wire.dialect import Json
from gateway.wire.messages_tool_input import as_input, as_text
from gateway.wire.pieces import pieces

_ENDING = ("stop_reason", "stop_sequence", "stop_details", "container")
"""What a stream says of the message in `message_delta`, not in `message_start`."""
_BESIDE = ("context_management", "input_transformations")
"""What a stream may say of the message beside the `delta` of `message_delta`."""
_INPUT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_OUTPUT_COUNTS = ("output_tokens", "output_tokens_details", "server_tool_use")
"""What `message_delta` has of `usage`; `message_start` has all but the output's."""


def frame(event: Json) -> bytes:
    """One server-sent event; its name is the type its data has."""
    return b"event: %b\ndata: %b\n\n" % (str(event.get("type", "")).encode(), orjson.dumps(event))


class MessageAssembler:
    """Puts a stream's events together to the `message` they stand for.

    Of a delta we do not know, texts and lists are joined to the block's field of that name, and the rest is
    kept as last seen. Usage is `message_start`'s with what `message_delta` says of it put over.
    """

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}

    def add(self, event: Json) -> None:
        """Take in one event, or a whole `message`; `ping` and what we do not know say nothing."""
        match event.get("type"):
            case "message_start":
                self._begin(event.get("message") or {})
            case "message":
                self._begin(event)
            case "content_block_start":
                self._blocks[event.get("index", 0)] = dict(event.get("content_block") or {})
            case "content_block_delta":
                self._delta(event.get("index", 0), event.get("delta") or {})
            case "message_delta":
                _put_over(self._message, event.get("delta") or {})
                _put_over(self._message.setdefault("usage", {}), event.get("usage") or {})
                _put_over(self._message, {name: event[name] for name in _BESIDE if name in event})

    def answer(self) -> dict[str, Any]:
        """The `message` so far. A tool's input that is no JSON object is kept as `as_input` has it."""
        content = []
        for index in sorted(self._blocks):
            block = dict(self._blocks[index])
            if text := "".join(self._inputs.get(index, ())):
                block["input"] = as_input(text)
            content.append(block)
        head = {"type": "message", "role": "assistant", **self._message}
        return {**head, "usage": dict(head.get("usage") or {}), "content": content}

    def _begin(self, message: Json) -> None:
        self._message = {name: value for name, value in message.items() if name != "content"}
        self._message["usage"] = dict(message.get("usage") or {})
        for index, block in enumerate(message.get("content") or ()):
            self._blocks[index] = dict(block)

    def _delta(self, index: int, delta: Json) -> None:
        block = self._blocks.setdefault(index, {})
        match delta.get("type"):
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(delta.get("partial_json") or "")
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
            case _:
                for name, value in delta.items():
                    known = block.get(name)
                    if name == "type":
                        block.setdefault("type", str(value).removesuffix("_delta"))
                    elif isinstance(value, str) and isinstance(known, str):
                        block[name] = known + value
                    elif isinstance(value, list) and isinstance(known, list):
                        block[name] = [*known, *value]
                    elif value is not None:
                        block[name] = value


def _put_over(known: dict[str, Any], news: Json) -> None:
    for name, value in news.items():
        if value is not None or name not in known:
            known[name] = value


def as_events(message: Json) -> Iterator[dict[str, Any]]:
    """The events that a stream of this message would have had."""
    usage = message.get("usage") or {"input_tokens": 0, "output_tokens": 0}
    head = {name: value for name, value in message.items() if name not in _ENDING}
    beside: dict[str, Any] = {}
    if head.get("context_management") is not None:
        beside["context_management"], head["context_management"] = head["context_management"], None
    begun = {name: value for name, value in usage.items() if name not in _OUTPUT_COUNTS}
    # As Anthropic has it there: the first token. The total comes at the end.
    begun["output_tokens"] = min(1, usage.get("output_tokens") or 0)
    opening = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": begun}
    yield {"type": "message_start", "message": opening}
    for index, block in enumerate(message.get("content") or ()):
        start, deltas = _opened(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending = {"stop_reason": None, "stop_sequence": None}
    ending |= {name: message[name] for name in _ENDING if name in message}
    final = {name: usage[name] for name in _INPUT_COUNTS + _OUTPUT_COUNTS if name in usage}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 0, **final}, **beside}
    yield {"type": "message_stop"}


def _opened(block: Json) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """What a block's `content_block_start` holds, and the deltas that follow; all in the first for
    `redacted_thinking`, results of server tools, and blocks we do not know."""
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        start = {**block, "text": ""}
        if block.get("citations"):
            start["citations"] = []
        return start, _text_deltas(block)
    if kind == "thinking" and isinstance(block.get("thinking"), str):
        start = {**block, "thinking": ""}
        if block.get("signature"):
            start["signature"] = ""
        return start, _thinking_deltas(block)
    if str(kind).endswith("tool_use") and isinstance(block.get("input"), Mapping):
        return {**block, "input": {}}, _input_deltas(block["input"])
    return dict(block), iter(())


def _text_deltas(block: Json) -> Iterator[dict[str, Any]]:
    for text in pieces(block["text"]):
        yield {"type": "text_delta", "text": text}
    for citation in block.get("citations") or ():
        yield {"type": "citations_delta", "citation": citation}


def _thinking_deltas(block: Json) -> Iterator[dict[str, Any]]:
    for text in pieces(block["thinking"]):
        yield {"type": "thinking_delta", "thinking": text}
    if block.get("signature"):
        yield {"type": "signature_delta", "signature": block["signature"]}


def _input_deltas(tool_input: Json) -> Iterator[dict[str, Any]]:
    # Anthropic's own streams begin with an empty piece; of an input of {} there is no other.
    yield {"type": "input_json_delta", "partial_json": ""}
    if not tool_input:
        return
    for text in pieces(as_text(tool_input)):
        yield {"type": "input_json_delta", "partial_json": text}
