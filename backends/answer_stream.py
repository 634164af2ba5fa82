"""A streamed answer as chunks, byte for byte as it came, and whether it ended as an answer should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from backends.errors import BackendError, UpstreamCut, UpstreamInvalid
from backends.protocols import Chunk
from backends.rejection import Redactor, error_message, rejection
from backends.sse import Event, SseReader
from policies.types import Api

_END_MARK = b"[DONE]"
_TERMINAL_EVENTS = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})


class AnswerStream:
    """Turns the bytes of a streamed answer into chunks: one for each piece that is fed, as a rule.

    `done` once the answer has said that it is complete: OpenAI's `[DONE]`, or the last event of Anthropic's
    messages and OpenAI's responses. Raises UpstreamInvalid while nothing has come out yet, UpstreamCut
    afterwards, and UpstreamRejected for an answer that is an error from its start.
    """

    def __init__(self, name: str, api: Api, *, redactor: Redactor, choices: int = 1) -> None:
        self.done = False
        self._name = name
        self._api: Api = api
        self._typed = api in ("messages", "responses")
        self._choices = choices
        self._redactor = redactor
        self._reader = SseReader()
        self._begun = False
        self._finished: dict[int, bool] = {}  # by the choice's index

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """Must be iterated to its end, or until an error."""
        events = self._reader.feed(data)
        yield from self._chunks(events)
        if self._reader.too_large and not self.done:
            raise self._broken("an event of the stream is too large")

    def end(self) -> Iterator[Chunk]:
        """The body has ended. Without a mark of the end that is a clean end only when every choice has
        finished, for some engines send none."""
        event = self._reader.flush()
        if event is not None and event.data is not None:
            yield from self._chunks([Event(event.raw + b"\n\n", event.data, event.name)])
        if not self.done:
            if self._typed or len(self._finished) < self._choices or not all(self._finished.values()):
                raise self._broken("the stream ended before the answer did")
            self.done = True

    def _chunks(self, events: list[Event]) -> Iterator[Chunk]:
        """One chunk for all, but for those that tell usage: each is a chunk of its own."""
        raws: list[bytes] = []
        bodies: list[dict[str, Any]] = []
        empty_usage = False
        failure: BackendError | None = None
        for event in events:
            try:
                body = self._body(event)
            except BackendError as error:  # raised below, after what came before it
                failure = error
                break
            if body is None:
                if self.done:
                    break
                raws.append(event.raw)
                continue
            if not self._typed and "usage" in body:
                if body["usage"] is not None:
                    if raws:
                        yield Chunk(data=b"".join(raws), events=bodies, tells_usage=empty_usage)
                        raws, bodies, empty_usage = [], [], False
                    yield Chunk(data=event.raw, events=(body,), tells_usage=True)
                    continue
                empty_usage = True
            raws.append(event.raw)
            bodies.append(body)
            if self.done:
                break
        if raws:
            yield Chunk(data=b"".join(raws), events=bodies, tells_usage=empty_usage)
        if failure is not None:
            raise failure

    def _body(self, event: Event) -> dict[str, Any] | None:
        """The event's JSON object; None for what has none."""
        data = event.data
        if data is None:
            return None
        if data == _END_MARK or data.strip() in (_END_MARK, b""):
            if not data.strip():
                return None
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
        self._begun = True
        if self._typed:
            self.done = body.get("type") in _TERMINAL_EVENTS
        else:
            self._note_finishes(body.get("choices"))
        return body

    def _note_finishes(self, choices: Any) -> None:
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                index = choice.get("index")
                key = index if isinstance(index, int) else 0
                self._finished[key] = bool(choice.get("finish_reason")) or self._finished.get(key, False)

    def _failure(self, body: Mapping[str, Any], data: bytes) -> BackendError:
        """The error for an event that reports one."""
        if not self._begun:
            return rejection(self._name, _status(body), {}, data, self._redactor, self._api)
        message = self._redactor.text(error_message(body) or "no reason given")
        return UpstreamCut(f"{self._name} failed during its answer: {message}")

    def _broken(self, what: str) -> BackendError:
        return (UpstreamCut if self._begun else UpstreamInvalid)(f"{self._name}: {what}")


_STATUS_OF_TYPE = {
    # https://docs.anthropic.com/en/api/errors
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "overloaded_error": 529,
}


def _status(body: Mapping[str, Any]) -> int:
    """The HTTP status that an error event names (vLLM's `code`, Anthropic's `type`), else 502."""
    error = body.get("error")
    source = error if isinstance(error, dict) else body
    for key in ("code", "status", "status_code"):
        value = source.get(key)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return _STATUS_OF_TYPE.get(str(source.get("type")), 502)


def whole_answer(name: str, api: Api, data: bytes, content_type: str, redactor: Redactor) -> Chunk:
    """A whole answer from its bytes. Raises UpstreamInvalid."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        kind = content_type.partition(";")[0] or "no content type"
        raise UpstreamInvalid(f"{name} answered with something that is not JSON ({kind})") from None
    if not (isinstance(body, dict) and _is_answer(api, body)):
        message = error_message(body.get("error")) if isinstance(body, dict) else None
        reason = f": {redactor.text(message)}" if message else ""
        raise UpstreamInvalid(f"{name} answered without {_WHAT[api]}{reason}")
    return Chunk(data=data, events=(body,), whole=True)


_WHAT: Mapping[Api, str] = {
    "chat": "a completion",
    "completions": "a completion",
    "messages": "a message",
    "responses": "a response",
    "embeddings": "embeddings",
}


def _is_answer(api: Api, body: dict[str, Any]) -> bool:
    match api:
        case "chat":
            return _is_list_of(body.get("choices"), _is_chat_choice)
        case "completions":
            return _is_list_of(body.get("choices"), lambda choice: isinstance(choice, dict))
        case "messages":
            return _is_list_of(body.get("content"), lambda block: isinstance(block, dict), may_be_empty=True)
        case "responses":
            return _is_list_of(body.get("output"), lambda item: isinstance(item, dict), may_be_empty=True)
        case "embeddings":
            return _is_list_of(body.get("data"), lambda row: isinstance(row, dict), may_be_empty=True)


def _is_list_of(value: Any, holds: Any, *, may_be_empty: bool = False) -> bool:
    return isinstance(value, list) and (may_be_empty or bool(value)) and all(map(holds, value))


def _is_chat_choice(choice: Any) -> bool:
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return False
    calls = choice["message"].get("tool_calls") or []
    return isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
