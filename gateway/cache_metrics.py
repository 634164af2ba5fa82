"""The cache's metrics: what it holds, what was said of its answers, and what failed in it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from embeddings.protocols import StoreSize


class CacheMetrics:
    """Beside the requests by cache status, which are the gateway's to count."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._entries = Gauge("lockgate_cache_entries", "Entries in the answer store", registry=registry)
        self._bytes = Gauge(
            "lockgate_cache_bytes", "Bytes that the entries take in the answer store", registry=registry
        )
        self.shadow_hits = Counter(
            "lockgate_cache_shadow_hits_total", "Hits that shadow mode did not serve", registry=registry
        )
        self._verified = Counter(
            "lockgate_cache_verified_total",
            "Cached answers that were judged right or wrong",
            registry=registry,
        )
        self._wrong = Counter(
            "lockgate_cache_wrong_total", "Cached answers that were judged wrong", registry=registry
        )
        self._outcomes = Counter(
            "lockgate_cache_outcomes_total",
            "Answers compared with what the cache had, and what came of it",
            ["source", "right"],
            registry=registry,
        )
        self.drift = Gauge(
            "lockgate_cache_calibration_drift",
            "1 while outcomes contradict the calibration of the cache policy, and risks are raised",
            registry=registry,
        )
        self.faults = Counter(
            "lockgate_cache_faults_total",
            "Requests that a part of the cache failed",
            ["part"],
            registry=registry,
        )

    def show(self, size: StoreSize) -> None:
        """What the store holds now."""
        self._entries.set(size.entries)
        self._bytes.set(size.stored_bytes)

    def learnt(self, source: str, right: bool) -> None:
        """Count an outcome that the policy has learnt from."""
        self._outcomes.labels(source, "true" if right else "false").inc()

    def judged(self, right: bool) -> None:
        """Count a judgement of an answer from the cache."""
        self._verified.inc()
        if not right:
            self._wrong.inc()
