"""What the gateway asks of each API it serves. Pure: parsed JSON in, parsed JSON or bytes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

from gateway.errors import RequestError
from policies.types import Api, Usage

Json = Mapping[str, Any]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What every API says of a request. `include_usage`: the client wants usage in its stream."""

    model: str
    stream: bool = False
    include_usage: bool = True


class Assembler(Protocol):
    """Puts the events of a stream together to the answer they stand for. Unknown fields survive."""

    def add(self, event: Json) -> None: ...

    def answer(self) -> dict[str, Any]:
        """The answer so far, in the form it has without streaming."""
        ...


class Dialect(Protocol):
    """One API in its two forms: a request and its answer as one object, and the answer as events."""

    @property
    def api(self) -> Api: ...

    def check(self, body: dict[str, Any]) -> Asked:
        """Checks the fields whose type we know; others pass unseen. Raises RequestError (400) that names
        the field."""
        ...

    def chat_view(self, body: Json) -> Json:
        """A chat completion body that asks the same: what routing and semantic safety look at."""
        ...

    def without_question(self, body: Json) -> Json:
        """The body without the last text of what `chat_view` has as its last message; all else is kept, texts
        before it too: they may be documents that the question is about."""
        ...

    def assembler(self) -> Assembler: ...

    def usage(self, answer: Json) -> Usage | None:
        """From an answer, or from one event of a stream; None when it does not say."""
        ...

    def why_not_stored(self, answer: Json) -> str:
        """ "" for an answer that may be kept; else why not: cut, filtered, empty or unfinished."""
        ...

    def renewed(self, answer: Json, *, model: str, now: float) -> dict[str, Any]:
        """A stored answer as a fresh one: a new id and time, the model that was asked for."""
        ...

    def events(self, answer: Json, *, include_usage: bool) -> Iterator[dict[str, Any]]:
        """The events that a stream of this answer would have had."""
        ...

    def frame(self, event: Json) -> bytes:
        """One event as server-sent bytes."""
        ...

    @property
    def end(self) -> bytes:
        """What follows the last event of a clean stream: b"data: [DONE]\\n\\n" or nothing."""
        ...

    def error_body(self, error: RequestError) -> bytes:
        """The error in this API's shape; an upstream's own body, where it has that shape already, as is."""
        ...

    def error_frame(self, error: RequestError) -> bytes:
        """The error as an event of a stream that had begun."""
        ...


class EventTranslator(Protocol):
    """Translates the events of one stream. Called with each event in order, and lastly `end`."""

    def feed(self, event: Json) -> Iterator[dict[str, Any]]: ...

    def end(self) -> Iterator[dict[str, Any]]:
        """What is left to say after the source's clean end."""
        ...


class Translator(Protocol):
    """Lets a client of one API be answered by a backend that speaks another."""

    @property
    def source(self) -> Api:
        """The client's API."""
        ...

    @property
    def target(self) -> Api:
        """The backend's API."""
        ...

    def request(self, body: Json) -> dict[str, Any]:
        """The client's request for the backend; `model` and `stream` are kept. Raises RequestError (400)
        for what the target cannot express and leaving out would change the answer."""
        ...

    def answer(self, answer: Json, asked: Json) -> dict[str, Any]:
        """The backend's answer for the client. `asked` is the client's body."""
        ...

    def events(self, asked: Json) -> EventTranslator:
        """Translates the backend's events for the client."""
        ...
