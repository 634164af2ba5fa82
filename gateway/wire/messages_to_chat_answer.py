"""A chat completion, whole or as it streams, as the `message` an Anthropic client waits for.

Blocks come in this order: thinking, text, tool calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gateway.ids import random_hex
from gateway.wire.dialect import Json
from gateway.wire.messages_tool_input import as_input, is_whole
from gateway.wire.messages_usage import messages_usage, stop_reason


def message_of(completion: Json, asked: Json) -> dict[str, Any]:
    """Of several choices the first: this API has one answer."""
    choices: list[Json] = completion.get("choices") or [{}]
    choice = min(choices, key=lambda choice: choice.get("index", 0))
    message = choice.get("message") or {}
    content: list[dict[str, Any]] = []
    if thinking := _thinking(message):
        content.append({"type": "thinking", "thinking": thinking, "signature": ""})
    if text := _text(message.get("content")) + (message.get("refusal") or ""):
        content.append({"type": "text", "text": text})
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        block = _tool_use(call.get("id"), function.get("name"))
        content.append({**block, "input": as_input(function.get("arguments") or "")})
    ending = _ending(
        choice, asked, calls_tools=bool(message.get("tool_calls")), refuses=bool(message.get("refusal"))
    )
    return {
        **_head(completion),
        "content": content,
        **ending,
        "usage": messages_usage(completion.get("usage")),
    }


@dataclass(slots=True)
class _Block:
    """One content block of the stream: what it starts with, and the deltas that nobody was sent yet."""

    start: dict[str, Any] | None
    waiting: list[dict[str, Any]] = field(default_factory=list)
    arguments: str = ""
    """All of a tool call's, to see when they are whole."""

    @property
    def may_end(self) -> bool:
        return self.start is not None and (self.start["type"] != "tool_use" or is_whole(self.arguments))


