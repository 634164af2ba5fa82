"""Is the gateway fit for traffic: what is ready, what is degraded, what is down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from backends.protocols import Backend, Health
from gateway.metrics import Metrics

CHECK_EVERY_S = 30.0
CHECK_TIMEOUT_S = 2.0


class HealthBoard:
    """Asks each backend at most twice a minute, and only when somebody asks us."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backends = backends
        self._metrics = metrics
        self._clock = clock
        self._known: dict[str, tuple[float, Health]] = {}

    async def backends(self) -> dict[str, Health]:
        """The health of each backend, at most half a minute old."""
        async with asyncio.TaskGroup() as group:
            checks = {
                name: group.create_task(self._check(name, backend))
                for name, backend in self._backends.items()
            }
        return {name: check.result() for name, check in checks.items()}

    async def note_loads(self) -> None:
        """Set the gauges of what each backend is at."""
        for name, backend in self._backends.items():
            load = await backend.load()
            self._metrics.upstream_connections.labels(name).set(load.connections)

    async def _check(self, name: str, backend: Backend) -> Health:
        known = self._known.get(name)
        # One that is down is asked each time: recovery must show at once.
        if known is not None and known[1].ready and self._clock() - known[0] < CHECK_EVERY_S:
            return known[1]
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                health = await backend.health()
        except TimeoutError:
            health = Health(ready=False, detail=f"no answer within {CHECK_TIMEOUT_S:g} s")
        self._known[name] = (self._clock(), health)
        self._metrics.backend_up.labels(name).set(1 if health.ready else 0)
        return health
