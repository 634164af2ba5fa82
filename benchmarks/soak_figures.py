"""What a soak's figures are held to, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

Figures = dict[str, Any]

MEMORY_RATIO = 1.02
SOME = 4
"""Files and connections that medians of a third may differ by: clients come and go while they are counted."""


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
    most_entries = _most(figures["samples"], "entries")
    goals = [
        _goal("RSS, last / middle third", _ratio(last["rss_mib"], middle["rss_mib"]), MEMORY_RATIO),
        _goal("open files, last - middle third", _difference(last["fds"], middle["fds"]), SOME),
        _goal(
            "upstream connections, last - middle third",
            _difference(last["upstream_connections"], middle["upstream_connections"]),
            SOME,
        ),
        _goal("tasks, last - middle third", _difference(last["tasks"], middle["tasks"]), SOME),
        _goal("s until the upstream was idle", figures["upstream_idle_s"], 1.0),
        # The pool keeps connections for a while; everything else must be gone.
        _goal("open files left, without the pool", _difference(_own(after), _own(before)), 0),
        _goal("tasks left", _difference(after["tasks"], before["tasks"]), 0),
        _goal("flights left", after["flights"], 0),
        _goal("cache entries, most", most_entries, figures["max_entries"]),
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
        "",
        " " * 26 + "".join(f"{label:>14}" for label, _ in rows),
    ]
    lines += [
        f"  {name:<24}" + "".join(f"{_shown(figures[name]):>14}" for _, figures in rows) for name in names
    ]
    lines.append("")
    lines += [
        f"  {goal['name']:<42}{goal['value']:>9g}  {goal['wanted']:<9}{'met' if goal['met'] else 'missed'}"
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


def _ratio(one: float | None, other: float | None) -> float | None:
    return round(one / other, 4) if one is not None and other else None


def _difference(one: float | None, other: float | None) -> float | None:
    return round(one - other, 2) if one is not None and other is not None else None


def _counts(counts: Mapping[str, float], between: str = ", ") -> str:
    return between.join(f"{count:,g} {name}" for name, count in counts.items()) or "none"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,g}"
