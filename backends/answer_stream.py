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
        self._seen: list[dict[str, Any]] = []  # all events, should no mark of the end come

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """Must be iterated to its end, or until an error."""
        if (simple := self._reader.simple(data)) is not None:
            yield from self._quickly(data, simple)
            return
        yield from self._chunks(self._reader.feed(data))
        if self._reader.too_large and not self.done:
            raise self._broken("an event of the stream is too large")

    def end(self) -> Iterator[Chunk]:
        """The body has ended. Without a mark of the end that is a clean end only when every choice has
        finished, for some engines send none."""
        event = self._reader.flush()
        if event is not None and event.data is not None:
            yield from self._chunks([Event(event.raw + b"\n\n", event.data, event.name)])
        if not self.done:
            if self._typed or not self._all_finished():
                raise self._broken("the stream ended before the answer did")
            self.done = True

    def _quickly(self, data: bytes, simple: list[bytes]) -> Iterator[Chunk]:
        """As `_chunks`, for events that `SseReader.simple` has split."""
        bodies: list[dict[str, Any]] = []
        empty_usage = False
        begun = at = 0  # where the chunk begins, and the event
        for payload in simple:
            end = at + len(payload) + 8
            try:
                body = orjson.loads(payload)
            except orjson.JSONDecodeError:
                body = None
            if type(body) is not dict or "error" in body:  # the mark of the end, and what is no answer
                if at > begun:
                    yield Chunk(data=data[begun:at], events=bodies, tells_usage=empty_usage)
                yield from self._chunks([Event(data[at:end], payload)])
                if self.done:
                    return
                begun, bodies, empty_usage = end, [], False
            elif self._typed:
                self._begun = True
                bodies.append(body)
                if body.get("type") in _TERMINAL_EVENTS:
                    self.done = True
                    yield Chunk(data=data[begun:end], events=bodies)
                    return
            else:
                self._begun = True
                self._seen.append(body)
                usage = body.get("usage", self)
                if usage is None:
                    empty_usage = True
                elif usage is not self:
                    if at > begun:
                        yield Chunk(data=data[begun:at], events=bodies, tells_usage=empty_usage)
                    yield Chunk(data=data[at:end], events=(body,), tells_usage=True)
                    begun, bodies, empty_usage = end, [], False
                    at = end
                    continue
                bodies.append(body)
            at = end
        if at > begun:
            yield Chunk(data=data[begun:at], events=bodies, tells_usage=empty_usage)

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
            self._seen.append(body)
        return body

    def _all_finished(self) -> bool:
        """Whether every choice has a finish reason."""
        finished: dict[int, bool] = {}
        for body in self._seen:
            choices = body.get("choices")
            for choice in choices if isinstance(choices, list) else ():
                if isinstance(choice, dict):
                    index = choice.get("index")
                    key = index if isinstance(index, int) else 0
                    finished[key] = bool(choice.get("finish_reason")) or finished.get(key, False)
        return len(finished) >= self._choices and all(finished.values())

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
