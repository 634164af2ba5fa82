"""A fake upstream in a thread of its own: the clients block the test's thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.upstreams import FakeUpstream, Received, Reply

START_TIMEOUT_S = 10


class BackgroundUpstream:
    """`with BackgroundUpstream(answer) as upstream:` serves at `upstream.base_url` (ends in /v1)."""

    def __init__(self, answer: Callable[[Received], Reply]) -> None:
        self._answer = answer
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(START_TIMEOUT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_TIMEOUT_S)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with FakeUpstream(self._answer) as self._upstream:
            self._started.set()
            await self._stop.wait()

    @property
    def base_url(self) -> str:
        return self._upstream.base_url

    @property
    def received(self) -> list[Received]:
        return self._upstream.received

    @property
    def aborted(self) -> int:
        return self._upstream.aborted

    @property
    def last(self) -> Received:
        return self._upstream.received[-1]

    def until(self, condition: Callable[[FakeUpstream], bool], timeout_s: float) -> None:
        """Wait until the condition on the counters holds. Raises TimeoutError."""
        waiting = asyncio.run_coroutine_threadsafe(self._upstream.until(condition, timeout_s), self._loop)
        waiting.result()
