"""Reading bodies and noticing clients that leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.errors import RequestError
from gateway.http import ClientLeft, cancelled_when_client_leaves, read_body


def receiver(*messages: dict[str, Any]) -> Any:
    left = list(messages)

    async def receive() -> dict[str, Any]:
        if left:
            return left.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    return receive


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


GONE = {"type": "http.disconnect"}


async def test_a_body_comes_in_parts() -> None:
    assert await read_body(receiver(part(b"ab"), part(b"c", more=False)), declared=None, limit=10) == b"abc"


async def test_a_body_at_the_limit_is_read_and_one_beyond_is_not() -> None:
    assert await read_body(receiver(part(b"x" * 10, more=False)), declared=10, limit=10) == b"x" * 10
    with pytest.raises(RequestError) as caught:
        await read_body(receiver(part(b"x" * 6), part(b"x" * 5, more=False)), declared=None, limit=10)
    assert caught.value.status == 413


async def test_a_body_too_large_is_read_to_its_end_so_that_the_client_hears_of_it_but_not_for_ever() -> None:
    taken = 0

    async def endless() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return part(b"x" * 10)

    with pytest.raises(RequestError):
        await read_body(endless, declared=None, limit=10)
    assert 2 < taken < 20


async def test_a_client_that_leaves_while_sending() -> None:
    with pytest.raises(ClientLeft):
        await read_body(receiver(part(b"ab"), GONE), declared=None, limit=10)


async def test_work_is_cancelled_when_the_client_leaves() -> None:
    cleaned = False

    async def work() -> None:
        nonlocal cleaned
        async with cancelled_when_client_leaves(receiver(GONE)):
            try:
                await asyncio.Event().wait()
            finally:
                cleaned = True

    with pytest.raises(ClientLeft):
        await work()
    assert cleaned
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_work_that_ends_first_is_left_alone() -> None:
    async with cancelled_when_client_leaves(receiver()):
        await asyncio.sleep(0)


async def test_a_cancellation_by_others_stays_one() -> None:
    async def work() -> None:
        async with cancelled_when_client_leaves(receiver()):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
