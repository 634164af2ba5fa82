"""Work between requests: expired entries leave store and index, and a large index is saved now and then."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import structlog

from embeddings.protocols import SemanticCache, StoreError

SWEEP_EVERY_S = 30.0
SAVE_EVERY_S = 600.0


class Housekeeping:
    """Keeps the cache from its creation until `aclose`. `clock` gives Unix seconds."""

    def __init__(
        self,
        cache: SemanticCache,
        clock: Callable[[], float],
        *,
        sweep_every_s: float = SWEEP_EVERY_S,
        save_every_s: float = SAVE_EVERY_S,
    ) -> None:
        self._cache = cache
        self._clock = clock
        self._sweep_every_s = sweep_every_s
        self._save_every_s = save_every_s
        self._log = structlog.get_logger("lockgate")
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        saved = time.monotonic()
        while True:
            await asyncio.sleep(self._sweep_every_s)
            try:
                if removed := await self._cache.sweep(self._clock()):
                    self._log.info("sweep", expired=removed)
                if time.monotonic() - saved >= self._save_every_s:
                    saved = time.monotonic()
                    if await self._cache.save_index():
                        self._log.info("index_saved", seconds=round(time.monotonic() - saved, 1))
            except StoreError as error:
                self._log.warning("housekeeping_failed", detail=str(error))

    async def aclose(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
