"""The end of every request: counted, posted to the ledger, and told in one log line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from gateway.ledger import Ledger, RequestPosting
from gateway.metrics import Metrics
from gateway.served import ServedAnswers
from gateway.trace import Trace

SERVED = ("hit-exact", "hit-semantic", "coalesced")


class RequestLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The log line of one request: no prompt, no answer, no key; a tenant appears as its hash. What is empty
    or zero is left out."""

    event: str
    timestamp: datetime
    level: str
    request_id: str
    tenant: str = ""
    key: str | None = None
    api: str = ""
    status: int = 0
    cache: str = ""
    reason: str = ""
    entry: int | None = None
    similarity: float | None = None
    asked_model: str = ""
    route: str = ""
    route_reason: str = ""
    score: float | None = None
    model: str = ""
    backend: str = ""
    stream: bool = False
    stored: bool = False
    truncated: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = None
    saved_usd: float | None = None
    ms: float = 0.0
    stages_ms: Mapping[str, float] = {}
    attempts: Sequence[str] = ()
    error: str = ""


class Recorder:
    """`write` takes the log lines."""

    def __init__(
        self, metrics: Metrics, ledger: Ledger, served: ServedAnswers, write: Callable[[RequestLine], None]
    ) -> None:
        self._metrics = metrics
        self._ledger = ledger
        self._served = served
        self._write = write

    def record(self, trace: Trace) -> None:
        self._metrics.record(trace)
        if trace.entry_id is not None:
            by_similarity = trace.cache == "hit-semantic"
            self._served.note(
                trace.request_id,
                trace.entry_id,
                by_similarity=by_similarity,
                probability=trace.probability if by_similarity else None,
            )
        elif trace.stored_entry_id is not None:
            self._served.note(trace.request_id, trace.stored_entry_id, by_similarity=False)
        self._ledger.request(_posting(trace))
        self._write(_line(trace))


def _posting(trace: Trace) -> RequestPosting:
    served = trace.cache in SERVED
    usage = trace.usage
    return RequestPosting(
        tenant=trace.tenant,
        key=trace.key or "",
        route=trace.route or ("cache" if served else ""),
        model=trace.model or trace.answer_model,
        api=trace.api,
        cache=trace.cache if trace.reason else "",
        status=trace.status,
        broken=trace.error != "",
        without_usd=trace.reference.cost_usd(usage),
        saved_tokens=usage.prompt_tokens + usage.completion_tokens if served else 0,
        embed_s=trace.stages.get("embed", 0.0),
        verify_s=trace.stages.get("verify", 0.0),
    )


def _line(trace: Trace) -> RequestLine:
    usage = trace.usage
    return RequestLine(
        event="request",
        timestamp=datetime.now(UTC),
        level="info",
        request_id=trace.request_id,
        tenant=trace.tenant,
        key=trace.key,
        api=trace.api,
        status=trace.status,
        cache=trace.cache if trace.reason else "",
        reason=trace.reason,
        entry=trace.entry_id,
        similarity=None if trace.similarity is None else round(trace.similarity, 4),
        asked_model=trace.asked_model,
        route=trace.route,
        route_reason=trace.route_reason,
        score=None if trace.score is None else round(trace.score, 4),
        model=trace.model,
        backend=trace.backend,
        stream=trace.stream,
        stored=trace.led and trace.stored_entry_id is not None,
        truncated=trace.truncated,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cost_usd=trace.cost_usd or None,
        saved_usd=trace.saved_usd or None,
        ms=round(trace.seconds() * 1000, 2),
        stages_ms={name: round(seconds * 1000, 2) for name, seconds in trace.stages.items()},
        attempts=tuple(f"{one} {one.model} {one.seconds * 1000:.0f} ms" for one in trace.attempts),
        error=trace.error,
    )
