from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from backends.batched.config import BatchedConfig
from tests.backends.batched.subject import Subject, make


@pytest.fixture
async def subject() -> AsyncIterator[Subject]:
    made = make(BatchedConfig(model="fake", max_batch=2, max_queue=2))
    await made.backend.start()
    yield made
    await made.backend.aclose()
