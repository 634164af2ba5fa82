"""Prometheus metrics, by the names users see."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)

from gateway.cache_metrics import CacheMetrics
from gateway.counters import SECONDS, LoopCounter, LoopHistogram
from gateway.engine_metrics import EngineMetrics
from gateway.trace import Trace
from policies.types import Usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double every scrape

_MAX_MODEL_LABELS = 100


class Metrics:
    """One registry for one gateway."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = LoopCounter(
            "lockgate_requests_total",
            "Requests answered",
            ["route", "model", "cache", "status"],
            registry,
        )
        self.request_seconds = LoopHistogram(
            "lockgate_request_seconds",
            "From the request's last byte to the answer's last byte",
            ["cache"],
            SECONDS,
            registry,
        )
        self.stage_seconds = LoopHistogram(
            "lockgate_stage_seconds", "Time in one stage", ["stage"], SECONDS, registry
        )
        self.tokens = LoopCounter(
            "lockgate_tokens_total", "Tokens of generated answers", ["direction", "model"], registry
        )
        self.cost_usd = LoopCounter(
            "lockgate_cost_usd_total", "Cost of generated answers", ["model"], registry
        )
        self.saved_usd = LoopCounter(
            "lockgate_saved_usd_total", "Cost of the answers served from the cache", [], registry
        )
        self.saved_tokens = LoopCounter(
            "lockgate_saved_tokens_total", "Tokens of the answers served from the cache", [], registry
        )
        self.saved_usd.inc((), 0.0)
        self.saved_tokens.inc((), 0.0)
        self.cache = CacheMetrics(registry)
        self.truncated = Counter(
            "lockgate_embedder_truncated_total",
            "Questions longer than the embedder's window",
            registry=registry,
        )
        self.backend_up = Gauge(
            "lockgate_backend_up", "1 when the last health check passed", ["backend"], registry=registry
        )
        self.upstream_connections = Gauge(
            "lockgate_upstream_connections",
            "Open connections to a backend, idle ones included",
            ["backend"],
            registry=registry,
        )
        self.flights = Gauge(
            "lockgate_flights", "Upstream calls that equal requests may share now", registry=registry
        )
        self.tasks = Gauge("lockgate_tasks", "asyncio tasks, that of the scrape included", registry=registry)
        self.engine = EngineMetrics(registry)
        self._models: set[str] = set()

    def record(self, trace: Trace) -> None:
        """Count a request that has ended."""
        model = self.model_label(trace.model)
        self.requests.inc((trace.route, model, trace.cache, str(trace.status)))
        self.request_seconds.observe((trace.cache,), trace.seconds())
        for stage, seconds in trace.stages.items():
            self.stage_seconds.observe((stage,), seconds)
        if trace.saved_usd:
            self.saved_usd.inc((), trace.saved_usd)
        if trace.truncated:
            self.truncated.inc()
        if trace.shadow_entry_id is not None:
            self.cache.shadow_hits.inc()
        if trace.entry_id is not None or trace.cache == "coalesced":
            self.saved_tokens.inc((), trace.usage.prompt_tokens + trace.usage.completion_tokens)

    def record_generation(self, model: str, usage: Usage, cost_usd: float) -> None:
        """Count what a model generated: once for each upstream call, whoever waited for it."""
        model = self.model_label(model)
        self.tokens.inc(("input", model), usage.prompt_tokens)
        self.tokens.inc(("output", model), usage.completion_tokens)
        self.cost_usd.inc((model,), cost_usd)

    def model_label(self, model: str) -> str:
        """Clients may name any model: beyond a hundred, further names share one label."""
        if model in self._models or len(self._models) < _MAX_MODEL_LABELS:
            self._models.add(model)
            return model
        return "other"

    def render(self) -> bytes:
        return generate_latest(self.registry)
