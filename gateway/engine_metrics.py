"""What the built-in engine's batches are like, by the names users see."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from backends.protocols import Load
from gateway.counters import SECONDS

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class EngineMetrics:
    """The observer of the built-in engine's batches."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.batch_size = Histogram(
            "lockgate_batch_size", "Jobs in the built-in engine", buckets=_BATCHES, registry=registry
        )
        self.batch_wait_seconds = Histogram(
            "lockgate_batch_wait_seconds",
            "Wait for a place in the batch",
            buckets=SECONDS,
            registry=registry,
        )
        self.kv_cache_usage = Gauge(
            "lockgate_kv_cache_usage_ratio", "Used share of the built-in engine's KV cache", registry=registry
        )
        self.engine_restarts = Counter(
            "lockgate_engine_restarts_total", "Restarts of the built-in engine's process", registry=registry
        )

    def job_started(self, *, wait_s: float, batch_size: int) -> None:
        self.batch_wait_seconds.observe(wait_s)
        self.batch_size.observe(batch_size)

    def load_changed(self, load: Load) -> None:
        if load.kv_usage is not None:
            self.kv_cache_usage.set(load.kv_usage)

    def worker_restarted(self, reason: str) -> None:
        self.engine_restarts.inc()
