"""The bounds in time of one call upstream."""

from __future__ import annotations

import asyncio

from backends.errors import UpstreamTimeout
from backends.transport import UpstreamResponse


class Alarm:
    """One timer for a call's two bounds: cancels the task that waits for the first part, later expires the
    response. (`asyncio.timeout` and a second timer cost a tenth of a whole call.)"""

    __slots__ = ("_at", "_handle", "_loop", "_response", "_rung", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        self._loop = loop
        self._at = at
        self._task = asyncio.current_task(loop)
        self._response: UpstreamResponse | None = None
        self._rung = False
        self._handle = loop.call_at(at, self._ring)

    def watch(self, response: UpstreamResponse, deadline: float) -> None:
        """From now on the response is expired, at `deadline`."""
        self._response = response
        if deadline != self._at:
            self._handle.cancel()
            self._handle = self._loop.call_at(deadline, self._ring)

    def raise_if_rung(self, name: str) -> None:
        """For use where the task was cancelled: UpstreamTimeout when that was the alarm alone."""
        if self._rung and self._task is not None and self._task.uncancel() <= 0:
            raise UpstreamTimeout(f"{name} did not answer in time") from None

    def stop(self) -> None:
        self._handle.cancel()

    def _ring(self) -> None:
        self._rung = True
        if self._response is not None:
            self._response.expire()
        elif self._task is not None:
            self._task.cancel()
