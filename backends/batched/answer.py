"""From an engine's pieces to chat completion objects.

Shapes: https://platform.openai.com/docs/api-reference/chat/object and .../chat/streaming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from backends.protocols import Chunk, Piece


class Answer:
    """One answer on its way out. `created` is in Unix seconds."""

    def __init__(self, *, answer_id: str, model: str, created: int) -> None:
        self._head = {"id": answer_id, "created": created, "model": model}
        self._texts: list[str] = []
        self._begun = False

    def restart(self) -> None:
        """Forget what was collected: the engine begins again."""
        self._texts.clear()

    def collect(self, piece: Piece) -> Chunk | None:
        """For an answer in one: the `chat.completion` once `piece` is the last."""
        self._texts.append(piece.text)
        if piece.finish_reason is None:
            return None
        message = {"role": "assistant", "content": "".join(self._texts), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": piece.finish_reason}
        body = {"object": "chat.completion", "choices": [choice], "usage": _usage(piece)} | self._head
        return Chunk(data=orjson.dumps(body), events=(body,), whole=True)

    def stream(self, piece: Piece) -> Iterator[Chunk]:
        """For a streamed answer: the `chat.completion.chunk` objects that `piece` gives."""
        if not self._begun:
            self._begun = True
            yield self._delta({"role": "assistant", "content": ""})
        if piece.text:
            yield self._delta({"content": piece.text})
        if piece.finish_reason is not None:
            yield self._delta({}, piece.finish_reason)
            last = {"object": "chat.completion.chunk", "choices": [], "usage": _usage(piece)}
            yield _event(last | self._head, tells_usage=True)

    def _delta(self, delta: Mapping[str, str], finish_reason: str | None = None) -> Chunk:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _event({"object": "chat.completion.chunk", "choices": [choice]} | self._head)


def _usage(piece: Piece) -> dict[str, Any]:
    return {
        "prompt_tokens": piece.prompt_tokens,
        "completion_tokens": piece.completion_tokens,
        "total_tokens": piece.prompt_tokens + piece.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": piece.cached_tokens},
    }


def _event(body: dict[str, Any], *, tells_usage: bool = False) -> Chunk:
    data = b"data: " + orjson.dumps(body) + b"\n\n"
    return Chunk(data=data, events=(body,), tells_usage=tells_usage)
