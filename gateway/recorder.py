"""The end of every request: counted, and told in one structured log line."""

from __future__ import annotations

from typing import Any

import structlog

from gateway.ledger import Ledger, RequestPosting
from gateway.metrics import Metrics
from gateway.trace import Trace

SERVED = ("hit-exact", "hit-semantic", "coalesced")


class Recorder:
    """Writes prompts and answers nowhere; a tenant appears as its hash."""

    def __init__(self, metrics: Metrics, ledger: Ledger) -> None:
        self._metrics = metrics
        self._ledger = ledger
        self._log = structlog.get_logger("lockgate")

    def record(self, trace: Trace) -> None:
        self._metrics.record(trace)
        served = trace.cache in SERVED
        self._ledger.request(
            RequestPosting(
                tenant=trace.tenant,
                key=trace.key or "",
                route=trace.route or ("cache" if served else ""),
                model=trace.model or trace.answer_model,
                api=trace.api,
                cache=trace.cache if trace.reason else "",
                status=trace.status,
                broken=trace.error != "",
                without_usd=trace.reference.cost_usd(trace.usage),
                saved_tokens=trace.usage.prompt_tokens + trace.usage.completion_tokens if served else 0,
                embed_s=trace.stages.get("embed", 0.0),
                verify_s=trace.stages.get("verify", 0.0),
            )
        )
        fields: dict[str, Any] = {
            "request_id": trace.request_id,
            "tenant": trace.tenant,
            "key": trace.key,
            "api": trace.api,
            "status": trace.status,
            "cache": trace.cache if trace.reason else "",
            "reason": trace.reason,
            "entry": trace.entry_id,
            "similarity": _rounded(trace.similarity, 4),
            "asked_model": trace.asked_model,
            "route": trace.route,
            "route_reason": trace.route_reason,
            "score": _rounded(trace.score, 4),
            "model": trace.model,
            "backend": trace.backend,
            "stream": trace.stream,
            "stored": trace.stored,
            "truncated": trace.truncated,
            "prompt_tokens": trace.usage.prompt_tokens,
            "completion_tokens": trace.usage.completion_tokens,
            "cost_usd": trace.cost_usd,
            "saved_usd": trace.saved_usd,
            "ms": _rounded(trace.seconds() * 1000, 2),
            "stages_ms": {name: _rounded(seconds * 1000, 2) for name, seconds in trace.stages.items()},
            "attempts": [
                f"{attempt} {attempt.model} {attempt.seconds * 1000:.0f} ms" for attempt in trace.attempts
            ],
            "error": trace.error,
        }
        kept = {
            name: value for name, value in fields.items() if value not in (None, "", False, {}, [], 0, 0.0)
        }
        self._log.info("request", **kept)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
