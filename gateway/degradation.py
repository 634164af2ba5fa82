"""Parts that failed lately while requests went on without them."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from gateway.metrics import Metrics

RECENT_S = 60.0


class Degradation:
    """Counts faults of the cache's parts; a part counts as degraded for a minute after its last fault."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._faults: dict[str, tuple[float, str]] = {}
        self._log = structlog.get_logger("lockgate")

    def note(self, part: str, detail: str) -> None:
        """`part`: embedder, index, verifier, store, ledger. Logged once a minute for each part, counted every
        time."""
        self._metrics.cache.faults.labels(part).inc()
        if part not in self.current():
            self._log.warning("degraded", part=part, detail=detail)
        self._faults[part] = (self._clock(), detail)

    def current(self) -> dict[str, str]:
        """What is degraded now, with the last detail."""
        now = self._clock()
        return {part: detail for part, (at, detail) in self._faults.items() if now - at < RECENT_S}
