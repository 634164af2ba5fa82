"""What happened to one request: filled along the path, read by headers, log line and metrics alike."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

import msgspec

from gateway.attempts import Attempt
from gateway.prices import UNKNOWN, Price
from policies.types import Api, CacheStatus, Usage

Stage = Literal["embed", "search", "verify", "queue", "upstream"]


NO_USAGE = Usage()
NO_HEADERS: Mapping[str, str] = MappingProxyType({})

_NOT_VISIBLE = re.compile(r"[^ -~]")


class Trace(msgspec.Struct, kw_only=True):
    """Times are seconds; `started` is on the performance counter's clock. `answer_model` is whose answer was
    served where none was generated; `stored_entry_id` what the answer is kept as. `client_refused`: there was
    an answer, but the client's `Cache-Control` ruled it out. `reference` is what a token would have cost
    without Lockgate: at the large model of the route, and with no cache. `probability` is the verifier's."""

    request_id: str
    tenant: str = ""
    key: str | None = None
    api: Api | Literal["raw"] = "chat"
    asked_model: str = ""
    stream: bool = False
    started: float = msgspec.field(default_factory=time.perf_counter)
    ended: float = 0.0
    stages: dict[Stage, float] = msgspec.field(default_factory=dict)

    cache: CacheStatus = "bypass"
    reason: str = ""
    entry_id: int | None = None
    similarity: float | None = None
    confidence: float | None = None
    probability: float | None = None
    age_s: float | None = None
    ttl_left_s: float | None = None
    shadow_entry_id: int | None = None

    route: str = ""
    route_reason: str = ""
    score: float | None = None
    model: str = ""
    backend: str = ""
    attempts: Sequence[Attempt] = ()
    upstream_headers: Mapping[str, str] = NO_HEADERS
    limits: Sequence[tuple[bytes, bytes]] = ()

    status: int = 0
    error: str = ""
    stored_entry_id: int | None = None
    led: bool = False
    client_refused: bool = False
    truncated: bool = False
    usage: Usage = NO_USAGE
    cost_usd: float = 0.0
    saved_usd: float = 0.0
    answer_model: str = ""
    reference: Price = UNKNOWN

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
        request_id = self.request_id.encode()
        pairs = [*self.limits, (b"x-request-id", request_id)]
        if self.api == "messages":
            pairs.append((b"request-id", request_id))  # where Anthropic's clients look for it
        if self.reason:
            pairs += (
                (b"x-lockgate-cache", self.cache.encode()),
                (b"x-lockgate-reason", visible(self.reason)),
                (b"cache-status", self._cache_status()),
            )
        if self.entry_id is not None:
            pairs += ((b"x-lockgate-entry", b"%d" % self.entry_id), (b"age", b"%d" % (self.age_s or 0)))
        if self.similarity is not None:
            pairs.append((b"x-lockgate-similarity", b"%.4f" % self.similarity))
        if self.confidence is not None:
            pairs.append((b"x-lockgate-confidence", b"%.4f" % self.confidence))
        if self.route:
            pairs.append((b"x-lockgate-route", self.route.encode()))
        if self.route_reason:
            pairs.append((b"x-lockgate-route-reason", visible(self.route_reason)))
        if self.model:
            pairs.append((b"x-lockgate-model", visible(self.model)))
        if self.backend:
            pairs.append((b"x-lockgate-backend", visible(self.backend)))
        if self.attempts:
            pairs.append((b"x-lockgate-attempts", visible(", ".join(map(str, self.attempts)))))
        if self.stages:
            timing = ", ".join([f"{name};dur={s * 1000:.2f}" for name, s in self.stages.items()])
            pairs.append((b"server-timing", timing.encode()))
        for name, value in self.upstream_headers.items():
            if not (self.limits and name.startswith("x-ratelimit-")):
                pairs.append((name.encode(), visible(value)))
        return pairs

    def _cache_status(self) -> bytes:
        """RFC 9211. Of a stream it is not known yet whether its answer will be stored."""
        if self.cache in ("hit-exact", "hit-semantic"):
            return b'lockgate; hit; ttl=%d; detail="%s"' % (self.ttl_left_s or 0, self.cache.encode())
        forwarded = b"uri-miss" if self.cache != "bypass" else b"bypass"
        if self.client_refused:
            forwarded = b"request"
        status = b"lockgate; fwd=" + forwarded
        if self.stored_entry_id is not None and self.led:
            status += b"; stored"
        return status + b"; collapsed" if self.cache == "coalesced" else status


@lru_cache(maxsize=4096)
def visible(text: str) -> bytes:
    """Header values are visible ASCII (RFC 9110, section 5.5); what is not is replaced."""
    if not (text.isascii() and text.isprintable()):
        text = _NOT_VISIBLE.sub("?", text)
    return text.encode("ascii")
