"""Work between requests: expired entries leave store and index."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from embeddings.protocols import SemanticCache, StoreError

SWEEP_EVERY_S = 30.0


class Housekeeping:
    """Sweeps the cache from its creation until `aclose`."""

    def __init__(
        self, cache: SemanticCache, clock: Callable[[], float], every_s: float = SWEEP_EVERY_S
    ) -> None:
        self._cache = cache
        self._clock = clock
        self._every_s = every_s
        self._log = structlog.get_logger("lockgate")
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                removed = await self._cache.sweep(self._clock())
            except StoreError as error:
                self._log.warning("sweep_failed", detail=str(error))
            else:
                if removed:
                    self._log.info("sweep", expired=removed)

    async def aclose(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
