from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from backends.openai import OpenAIBackend
from tests.openai_calls import make
from tests.upstreams import FakeUpstream


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as server:
        yield server


@pytest.fixture
async def backend(upstream: FakeUpstream) -> AsyncIterator[OpenAIBackend]:
    made = make(upstream.base_url)
    yield made
    await made.aclose()
