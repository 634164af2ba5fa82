"""One server in one cell of the gateway benchmark: asked, checked and measured, round by round."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks import load, upstream
from benchmarks.peers import Unavailable
from benchmarks.processes import cpu_between_us, cpu_ns
from benchmarks.servers import Server

SETTLE_S = 0.1
_QUESTION = "Explain the trade-offs of caching answers of a language model. " * 13


@dataclass(slots=True, kw_only=True)
class Contest:
    """One server in one cell: what is sent, what must come, and what came in each round."""

    server: Server
    request: bytes
    expected: load.Expected
    requests: int
    errors: Counter[str] = field(default_factory=Counter)
    req_per_s: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def figures(self, kind: str, connections: int) -> dict[str, Any]:
        """Medians over the rounds; None where no answer was good."""

        def over_rounds(values: list[float]) -> float | None:
            return round(median(values), 3) if values else None

        return {
            "kind": kind,
            "connections": connections,
            "server": self.server.name,
            "requests": self.requests * len(self.cpu_us),
            "errors": dict(self.errors),
            "req_per_s": over_rounds(self.req_per_s),
            "p50_ms": over_rounds(self.p50_ms),
            "p99_ms": over_rounds(self.p99_ms),
            "cpu_us": over_rounds(self.cpu_us),
        }


def body(kind: str, model: str) -> dict[str, Any]:
    """A request of about 1 KB. The tag makes every kind a question of its own, and tells the upstream to
    pace."""
    tag = upstream.PACED if kind == "paced" else f"[{kind}]"
    fields: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": f"{tag} {_QUESTION}"},
        ],
        "temperature": 0,
        "max_tokens": 256,
    }
    if kind != "json":
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    return fields


def content(kind: str, answer: bytes) -> str:
    """The text of a whole answer. Raises ValueError, KeyError or IndexError for what is no answer."""
    if kind == "json":
        text: str = json.loads(answer)["choices"][0]["message"]["content"]
        return text
    events = [line.removeprefix(b"data:") for line in answer.split(b"\n") if line.startswith(b"data:")]
    if not events or events.pop().strip() != b"[DONE]":
        raise ValueError("a stream without its [DONE]")
    chunks = [json.loads(event) for event in events]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


async def asked(base: str) -> int:
    """How often the upstream has been asked for a completion."""
    outcome = await load.run(base, load.get(f"{base}/count"), connections=1, requests=1)
    if outcome.last is None:
        raise RuntimeError("the benchmark's upstream is gone")
    return int(outcome.last.body)


async def prepare(server: Server, kind: str, connections: int, key: str, round_s: float) -> Contest:
    """Warms a server up in one kind, checks what it answers, and finds how many requests fill a round. Raises
    Unavailable."""
    headers = {"authorization": f"Bearer {key}", **server.headers}
    request = load.post(server.url, body(kind, server.model), headers)
    for _ in range(2):  # the first one of a question is no hit
        outcome = await load.run(server.url, request, connections=1, requests=1, timeout_s=30)
    last = outcome.last
    if last is None or last.status != 200:
        got = f"status {last.status}: {last.body[:200]!r}" if last else ", ".join(outcome.errors)
        raise Unavailable(f"{kind} requests: {got}")
    try:
        text = content(kind, last.body)
    except (ValueError, LookupError, TypeError) as error:
        raise Unavailable(f"{kind} requests: an answer in another form ({error!r})") from None
    if text != (upstream.CONTENT if kind == "json" else upstream.STREAMED):
        raise Unavailable(f"{kind} requests: another text than the upstream's")
    expected = load.Expected(body_bytes=len(last.body), body_end=last.body[-8:])
    contest = Contest(server=server, request=request, expected=expected, requests=0)
    least = max(20, connections)
    contest.requests = least
    for share in (0.5, 1.0):  # the first requests are slow: they only say how many make a fair second try
        warm = await load.run(server.url, request, connections=connections, requests=contest.requests)
        contest.requests = max(least, int(contest.requests / warm.elapsed_s * round_s * share))
        if contest.requests == least:
            break
    return contest


async def play(contest: Contest, connections: int, base: str) -> None:
    """One round of one server."""
    server = contest.server
    asked_before, before = await asked(base), cpu_ns(server.pid)
    outcome = await load.run(
        server.url,
        contest.request,
        connections=connections,
        requests=contest.requests,
        expected=contest.expected,
    )
    await asyncio.sleep(
        SETTLE_S
    )  # what a server does after the last answer is its own cost, and no neighbour's
    spent_us = cpu_between_us(before, cpu_ns(server.pid))
    contest.errors += outcome.errors
    wrong = await asked(base) - asked_before - (0 if server.hits else contest.requests)
    if wrong:
        contest.errors["calls upstream too many" if wrong > 0 else "calls upstream too few"] += abs(wrong)
    contest.cpu_us.append(spent_us / contest.requests)
    latencies_ms = sorted(latency * 1e3 for latency in outcome.latencies_s)
    if latencies_ms:
        contest.req_per_s.append(len(latencies_ms) / outcome.elapsed_s)
        contest.p50_ms.append(quantile(latencies_ms, 0.5))
        contest.p99_ms.append(quantile(latencies_ms, 0.99))


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