class ChatStreamAsMessage:
    """Anthropic's blocks come one after the other, where OpenAI's deltas may mix. One block is open and goes
    out as it comes. What is for another waits until the open one may end: text and thinking at any time, a
    tool call when its arguments are whole. The end lets out all that waits.
    """

    def __init__(self, asked: Json) -> None:
        self._asked = asked
        self._started = False
        self._blocks: dict[str | int, _Block] = {}
        """In the order in which they are sent: the first is the open one."""
        self._index = -1
        self._open = False
        self._done: set[str | int] = set()
        self._calls: dict[int | None, tuple[int, str | None]] = {}
        """By the index its server gives: the last call that had it, and its id."""
        self._called = 0
        self._refuses = False
        self._ending: dict[str, Any] = {}
        self._usage: Any = None

    def feed(self, event: Json) -> Iterator[dict[str, Any]]:
        """Takes in one `chat.completion.chunk`; its parts may all be in one."""
        if event.get("usage"):
            self._usage = event["usage"]
        if not self._started:
            self._started = True
            opening = {**_head(event), "content": [], "stop_reason": None, "stop_sequence": None}
            usage = {**messages_usage(self._usage), "output_tokens": 0}
            usage.pop("output_tokens_details", None)
            yield {"type": "message_start", "message": {**opening, "usage": usage}}
        for choice in event.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            self._take_in(choice.get("delta") or {})
            if choice.get("finish_reason"):
                self._ending = dict(choice)
            yield from self._let_out()

    def end(self) -> Iterator[dict[str, Any]]:
        if not self._started:
            yield from self.feed({})
        yield from self._let_out(everything=True)
        ending = _ending(self._ending, self._asked, calls_tools=self._called > 0, refuses=self._refuses)
        yield {"type": "message_delta", "delta": ending, "usage": messages_usage(self._usage)}
        yield {"type": "message_stop"}

    def _take_in(self, delta: Json) -> None:
        if thinking := _thinking(delta):
            start = {"type": "thinking", "thinking": "", "signature": ""}
            self._block("thinking", start).waiting.append({"type": "thinking_delta", "thinking": thinking})
        for name in ("content", "refusal"):
            if text := _text(delta.get(name)):
                self._refuses |= name == "refusal"
                block = self._block("text", {"type": "text", "text": ""})
                block.waiting.append({"type": "text_delta", "text": text})
        for piece in delta.get("tool_calls") or ():
            self._take_in_call(piece)

    def _take_in_call(self, piece: Json) -> None:
        function = piece.get("function") or {}
        key = self._key(piece)
        if key in self._done:
            return  # arguments were whole: what comes after them is white space, or no JSON at all
        block = self._block(key, None)
        if block.start is None and function.get("name"):
            block.start = {**_tool_use(piece.get("id"), function["name"]), "input": {}}
        if arguments := function.get("arguments"):
            block.arguments += arguments
            block.waiting.append({"type": "input_json_delta", "partial_json": arguments})

    def _key(self, piece: Json) -> int:
        """Which call a piece is of. Not every server counts: some give no index, some the same to all calls.
        A call begins with its id and name; what has neither goes on with the last of its index."""
        index, call_id = piece.get("index"), piece.get("id")
        key, known_id = self._calls.get(index, (-1, None))
        begins = call_id and (piece.get("function") or {}).get("name")
        if key < 0 or (begins and known_id and call_id != known_id):
            key, known_id = self._called, None
            self._called += 1
        self._calls[index] = (key, known_id or call_id)
        return key

    def _block(self, key: str | int, start: dict[str, Any] | None) -> _Block:
        # Text after a block of text that has ended is a new block.
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = _Block(start=start)
        return block

    def _let_out(self, *, everything: bool = False) -> Iterator[dict[str, Any]]:
        while self._blocks:
            key, block = next(iter(self._blocks.items()))
            if block.start is None:
                if not everything:
                    return
                block.start = {**_tool_use(None, None), "input": {}}
            if not self._open:
                self._open = True
                self._index += 1
                yield {"type": "content_block_start", "index": self._index, "content_block": block.start}
            for delta in block.waiting:
                yield {"type": "content_block_delta", "index": self._index, "delta": delta}
            block.waiting = []
            if not everything and (len(self._blocks) == 1 or not block.may_end):
                return
            yield {"type": "content_block_stop", "index": self._index}
            self._open = False
            del self._blocks[key]
            if block.start["type"] == "tool_use":
                self._done.add(key)


def _head(answer: Json) -> dict[str, Any]:
    name = str(answer.get("id") or random_hex()).removeprefix("chatcmpl-")
    name = name if name.startswith("msg_") else f"msg_{name}"
    return {"id": name, "type": "message", "role": "assistant", "model": answer.get("model") or ""}


def _text(content: Any) -> str:
    """Some servers answer in parts, as a client may ask."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    return content if isinstance(content, str) else ""


def _thinking(message: Json) -> str:
    """DeepSeek's and vLLM's older name, or the newer one of vLLM and OpenRouter; some send both."""
    thinking = message.get("reasoning_content") or message.get("reasoning")
    return thinking if isinstance(thinking, str) else ""


def _tool_use(call_id: Any, name: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id or f"toolu_{random_hex()}", "name": name or ""}


def _ending(choice: Json, asked: Json, *, calls_tools: bool, refuses: bool) -> dict[str, Any]:
    """Which stop string matched is known from vLLM (`stop_reason`) and SGLang (`matched_stop`) alone."""
    matched = choice.get("stop_reason") or choice.get("matched_stop")
    if choice.get("finish_reason") == "stop" and matched in (asked.get("stop_sequences") or ()):
        return {"stop_reason": "stop_sequence", "stop_sequence": matched}
    stop = stop_reason(choice.get("finish_reason"), calls_tools=calls_tools, refuses=refuses)
    return {"stop_reason": stop, "stop_sequence": None}
