"""One upstream call, many who follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from backends.errors import UpstreamCut
from backends.protocols import Chunk
from gateway.single_flight import Flight, Outcome, SingleFlight, Solo
from policies.types import Usage
from tests.gateways import chunk


class FakeSource:
    """Gives numbered chunks when `go` is set; counts how it ended."""

    stream = True

    def __init__(self, count: int = 3, error: Exception | None = None) -> None:
        self.count = count
        self.error = error
        self.go = asyncio.Event()
        self.closed = asyncio.Event()
        self.settled: list[int] = []
        self.abandoned: list[int] = []

    async def chunks(self) -> AsyncGenerator[Chunk]:
        try:
            for number in range(self.count):
                await self.go.wait()
                yield chunk({"n": number})
            if self.error is not None:
                raise self.error
        finally:
            self.closed.set()

    async def settle(self, chunks: Sequence[Chunk]) -> None:
        await asyncio.sleep(0)
        self.settled.append(len(chunks))

    def abandon(self, chunks: Sequence[Chunk]) -> None:
        self.abandoned.append(len(chunks))

    def outcome(self, chunks: Sequence[Chunk]) -> Outcome:
        return Outcome(usage=Usage(), cost_usd=0.0, model="m")


async def followed(flight: Flight | Solo) -> list[int]:
    return [piece.events[0]["n"] async for piece in flight.follow()]


async def follow_into(seen: list[int], flight: Flight) -> None:
    async for piece in flight.follow():
        seen.append(piece.events[0]["n"])  # noqa: PERF401 - what came before an error counts


async def test_all_get_every_chunk_whenever_they_join() -> None:
    source = FakeSource()
    flight = Flight(source)
    early = asyncio.ensure_future(followed(flight))
    await asyncio.sleep(0)
    source.go.set()
    late = asyncio.ensure_future(followed(flight))
    assert await early == await late == [0, 1, 2]
    assert source.settled == [3]
    assert await followed(flight) == [0, 1, 2], "even after the end"


async def test_the_end_is_seen_only_after_settling() -> None:
    source = FakeSource()
    source.go.set()
    flight = Flight(source)
    await followed(flight)
    assert source.settled == [3]


async def test_an_error_reaches_all_after_the_chunks_before_it_and_nothing_is_settled() -> None:
    source = FakeSource(error=UpstreamCut("broke off"))
    flight = Flight(source)
    source.go.set()
    for _ in range(2):
        seen: list[int] = []
        with pytest.raises(UpstreamCut):
            await follow_into(seen, flight)
        assert seen == [0, 1, 2]
    assert (source.settled, source.abandoned) == ([], [3])


async def test_the_leaving_of_one_does_not_cancel_and_the_leaving_of_the_last_does() -> None:
    source = FakeSource()
    flight = Flight(source)
    first = asyncio.ensure_future(followed(flight))
    second = asyncio.ensure_future(followed(flight))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    assert not source.closed.is_set()
    second.cancel()
    await asyncio.wait_for(source.closed.wait(), 1)
    assert not flight.joinable
    assert source.settled == []


async def test_flights_are_found_while_they_can_be_joined() -> None:
    source, flights = FakeSource(), SingleFlight()
    flight = Flight(source)
    flights.register(b"k", flight)
    follower = asyncio.ensure_future(followed(flight))
    await asyncio.sleep(0)
    assert flights.find(b"k") is flight
    assert flights.find(b"other") is None
    follower.cancel()
    await asyncio.sleep(0.01)
    assert flights.find(b"k") is None
    assert len(flights) == 0


async def test_a_flight_nobody_finishes_following_leaves_no_entry() -> None:
    flights = SingleFlight()
    for number in range(100):
        source = FakeSource()
        source.go.set()
        flight = Flight(source)
        flights.register(b"%d" % number, flight)
        await followed(flight)
    await asyncio.sleep(0)
    assert len(flights) == 0


async def test_one_client_alone_gets_the_chunks_and_the_end_after_settling() -> None:
    source = FakeSource()
    source.go.set()
    assert await followed(Solo(source)) == [0, 1, 2]
    assert (source.settled, source.abandoned) == ([3], [])


async def test_one_client_alone_that_leaves_abandons_what_had_come() -> None:
    source = FakeSource()
    source.go.set()
    following = Solo(source).follow()
    await anext(following)
    await following.aclose()
    assert source.closed.is_set()
    assert (source.settled, source.abandoned) == ([], [1])
