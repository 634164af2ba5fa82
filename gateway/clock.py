"""The time of day for lifetimes: it runs evenly, whatever is done to the machine's clock meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

_ELAPSED_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def _elapsed() -> float:
    """Seconds since some moment, those included in which the machine was suspended, where it tells."""
    return time.monotonic() if _ELAPSED_CLOCK is None else time.clock_gettime(_ELAPSED_CLOCK)


class SteadyClock:
    """Unix seconds as they were at the start, plus the seconds since. Setting the machine's clock moves
    neither ages nor expiries until the next start; then stores go by the new time, and do not serve what
    claims to come from the future."""

    def __init__(
        self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = _elapsed
    ) -> None:
        self._elapsed = elapsed
        self._offset = wall() - elapsed()

    def __call__(self) -> float:
        return self._offset + self._elapsed()
