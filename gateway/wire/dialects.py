"""All APIs that the gateway serves, and how a client of one is answered by a backend of another."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import orjson
from msgspec.structs import replace

from backends.errors import UpstreamInvalid
from backends.protocols import Chunk
from gateway.wire.dialect import Dialect, EventTranslator, Json, Translator
from policies.types import Api, Request

_TELLING_USAGE = ("chat", "completions")
"""APIs whose streams tell usage only to who asks for it."""


class Dialects:
    """Dialects by API, and translators by the APIs they join; two in a row where none joins directly."""

    def __init__(self, dialects: Iterable[Dialect], translators: Iterable[Translator]) -> None:
        self._dialects = {dialect.api: dialect for dialect in dialects}
        direct = list(translators)
        found: dict[tuple[Api, Api], Translator] = {}
        for one in direct:
            for other in direct:
                if one.target == other.source and one.source != other.target:
                    found[one.source, other.target] = _InTurn(one, other)
        found.update({(one.source, one.target): one for one in direct})
        self._translators = found

    def of(self, api: Api) -> Dialect:
        return self._dialects[api]

    def translator(self, source: Api, spoken: frozenset[Api]) -> Translator | None:
        """What a backend that speaks `spoken` needs for a client of `source`; None when it needs nothing, or
        nothing helps."""
        if source in spoken:
            return None
        for target in ("chat", "messages"):  # most is alike in chat completions
            if target in spoken and (found := self._translators.get((source, target))) is not None:
                return found
        return None

    def answers(self, source: Api, spoken: frozenset[Api]) -> bool:
        """Whether a backend that speaks `spoken` can answer a client of `source`."""
        return source in spoken or self.translator(source, spoken) is not None

    async def translated(
        self, chunks: AsyncIterator[Chunk], translator: Translator, request: Request
    ) -> AsyncGenerator[Chunk]:
        """A backend's chunks as the client's API has them. Raises UpstreamInvalid for an answer that cannot
        be translated."""
        dialect = self.of(request.api)
        events: EventTranslator | None = None
        try:
            async with aclosing(_closable(chunks)) as source:
                async for chunk in source:
                    if chunk.whole:
                        answer = translator.answer(chunk.events[0], request.body)
                        yield replace(chunk, data=orjson.dumps(answer), events=(answer,))
                        continue
                    if events is None:
                        events = translator.events(request.body)
                    for said in chunk.events:
                        for translated in _grouped(dialect, events.feed(said)):
                            yield translated
            if events is not None:
                for translated in _grouped(dialect, events.end()):
                    yield translated
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise UpstreamInvalid(
                f"the upstream's answer has another form than its API says ({type(error).__name__})"
            ) from error


def _grouped(dialect: Dialect, events: Iterator[dict[str, Any]]) -> Iterator[Chunk]:
    """One chunk for all, but for those that tell usage."""
    rest: list[dict[str, Any]] = []
    for event in events:
        if dialect.api in _TELLING_USAGE and event.get("usage") is not None:
            if rest:
                yield _chunk(dialect, rest)
                rest = []
            yield _chunk(dialect, [event])
        else:
            rest.append(event)
    if rest:
        yield _chunk(dialect, rest)


def _chunk(dialect: Dialect, events: Sequence[dict[str, Any]]) -> Chunk:
    tells_usage = dialect.api in _TELLING_USAGE and any("usage" in event for event in events)
    return Chunk(data=b"".join(map(dialect.frame, events)), events=tuple(events), tells_usage=tells_usage)


async def _closable(chunks: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
    try:
        async for chunk in chunks:
            yield chunk
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


class _InTurn:
    """Two translators in a row."""

    def __init__(self, first: Translator, second: Translator) -> None:
        self.source: Api = first.source
        self.target: Api = second.target
        self._first = first
        self._second = second

    def request(self, body: Json) -> dict[str, Any]:
        return self._second.request(self._first.request(body))

    def answer(self, answer: Json, asked: Json) -> dict[str, Any]:
        return self._first.answer(self._second.answer(answer, self._first.request(asked)), asked)

    def events(self, asked: Json) -> EventTranslator:
        return _EventsInTurn(self._first.events(asked), self._second.events(self._first.request(asked)))


class _EventsInTurn:
    def __init__(self, first: EventTranslator, second: EventTranslator) -> None:
        self._first = first
        self._second = second

    def feed(self, event: Json) -> Iterator[dict[str, Any]]:
        for between in self._second.feed(event):
            yield from self._first.feed(between)

    def end(self) -> Iterator[dict[str, Any]]:
        for between in self._second.end():
            yield from self._first.feed(between)
        yield from self._first.end()
