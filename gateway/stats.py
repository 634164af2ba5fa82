"""The figures behind `/admin/stats` and `lockgate stats`, read from the metrics so that all agree."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gateway.metrics import Metrics

HITS = ("hit-exact", "hit-semantic")


def figures(metrics: Metrics, *, entries: int, degraded: dict[str, str], uptime_s: float) -> dict[str, Any]:
    """Counts since the start. `hit_ratio` is hits over the requests that a cache could have answered."""
    by_cache: dict[str, float] = defaultdict(float)
    by_route: dict[str, float] = defaultdict(float)
    by_status: dict[str, float] = defaultdict(float)
    for labels, value in _samples(metrics.requests):
        by_status[labels["status"]] += value
        if labels["status"] == "200":
            by_cache[labels["cache"]] += value
            if labels["route"]:
                by_route[labels["route"]] += value
    answered = sum(by_cache.values())
    cacheable = answered - by_cache["bypass"]
    tokens: dict[str, dict[str, int]] = defaultdict(dict)
    for labels, value in _samples(metrics.tokens):
        tokens[labels["model"]][labels["direction"]] = int(value)
    return {
        "uptime_s": round(uptime_s, 1),
        "requests": int(sum(by_status.values())),
        "by_status": _whole(by_status),
        "by_cache": _whole(by_cache),
        "by_route": _whole(by_route),
        "hit_ratio": round(sum(by_cache[kind] for kind in HITS) / cacheable, 4) if cacheable else 0.0,
        "entries": entries,
        "tokens": dict(tokens),
        "saved_tokens": int(_total(metrics.saved_tokens)),
        "cost_usd": round(_total(metrics.cost_usd), 6),
        "saved_usd": round(_total(metrics.saved_usd), 6),
        "faults": {labels["part"]: int(value) for labels, value in _samples(metrics.faults)},
        "degraded": degraded,
    }


def _samples(counter: Any) -> list[tuple[dict[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for family in counter.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    ]


def _total(counter: Any) -> float:
    return sum(value for _, value in _samples(counter))


def _whole(counts: dict[str, float]) -> dict[str, int]:
    return {name: int(value) for name, value in sorted(counts.items()) if value}
