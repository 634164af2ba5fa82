"""What the gateway benchmark's figures are held to, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Cells = list[dict[str, Any]]
_HEAD = f"  {'server':<18}{'req/s':>9}{'p50 ms':>11}{'p99 ms':>11}{'CPU us':>9}{'requests':>10}  errors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`measure` of `server` in a cell, over that of `over` where given. `at_most` or `at_least`: the wish;
    with neither, the figure is only told."""

    name: str
    measure: str
    server: str = "lockgate"
    over: str = ""
    kind: str = "json"
    connections: int = 64
    at_most: float | None = None
    at_least: float | None = None

    def value(self, cells: Cells, servers: Mapping[str, Mapping[str, Any]]) -> float | None:
        """None where a server was not measured."""

        def of(server: str) -> float | None:
            cell = {"kind": self.kind, "connections": self.connections, "server": server}
            rows = [servers.get(server, {}), *(row for row in cells if cell.items() <= row.items())]
            return next((row[self.measure] for row in rows if self.measure in row), None)

        ours, theirs = of(self.server), of(self.over) if self.over else 1.0
        return ours / theirs if ours is not None and theirs else None

    def wanted(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return f">= {self.at_least:g}" if self.at_least is not None else ""

    def met(self, value: float) -> bool | None:
        if self.at_most is not None:
            return value <= self.at_most
        return value >= self.at_least if self.at_least is not None else None


GOALS = (
    Goal(name="pass-through CPU / bare", measure="cpu_us", over="bare", at_most=1.5),
    Goal(name="pass-through CPU / bare, streams", measure="cpu_us", over="bare", kind="stream"),
    Goal(name="pass-through CPU / bare, paced streams", measure="cpu_us", over="bare", kind="paced"),
    Goal(name="streaming req/s / bare", measure="req_per_s", over="bare", kind="stream", at_least=0.7),
    Goal(name="req/s / tensorzero", measure="req_per_s", over="tensorzero", at_least=1.0),
    Goal(
        name="streaming req/s / tensorzero",
        measure="req_per_s",
        over="tensorzero",
        kind="stream",
        at_least=1.0,
    ),
    Goal(name="req/s / litellm", measure="req_per_s", over="litellm", at_least=20.0),
    Goal(name="exact hit CPU us", measure="cpu_us", server="lockgate-hit", at_most=120.0),
    Goal(
        name="exact hit CPU / vllm-router",
        measure="cpu_us",
        server="lockgate-hit",
        over="vllm-router",
        at_most=1.3,
    ),
    Goal(name="RSS / bare", measure="rss_mib", over="bare"),
)


def judged(cells: Cells, servers: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every goal whose servers were measured: name, value, wanted, met (None without a wish)."""
    values = [(goal, goal.value(cells, servers)) for goal in GOALS]
    return [
        {"name": goal.name, "value": round(value, 3), "wanted": goal.wanted(), "met": goal.met(value)}
        for goal, value in values
        if value is not None
    ]


def table(payload: Mapping[str, Any]) -> str:
    """The figures, for a person."""
    lines = []
    last = None
    for row in payload["cells"]:
        cell = (row["kind"], row["connections"])
        if cell != last:
            plural = "" if row["connections"] == 1 else "s"
            lines += ["", f"{row['kind']}, {row['connections']} connection{plural}"]
            lines += [_HEAD]
            last = cell
        errors = ", ".join(f"{count} {kind}" for kind, count in row["errors"].items()) or "0"
        lines.append(
            f"  {row['server']:<18}{_shown(row['req_per_s'], 0):>9}{_shown(row['p50_ms'], 2):>11}"
            f"{_shown(row['p99_ms'], 2):>11}{_shown(row['cpu_us'], 0):>9}{row['requests']:>10}  {errors}"
        )
    lines += ["", f"  {'server':<18}{'RSS MiB':>9}{'PSS MiB':>9}  what"]
    lines += [
        f"  {name:<18}{server['rss_mib']:>9.0f}{server['pss_mib']:>9.0f}  {server['what']}"
        for name, server in payload["servers"].items()
    ]
    lines += [f"  {name:<18}not measured: {reason}" for name, reason in payload["unavailable"].items()]
    lines += [""]
    verdicts = {True: "met", False: "missed", None: ""}
    lines += [
        f"  {goal['name']:<42}{goal['value']:>9.2f}  {goal['wanted']:<8}{verdicts[goal['met']]}".rstrip()
        for goal in payload["goals"]
    ]
    return "\n".join(lines).strip("\n")


def _shown(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
