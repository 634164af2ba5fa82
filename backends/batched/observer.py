"""What the built-in backend tells whoever keeps its figures."""

from __future__ import annotations

from typing import Protocol

from backends.protocols import Load


class BatchObserver(Protocol):
    """Called on the event loop; must return at once."""

    def job_started(self, *, wait_s: float, batch_size: int) -> None:
        """A job entered the engine after waiting `wait_s`; `batch_size` jobs are inside now, it included."""
        ...

    def load_changed(self, load: Load) -> None:
        """The load as of now: on each heartbeat."""
        ...

    def worker_restarted(self, reason: str) -> None:
        """The worker process was lost for `reason` and another one is ready."""
        ...


class NoObserver:
    """Keeps nothing."""

    def job_started(self, *, wait_s: float, batch_size: int) -> None:
        pass

    def load_changed(self, load: Load) -> None:
        pass

    def worker_restarted(self, reason: str) -> None:
        pass
