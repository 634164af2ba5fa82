"""Counters and histograms as Prometheus reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from gateway.counters import LoopCounter, LoopHistogram


def test_a_counter_adds_up_by_its_labels() -> None:
    registry = CollectorRegistry()
    counter = LoopCounter("hits_total", "Hits", ["kind"], registry)
    counter.inc(("a",))
    counter.inc(("a",), 2.5)
    counter.inc(('b"\n',))
    text = generate_latest(registry).decode()
    assert "# TYPE hits_total counter" in text
    assert 'hits_total{kind="a"} 3.5' in text
    assert 'hits_total{kind="b\\"\\n"} 1.0' in text


def test_a_histogram_counts_up_to_each_bound_inclusive() -> None:
    registry = CollectorRegistry()
    histogram = LoopHistogram("wait_seconds", "Wait", ["stage"], (0.5, 1), registry)
    for value in (0.25, 0.5, 0.75, 4.0):
        histogram.observe(("embed",), value)
    text = generate_latest(registry).decode()
    for said in (
        'wait_seconds_bucket{le="0.5",stage="embed"} 2.0',
        'wait_seconds_bucket{le="1.0",stage="embed"} 3.0',
        'wait_seconds_bucket{le="+Inf",stage="embed"} 4.0',
        'wait_seconds_count{stage="embed"} 4.0',
        'wait_seconds_sum{stage="embed"} 5.5',
    ):
        assert said in text
