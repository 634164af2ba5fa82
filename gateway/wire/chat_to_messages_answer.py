"""A `message`, whole or as it streams, as the chat completion an OpenAI client waits for.

Left out: citations, and what Anthropic's own tools did on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.ids import random_hex
from gateway.wire.dialect import Json
from gateway.wire.messages_stream import MessageAssembler
from gateway.wire.messages_tool_input import as_text
from gateway.wire.messages_usage import chat_usage, finish_reason


def completion_of(message: Json, *, created: int) -> dict[str, Any]:
    """Thinking is told twice: as text in `reasoning_content`, and in `thinking_blocks` with its signature,
    which a client sends back with the calls that came of it."""
    blocks = message.get("content") or ()
    text = "".join(block.get("text") or "" for block in blocks if block.get("type") == "text")
    said: dict[str, Any] = {"role": "assistant", "content": text or None}
    if explanation := _explanation(message):
        said["refusal"] = explanation
    if thinking := "".join(b.get("thinking") or "" for b in blocks if b.get("type") == "thinking"):
        said["reasoning_content"] = thinking
    if signed := [dict(block) for block in blocks if _is_signed(block)]:
        said["thinking_blocks"] = signed
    if calls := [_call(block) for block in blocks if block.get("type") == "tool_use"]:
        said["tool_calls"] = calls
    reason = finish_reason(message.get("stop_reason"))
    choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": reason}
    usage = chat_usage(message.get("usage") or {})
    return {**_head(message, created), "object": "chat.completion", "choices": [choice], "usage": usage}


class MessageStreamAsChat:
    """The role first, then deltas as they come, the finish reason, and lastly a chunk of usage alone."""

    def __init__(self, *, created: int) -> None:
        self._created = created
        self._chunk_head: dict[str, Any] = {}
        self._ends = MessageAssembler()
        """Of the first and last events alone: usage, and why it stopped."""
        self._thinking: dict[int, dict[str, Any]] = {}
        self._calls: dict[int, int] = {}
        """A content block's index to its tool call's."""
        self._inputs: dict[int, Any] = {}
        """What a call's block began with, until a piece of its input comes."""
        self._ended = False

    def feed(self, event: Json) -> Iterator[dict[str, Any]]:
        index = event.get("index", 0)
        match event.get("type"):
            case "message_start":
                self._ends.add(event)
                yield from self._begin()
            case "content_block_start":
                yield from self._begin()
                yield from self._start(index, event.get("content_block") or {})
            case "content_block_delta":
                yield from self._delta(index, event.get("delta") or {})
            case "content_block_stop":
                yield from self._stop(index)
            case "message_delta":
                self._ends.add(event)
            case "message_stop":
                yield from self.end()

    def end(self) -> Iterator[dict[str, Any]]:
        if self._ended:
            return
        self._ended = True
        yield from self._begin()
        message = self._ends.answer()
        if explanation := _explanation(message):
            yield self._chunk({"refusal": explanation})
        yield self._chunk({}, finish_reason(message.get("stop_reason")))
        yield {**self._chunk_head, "choices": [], "usage": chat_usage(message["usage"])}

    def _begin(self) -> Iterator[dict[str, Any]]:
        if not self._chunk_head:
            head = _head(self._ends.answer(), self._created)
            self._chunk_head = {**head, "object": "chat.completion.chunk"}
            yield self._chunk({"role": "assistant", "content": ""})

    def _start(self, index: int, block: Json) -> Iterator[dict[str, Any]]:
        match block.get("type"):
            case "text":
                if block.get("text"):
                    yield self._chunk({"content": block["text"]})
            case "thinking":
                self._thinking[index] = dict(block)
                if block.get("thinking"):
                    yield self._chunk({"reasoning_content": block["thinking"]})
            case "redacted_thinking":
                yield self._chunk({"thinking_blocks": [dict(block)]})
            case "tool_use":
                self._calls[index] = len(self._calls)
                self._inputs[index] = block.get("input")
                call = _call({**block, "input": {}})
                call["function"]["arguments"] = ""
                yield self._chunk({"tool_calls": [{"index": self._calls[index], **call}]})

    def _delta(self, index: int, delta: Json) -> Iterator[dict[str, Any]]:
        match delta.get("type"):
            case "text_delta":
                if delta.get("text"):
                    yield self._chunk({"content": delta["text"]})
            case "thinking_delta":
                if thinking := delta.get("thinking"):
                    block = self._thinking.setdefault(index, {"type": "thinking"})
                    block["thinking"] = (block.get("thinking") or "") + thinking
                    yield self._chunk({"reasoning_content": thinking})
            case "signature_delta":
                block = self._thinking.setdefault(index, {"type": "thinking", "thinking": ""})
                block["signature"] = (block.get("signature") or "") + (delta.get("signature") or "")
            case "input_json_delta":
                if index in self._calls and delta.get("partial_json"):
                    self._inputs.pop(index, None)
                    yield self._arguments(index, delta["partial_json"])

    def _stop(self, index: int) -> Iterator[dict[str, Any]]:
        if index in self._inputs:
            yield self._arguments(index, as_text(self._inputs.pop(index)))
        block = self._thinking.pop(index, None)
        if block and _is_signed(block):
            yield self._chunk({"thinking_blocks": [block]})

    def _arguments(self, index: int, text: str) -> dict[str, Any]:
        piece = {"index": self._calls[index], "function": {"arguments": text}}
        return self._chunk({"tool_calls": [piece]})

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._chunk_head, "choices": [choice]}


def _head(message: Json, created: int) -> dict[str, Any]:
    name = str(message.get("id") or random_hex()).removeprefix("msg_")
    name = name if name.startswith("chatcmpl-") else f"chatcmpl-{name}"
    return {"id": name, "created": created, "model": message.get("model") or ""}


def _explanation(message: Json) -> str:
    return str((message.get("stop_details") or {}).get("explanation") or "")


def _is_signed(block: Json) -> bool:
    kind = block.get("type")
    return kind == "redacted_thinking" or (kind == "thinking" and bool(block.get("signature")))


def _call(block: Json) -> dict[str, Any]:
    function = {"name": block.get("name"), "arguments": as_text(block.get("input"))}
    return {"id": block.get("id"), "type": "function", "function": function}
