"""What a soak's figures are held to, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

Figures = dict[str, Any]

MEMORY_RATIO = 1.02
SOME = 8
"""Connections that are being closed while others come in their place."""
TASKS_A_CLIENT = 4


def medians(samples: Sequence[Mapping[str, Any]]) -> list[Figures]:
    """Of the samples' figures over the first, the middle and the last third; None where there are none."""
    size = len(samples) / 3
    thirds = [samples[round(number * size) : round((number + 1) * size)] for number in range(3)]
    names = [name for name in samples[0] if name != "at_s"]
    return [{name: _median([sample[name] for sample in third]) for name in names} for third in thirds]


def judged(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every goal of which there are figures: name, value, wanted, met."""
    _, middle, last = figures["thirds"]
    before, after = figures["rest"]["before"], figures["rest"]["after"]
    samples, connections = figures["samples"], figures["connections"]
    goals = [
        _goal("RSS, last / middle third", round(last["rss_mib"] / middle["rss_mib"], 4), MEMORY_RATIO),
        _goal(
            "open files above rest, most, without the pool",
            max(map(_own, samples)) - _own(before),
            connections + SOME,
        ),
        _goal("upstream connections, most", _most(samples, "upstream_connections"), connections + SOME),
        _goal("tasks, most", _most(samples, "tasks"), connections * TASKS_A_CLIENT),
        _goal("s until the upstream was idle", figures["upstream_idle_s"], 1.0),
        _goal("open files left, without the pool", _own(after) - _own(before), 0),
        _goal("upstream connections left in the pool", figures["pool_left"], 0),
        _goal("tasks left", _more(after["tasks"], before["tasks"]), 0),
        _goal("flights left", after["flights"], 0),
        _goal("cache entries, most", _most(samples, "entries"), figures["max_entries"]),
        _goal("wrong answers", sum(figures["clients"]["faults"].values()), 0),
    ]
    return [goal for goal in goals if goal["value"] is not None]


def at_rest(after: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether a gateway that all clients have left is as it was before they came."""
    return _own(after) <= _own(before) and (after["tasks"] or 0) <= (before["tasks"] or 0)


def table(payload: Mapping[str, Any]) -> str:
    """The figures, for a person."""
    clients = payload["clients"]
    names = list(payload["thirds"][0])
    rows = [
        *((f"third {number}", third) for number, third in enumerate(payload["thirds"], 1)),
        *((f"rest, {when}", figures) for when, figures in payload["rest"].items()),
    ]
    lines = [
        f"{clients['requests']:,} requests in {payload['seconds']:g} s, {payload['connections']} connections",
        *(f"  {what}: {_counts(clients[what])}" for what in ("answered", "cache", "left", "faults")),
        f"  upstream: {_counts(payload['upstream'])}",
        "",
        " " * 26 + "".join(f"{label:>14}" for label, _ in rows),
    ]
    lines += [
        f"  {name:<24}" + "".join(f"{_shown(figures[name]):>14}" for _, figures in rows) for name in names
    ]
    lines.append("")
    lines += [
        f"  {goal['name']:<48}{goal['value']:>9g}  {goal['wanted']:<9}{'met' if goal['met'] else 'missed'}"
        for goal in payload["goals"]
    ]
    for when, census in (payload["census"] or {}).items():
        lines += ["", f"grown {when.replace('_', ' ')}"]
        for name, grown in census.items():
            shown = _counts(grown, "\n    ") if isinstance(grown, dict) else f"{grown:g}"
            lines.append(f"  {name}: {shown}")
    return "\n".join(lines)


def _goal(name: str, value: float | None, at_most: float) -> dict[str, Any]:
    met = None if value is None else value <= at_most
    return {"name": name, "value": value, "wanted": f"<= {at_most:g}", "met": met}


def _own(figures: Mapping[str, Any]) -> int:
    """Open files that are not connections of the pool."""
    own: int = figures["fds"] - figures["upstream_connections"]
    return own


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 2) if known else None


def _most(samples: Sequence[Mapping[str, Any]], name: str) -> float | None:
    return max((sample[name] for sample in samples if sample[name] is not None), default=None)


def _more(one: float | None, other: float | None) -> float | None:
    return one - other if one is not None and other is not None else None


def _counts(counts: Mapping[str, float], between: str = ", ") -> str:
    return between.join(f"{count:,g} {name}" for name, count in counts.items()) or "none"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,g}"
