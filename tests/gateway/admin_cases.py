"""A gateway under test whose /admin lets the test in, and what is asked of it there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.gateways import Running, running


@asynccontextmanager
async def administered(**settings: Any) -> AsyncIterator[Running]:
    async with running(**settings) as test:
        test.http.base_url = httpx.URL("http://localhost")
        yield test


async def listed(test: Running, **query: Any) -> list[dict[str, Any]]:
    answer = await test.http.get("/admin/entries", params=query)
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["entries"]
    return entries


async def invalidated(test: Running, **body: Any) -> dict[str, Any]:
    answer = await test.http.post("/admin/invalidate", json=body)
    assert answer.status_code == 200, answer.text
    done: dict[str, Any] = answer.json()
    return done


async def judged(test: Running, **body: Any) -> httpx.Response:
    return await test.http.post("/admin/feedback", json=body)


def cache_of(response: httpx.Response) -> str:
    status: str = response.headers["x-lockgate-cache"]
    return status


def ids_of(entries: Sequence[dict[str, Any]]) -> list[int]:
    return [entry["id"] for entry in entries]
