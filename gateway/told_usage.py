"""What an upstream has told of usage by now, from the events of its answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from backends.protocols import Chunk
from gateway.wire.dialect import Dialect, Json
from policies.types import Usage


class ToldUsage:
    """Of one answer. `dialect` is that of the events."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._in_halves = dialect.api == "messages"  # the input's at the start, the output's at the end
        self._events: list[Json] = []

    @classmethod
    def of(cls, chunks: Sequence[Chunk], dialect: Dialect) -> Self:
        """Of all that has come."""
        told = cls(dialect)
        for chunk in chunks if told._in_halves else reversed(chunks):
            told.add(chunk.events)
            if told._events and not told._in_halves:
                break
        return told

    def add(self, events: Iterable[Json]) -> None:
        """Takes in what comes next."""
        for event in events:
            if self._dialect.usage(event) is not None:
                if not self._in_halves:
                    self._events.clear()
                self._events.append(event)

    @property
    def usage(self) -> Usage | None:
        """None when nothing was told."""
        if len(self._events) < 2:
            return self._dialect.usage(self._events[0]) if self._events else None
        assembler = self._dialect.assembler()
        for event in self._events:
            assembler.add(event)
        return self._dialect.usage(assembler.answer())

    @property
    def tells_output(self) -> bool:
        """False for an Anthropic stream before its end: it begins with the input's tokens alone."""
        return bool(self._events) and self._events[-1].get("type") != "message_start"
