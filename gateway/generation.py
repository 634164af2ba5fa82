"""Asking a model: the call, its single flight, what it cost, and keeping the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backends.protocols import Call, Chunk
from embeddings.protocols import Entry, SemanticCache, StoreError
from gateway.catalog import Model
from gateway.degradation import Degradation
from gateway.lookup import Lookup
from gateway.metrics import Metrics
from gateway.single_flight import Flight, SingleFlight
from gateway.trace import Trace
from gateway.wire.chat_stream import Assembler
from policies.types import Answer, Generate, Request

STORE_DEADLINE_S = 1.0
CLEAN_FINISHES = frozenset({"stop", "tool_calls", "function_call"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientContext:
    """What of the client goes upstream: its credential, for backends without a key of their own, and the
    few headers that are safe to forward."""

    credential: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Generation:
    """Generates answers, one upstream call for each question in flight, and stores the clean ones."""

    def __init__(
        self,
        *,
        cache: SemanticCache | None,
        ttl_s: float,
        metrics: Metrics,
        degradation: Degradation,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.flights = SingleFlight()
        self._cache = cache
        self._ttl_s = ttl_s
        self._metrics = metrics
        self._degradation = degradation
        self._clock = clock

    def join(self, request: Request, lookup: Lookup) -> Flight | None:
        """The flight of an equal question that is being answered right now."""
        if lookup.identity is None or request.cache.no_cache or request.cache.no_store:
            return None
        return self.flights.find(lookup.identity.exact_key)

    def lead(
        self,
        request: Request,
        lookup: Lookup,
        decision: Generate,
        model: Model,
        client: ClientContext,
        trace: Trace,
    ) -> Flight:
        """Begin a flight. It is open to others only if its answer may be kept."""
        call = Call(
            body={**request.body, "model": model.upstream_name},
            credential=client.credential,
            headers=client.headers,
        )

        async def settle(chunks: Sequence[Chunk]) -> None:
            completion = assemble(chunks)
            self._account(completion, model, trace)
            if decision.store and lookup.identity is not None and why_not_stored(completion) == "":
                await self._store(request, lookup, completion, model, trace)

        flight = Flight(_timed(model.backend.stream(call), trace), settle, stream=call.stream)
        if decision.store and decision.cache == "miss" and lookup.identity is not None:
            self.flights.register(lookup.identity.exact_key, flight)
        return flight

    def _account(self, completion: Mapping[str, Any], model: Model, trace: Trace) -> None:
        usage = completion.get("usage") or {}
        trace.prompt_tokens = int(usage.get("prompt_tokens") or 0)
        trace.completion_tokens = int(usage.get("completion_tokens") or 0)
        trace.cost_usd = model.cost_usd(trace.prompt_tokens, trace.completion_tokens)
        self._metrics.record_generation(
            model.upstream_name, trace.prompt_tokens, trace.completion_tokens, trace.cost_usd
        )

    async def _store(
        self, request: Request, lookup: Lookup, completion: dict[str, Any], model: Model, trace: Trace
    ) -> None:
        assert lookup.identity is not None
        if self._cache is None:
            return
        now = self._clock()
        identity = lookup.identity
        # Without an index the cache has no space, and keeps no vectors.
        space = self._cache.space if lookup.vector is not None else None
        answer = Answer(
            body=completion,
            model=model.upstream_name,
            created_at=now,
            prompt_tokens=trace.prompt_tokens,
            completion_tokens=trace.completion_tokens,
            cost_usd=trace.cost_usd,
        )
        entry = Entry(
            id=0,
            exact_key=identity.exact_key,
            partition=identity.partition,
            tenant=request.tenant,
            text=identity.text,
            space=space,
            vector=lookup.vector.vector if lookup.vector is not None and space is not None else None,
            answer=answer,
            expires_at=now + self._ttl_s,
        )
        try:
            async with asyncio.timeout(STORE_DEADLINE_S):
                await self._cache.put(entry)
            trace.stored = True
        except TimeoutError:
            self._degradation.note("store", f"a write took more than {STORE_DEADLINE_S:g} s")
        except StoreError as error:
            self._degradation.note("store", str(error))


async def _timed(chunks: AsyncIterator[Chunk], trace: Trace) -> AsyncIterator[Chunk]:
    """Stage `upstream` of the trace is the time to the first chunk."""
    began = time.perf_counter()
    try:
        async for chunk in chunks:
            trace.stages.setdefault("upstream", time.perf_counter() - began)
            yield chunk
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()


def assemble(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """The `chat.completion` that the chunks of a flight stand for."""
    if len(chunks) == 1 and chunks[0].body.get("object") != "chat.completion.chunk":
        return dict(chunks[0].body)
    assembler = Assembler()
    for chunk in chunks:
        assembler.add(chunk.body)
    return assembler.completion()


def why_not_stored(completion: Mapping[str, Any]) -> str:
    """ "" for an answer that may be kept; else why not: cut, filtered, empty or unfinished."""
    choices = completion.get("choices") or ()
    if not choices:
        return "the answer has no choices"
    for choice in choices:
        reason = choice.get("finish_reason")
        if reason not in CLEAN_FINISHES:
            return f"the answer ended with {reason or 'no finish reason'}"
        message = choice.get("message") or {}
        content = message.get("content")
        said = content.strip() if isinstance(content, str) else content
        if not (said or message.get("tool_calls") or message.get("function_call") or message.get("refusal")):
            return "the answer is empty"
    return ""
