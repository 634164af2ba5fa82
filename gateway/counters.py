"""Prometheus counters and histograms for the path of a request: plain numbers until somebody asks.

`prometheus_client`'s own take a lock for each number, which one event loop does not need.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120,
)  # fmt: skip
"""The buckets of all histograms of times."""

Labels = tuple[str, ...]


class LoopCounter(Collector):
    """A counter for use on one event loop. `name` ends in _total."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], registry: CollectorRegistry):
        self._family = (name.removesuffix("_total"), documentation, tuple(labels))
        self._values: dict[Labels, float] = {}
        registry.register(self)

    def inc(self, labels: Labels, amount: float = 1.0) -> None:
        """`labels` are the values, in the order of the names."""
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def collect(self) -> Iterator[Metric]:
        name, documentation, labels = self._family
        family = CounterMetricFamily(name, documentation, labels=labels)
        for values, value in self._values.items():
            family.add_metric(values, value)
        yield family


class LoopHistogram(Collector):
    """A histogram for use on one event loop. `buckets` are upper bounds, without infinity."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        buckets: Sequence[float],
        registry: CollectorRegistry,
    ):
        self._family = (name, documentation, tuple(labels))
        self._bounds = [float(bound) for bound in buckets]
        self._series: dict[Labels, _Series] = {}
        registry.register(self)

    def observe(self, labels: Labels, value: float) -> None:
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = _Series(len(self._bounds) + 1)
        series.counts[bisect_left(self._bounds, value)] += 1
        series.total += value

    def collect(self) -> Iterator[Metric]:
        name, documentation, labels = self._family
        family = HistogramMetricFamily(name, documentation, labels=labels)
        ends = [*(f"{bound}" for bound in self._bounds), "+Inf"]
        for values, series in self._series.items():
            reached, buckets = 0, []
            for end, count in zip(ends, series.counts, strict=True):
                reached += count
                buckets.append((end, float(reached)))
            family.add_metric(values, buckets, series.total)
        yield family


class _Series:
    __slots__ = ("counts", "total")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.total = 0.0
