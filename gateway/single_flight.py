"""One upstream call for each question being asked right now; all who ask it follow the same answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from backends.errors import BackendError
from backends.protocols import Chunk
from policies.types import Usage


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer has taken by now, and the entry it is kept as, if it is."""

    usage: Usage
    cost_usd: float
    model: str
    entry_id: int | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a flight answers, as similarity sees it. `vector` is float32 (D,) of unit norm."""

    partition: Hashable
    text: str
    vector: Any


class Source(Protocol):
    """An answer being generated, and what is to be done when it has ended."""

    @property
    def stream(self) -> bool:
        """Whether it comes as events."""
        ...

    def chunks(self) -> AsyncGenerator[Chunk]: ...

    async def settle(self, chunks: Sequence[Chunk]) -> None:
        """After a clean end and before anyone sees it: what is stored is kept by the time a client has its
        answer."""
        ...

    def abandon(self, chunks: Sequence[Chunk]) -> None:
        """After any other end; `chunks` is what had come."""
        ...

    def outcome(self, chunks: Sequence[Chunk]) -> Outcome:
        """By now, `chunks` being what has come."""
        ...


class Solo:
    """An answer that one client alone gets: generated in the task that asks for it."""

    def __init__(self, source: Source) -> None:
        self.stream = source.stream
        self._source = source
        self._chunks: list[Chunk] = []

    def outcome(self) -> Outcome:
        """By now."""
        return self._source.outcome(self._chunks)

    async def follow(self) -> AsyncGenerator[Chunk]:
        """Its chunks, once. Raises what ended it, if it did not end cleanly."""
        clean = False
        chunks = self._source.chunks()
        try:
            async for chunk in chunks:
                self._chunks.append(chunk)
                yield chunk
            clean = True
            await self._source.settle(self._chunks)
        finally:
            await chunks.aclose()
            if not clean:
                self._source.abandon(self._chunks)

    async def whole(self) -> list[Chunk]:
        """All its chunks, after settling."""
        clean = False
        chunks = self._source.chunks()
        try:
            async for chunk in chunks:
                self._chunks.append(chunk)
            clean = True
            await self._source.settle(self._chunks)
        finally:
            if not clean:
                await chunks.aclose()
                self._source.abandon(self._chunks)
        return self._chunks


class Flight:
    """An upstream call in progress. Followers get its chunks from the start, as they come.

    It belongs to no single client: it goes on while anybody follows and is cancelled when the last one
    leaves.
    """

    def __init__(self, source: Source) -> None:
        self.stream = source.stream
        self._source = source
        self._chunks: list[Chunk] = []
        self._news = asyncio.Event()
        self._error: BaseException | None = None
        self._finished = False
        self._followers = 0
        self._leaving = False
        self._task: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._run())

    def outcome(self) -> Outcome:
        """By now."""
        return self._source.outcome(self._chunks)

    @property
    def followers(self) -> int:
        """How many follow it now."""
        return self._followers

    @property
    def joinable(self) -> bool:
        """False once it has finished or nobody is left to follow it."""
        return not (self._finished or self._leaving)

    async def _run(self) -> None:
        clean = False
        chunks = self._source.chunks()
        try:
            async for chunk in chunks:
                self._chunks.append(chunk)
                self._wake()
            clean = True
            await self._source.settle(self._chunks)
        except asyncio.CancelledError:
            self._error = FlightCancelledError("the flight was cancelled")
            raise
        except BackendError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - handed to every follower, who raises it
            self._error = error
        finally:
            self._finished = True
            await chunks.aclose()
            if not clean:
                self._source.abandon(self._chunks)
            self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def follow(self) -> AsyncGenerator[Chunk]:
        """Chunks from the first on. Raises what ended the flight, if it did not end cleanly."""
        self._followers += 1
        try:
            at = 0
            while True:
                while at < len(self._chunks):
                    yield self._chunks[at]
                    at += 1
                if self._finished:
                    break
                await self._news.wait()
            if self._error is not None:
                raise self._error
        finally:
            self._followers -= 1
            if self._followers == 0 and not self._finished:
                self._leaving = True
                self._task.cancel()

    async def whole(self) -> list[Chunk]:
        """All its chunks, once it has ended cleanly."""
        async with aclosing(self.follow()) as following:
            async for _ in following:
                pass
        return self._chunks

    def on_end(self, callback: Callable[[], None]) -> None:
        self._task.add_done_callback(lambda _: callback())

    async def wait(self) -> None:
        """Until it has ended, however it did."""
        await asyncio.wait([self._task])


class FlightCancelledError(Exception):
    """The flight was cancelled from outside, as at shutdown."""


class SingleFlight:
    """The flights in the air, by exact key, and by the partition of their question."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, Flight] = {}
        self._by_partition: dict[Hashable, dict[Flight, Question]] = {}

    def find(self, key: Hashable) -> Flight | None:
        flight = self._flights.get(key)
        return flight if flight is not None and flight.joinable else None

    def near(self, partition: Hashable, vector: Any) -> list[tuple[Flight, Question, float]]:
        """The flights of this partition whose question can be compared, the most similar first, each with its
        cosine to `vector`, float32 (D,) of unit norm."""
        found = [
            (flight, question, float(question.vector @ vector))
            for flight, question in self._by_partition.get(partition, {}).items()
            if flight.joinable
        ]
        return sorted(found, key=lambda one: -one[2])

    def register(self, key: Hashable, flight: Flight, question: Question | None = None) -> None:
        """From now on `find(key)` gives this flight, and `near` does if there is a question, until it has
        finished."""
        self._flights[key] = flight
        if question is not None:
            self._by_partition.setdefault(question.partition, {})[flight] = question

        def forget() -> None:
            if self._flights.get(key) is flight:
                del self._flights[key]
            if question is not None:
                others = self._by_partition[question.partition]
                del others[flight]
                if not others:
                    del self._by_partition[question.partition]

        flight.on_end(forget)

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def followers(self) -> int:
        """How many follow a flight now, all flights together."""
        return sum(flight.followers for flight in self._flights.values())
