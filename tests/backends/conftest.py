from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from backends.openai import OpenAIBackend
from tests.openai_calls import Backoff, make
from tests.upstreams import FakeUpstream


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as server:
        yield server


@pytest.fixture
def backoff() -> Backoff:
    return Backoff()


@pytest.fixture
async def backend(upstream: FakeUpstream, backoff: Backoff) -> AsyncIterator[OpenAIBackend]:
    made = make(upstream.base_url, backoff=backoff)
    yield made
    await made.aclose()
