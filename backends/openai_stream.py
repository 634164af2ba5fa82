"""The answer of an OpenAI-compatible server as chunks, and whether it ended as an answer should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from backends.errors import UpstreamCut, UpstreamInvalid
from backends.openai_errors import Redactor, error_message, rejection
from backends.protocols import Chunk
from backends.sse import Event, EventSizeError, SseParser


class CompletionStream:
    """Turns the bytes of a streamed answer into chunks.

    `done` once the answer has said that it is complete. Raises UpstreamInvalid while nothing has come out
    yet, UpstreamCut afterwards, and UpstreamRejected for an answer that is an error from its start.
    """

    def __init__(self, name: str, *, choices: int, redactor: Redactor) -> None:
        self.done = False
        self._name = name
        self._choices = choices
        self._redactor = redactor
        self._parser = SseParser()
        self._begun = False
        self._finished: dict[int, bool] = {}  # by the choice's index

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """Must be iterated to its end, or until an error."""
        try:
            for event in self._parser.feed(data):
                chunk = self._chunk(event)
                if chunk is not None:
                    yield chunk
                if self.done:
                    return
        except EventSizeError as error:
            raise self._broken(str(error)) from None

    def end(self) -> Iterator[Chunk]:
        """The body has ended. Without a `[DONE]` that is a clean end only when every choice has finished,
        for some engines send none."""
        event = self._parser.flush()
        chunk = self._chunk(event) if event is not None else None
        if chunk is not None:
            yield chunk
        if not self.done:
            if len(self._finished) < self._choices or not all(self._finished.values()):
                raise self._broken("the stream ended before the answer did")
            self.done = True

    def _chunk(self, event: Event) -> Chunk | None:
        data = event.data.strip()
        if not data:
            return None
        if data == b"[DONE]":
            if not self._begun:
                raise self._broken("the stream held no answer")
            self.done = True
            return None
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict):
            if event.name != "error":
                raise self._broken("an event of the stream is not a JSON object")
            body = {"error": data.decode("utf-8", "replace")}
            data = orjson.dumps(body)
        if body.get("error") or event.name == "error":
            raise self._failure(body, data)
        self._note_finishes(body.get("choices"))
        self._begun = True
        # Data spread over several lines must fit one line when it is sent on; in JSON a line end between
        # tokens means no more than a space.
        return Chunk(data=data.replace(b"\n", b" "), body=body)

    def _note_finishes(self, choices: Any) -> None:
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                index = choice.get("index")
                key = index if isinstance(index, int) else 0
                self._finished[key] = self._finished.get(key, False) or bool(choice.get("finish_reason"))

    def _failure(self, body: Mapping[str, Any], data: bytes) -> Exception:
        """The error for an event that reports one."""
        if not self._begun:
            return rejection(self._name, _status(body), {}, data, self._redactor)
        message = self._redactor.text(error_message(body) or "no reason given")
        return UpstreamCut(f"{self._name} failed during its answer: {message}")

    def _broken(self, what: str) -> Exception:
        return (UpstreamCut if self._begun else UpstreamInvalid)(f"{self._name}: {what}")


def completion(name: str, data: bytes, content_type: str, redactor: Redactor) -> Chunk:
    """A whole answer from its bytes. Raises UpstreamInvalid."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        kind = content_type.partition(";")[0] or "no content type"
        raise UpstreamInvalid(f"{name} answered with something that is not JSON ({kind})") from None
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices or not all(_is_choice(c) for c in choices):
        message = error_message(body.get("error")) if isinstance(body, dict) else None
        reason = f": {redactor.text(message)}" if message else ""
        raise UpstreamInvalid(f"{name} answered without a completion{reason}")
    return Chunk(data=data, body=body)


def as_chunks(body: Mapping[str, Any]) -> Iterator[Chunk]:
    """A whole answer, checked by `completion`, in the form of a streamed one: per choice its message and
    its finish, then usage."""
    shared = {key: value for key, value in body.items() if key not in ("choices", "usage")}
    shared["object"] = "chat.completion.chunk"

    def chunk(choices: list[dict[str, Any]], **more: Any) -> Chunk:
        content = {**shared, "choices": choices, **more}
        try:
            return Chunk(data=orjson.dumps(content), body=content)
        except orjson.JSONEncodeError as error:
            raise UpstreamInvalid(f"the answer cannot be streamed: {error}") from None

    for position, choice in enumerate(body["choices"]):
        delta = dict(choice["message"])
        if delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"])]
        rest = {key: value for key, value in choice.items() if key not in ("message", "finish_reason")}
        rest.setdefault("index", position)
        yield chunk([{**rest, "delta": delta, "finish_reason": None}])
        finish = {"index": rest["index"], "delta": {}, "finish_reason": choice.get("finish_reason")}
        yield chunk([finish])
    if body.get("usage"):
        yield chunk([], usage=body["usage"])


def _is_choice(choice: Any) -> bool:
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return False
    calls = choice["message"].get("tool_calls") or []
    return isinstance(calls, list) and all(isinstance(call, dict) for call in calls)


def _status(body: Mapping[str, Any]) -> int:
    """The HTTP status that an error event names (vLLM's `code`), else 502."""
    error = body.get("error")
    source = error if isinstance(error, dict) else body
    for key in ("code", "status", "status_code"):
        value = source.get(key)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return 502
