"""What happened to one request: filled along the path, read by headers, log line and metrics alike."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from gateway.attempts import Attempt
from policies.types import Api, CacheStatus, Usage

Stage = Literal["embed", "search", "verify", "queue", "upstream"]


NO_USAGE = Usage()

_NOT_VISIBLE = re.compile(r"[^ -~]")


@dataclass(slots=True, kw_only=True)
class Trace:
    """Times are seconds; `started` is on the performance counter's clock."""

    request_id: str
    tenant: str = ""
    key: str | None = None
    api: Api | Literal["raw"] = "chat"
    asked_model: str = ""
    stream: bool = False
    started: float = field(default_factory=time.perf_counter)
    ended: float = 0.0
    stages: dict[Stage, float] = field(default_factory=dict)

    cache: CacheStatus = "bypass"
    reason: str = ""
    entry_id: int | None = None
    similarity: float | None = None
    confidence: float | None = None
    age_s: float | None = None
    shadow_entry_id: int | None = None

    route: str = ""
    route_reason: str = ""
    score: float | None = None
    model: str = ""
    backend: str = ""
    attempts: Sequence[Attempt] = ()
    upstream_headers: Mapping[str, str] = field(default_factory=dict)
    limits: Sequence[tuple[bytes, bytes]] = ()

    status: int = 0
    error: str = ""
    stored: bool = False
    led: bool = False
    truncated: bool = False
    usage: Usage = NO_USAGE
    cost_usd: float = 0.0
    saved_usd: float = 0.0

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """Adds the time the block takes to stage `name`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.stages[name] = self.stages.get(name, 0.0) + time.perf_counter() - began

    def seconds(self) -> float:
        """From the request's arrival until now, or until it ended."""
        return (self.ended or time.perf_counter()) - self.started

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The response headers that tell a client what was done, and why."""
        pairs: list[tuple[str, str]] = [("x-request-id", self.request_id)]
        if self.api == "messages":
            pairs.append(("request-id", self.request_id))  # where Anthropic's clients look for it
        if self.reason:
            pairs += [
                ("x-lockgate-cache", self.cache),
                ("x-lockgate-reason", self.reason),
                ("cache-status", self._cache_status()),
            ]
        if self.entry_id is not None:
            pairs += [
                ("x-lockgate-entry", str(self.entry_id)),
                ("x-lockgate-similarity", f"{self.similarity:.4f}"),
                ("age", str(int(self.age_s or 0))),
            ]
            if self.confidence is not None:
                pairs.append(("x-lockgate-confidence", f"{self.confidence:.4f}"))
        if self.route:
            pairs += [
                ("x-lockgate-route", self.route),
                ("x-lockgate-route-reason", self.route_reason),
                ("x-lockgate-model", self.model),
                ("x-lockgate-backend", self.backend),
            ]
        if self.attempts:
            pairs.append(("x-lockgate-attempts", ", ".join(map(str, self.attempts))))
        if self.stages:
            timing = ", ".join(f"{name};dur={seconds * 1000:.2f}" for name, seconds in self.stages.items())
            pairs.append(("server-timing", timing))
        if self.upstream_headers:
            pairs += [
                (name, value)
                for name, value in self.upstream_headers.items()
                if not (self.limits and name.startswith("x-ratelimit-"))
            ]
        return [*self.limits, *((name.encode(), _header_value(value)) for name, value in pairs)]

    def _cache_status(self) -> str:
        """RFC 9211."""
        match self.cache:
            case "hit-exact" | "hit-semantic":
                return f'lockgate; hit; detail="{self.cache}"'
            case "coalesced":
                return "lockgate; fwd=uri-miss; collapsed"
            case "miss":
                return "lockgate; fwd=uri-miss" + ("; stored" if self.stored else "")
            case "bypass":
                return "lockgate; fwd=bypass"


def _header_value(text: str) -> bytes:
    """Header values are visible ASCII (RFC 9110, section 5.5); what is not is replaced."""
    return _NOT_VISIBLE.sub("?", text).encode("ascii")
