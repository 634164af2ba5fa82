"""Asking a model: the call, its single flight, what it cost, and keeping the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from embeddings.protocols import SemanticCache, StoreError
from gateway.attempts import Attempts
from gateway.catalog import Model
from gateway.degradation import Degradation
from gateway.generating import ClientContext, Generating, whole_answer
from gateway.joining import Joined, Judge, join, question_of
from gateway.kept import new_entry
from gateway.ledger import Ledger
from gateway.lookup import Lookup
from gateway.metrics import Metrics
from gateway.single_flight import Flight, SingleFlight, Solo
from gateway.trace import Trace
from gateway.wire.dialects import Dialects
from policies.types import Answer, Generate, Request, Usage

STORE_DEADLINE_S = 1.0

OnKept = Callable[[Lookup, Mapping[str, Any], int | None], None]
"""Takes what the look-up had found, the answer that was generated instead, and the entry it is kept as."""


def _nothing_to_learn(lookup: Lookup, answer: Mapping[str, Any], entry_id: int | None) -> None:
    pass


class Generation:
    """Generates answers, one upstream call for each question in flight, and stores the clean ones."""

    def __init__(
        self,
        *,
        dialects: Dialects,
        attempts: Attempts,
        cache: SemanticCache | None,
        metrics: Metrics,
        ledger: Ledger,
        degradation: Degradation,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.flights = SingleFlight()
        self.dialects = dialects
        self.attempts = attempts
        self.metrics = metrics
        self.ledger = ledger
        self.on_kept: OnKept = _nothing_to_learn
        """Told of each clean answer to a request that the cache may know."""
        self._cache = cache
        self._degradation = degradation
        self._clock = clock

    def join(self, request: Request, lookup: Lookup, judge: Judge) -> Joined | None:
        """What `request` may follow rather than be asked itself."""
        return join(self.flights, request, lookup, judge, self._clock())

    def lead(
        self,
        request: Request,
        lookup: Lookup,
        decision: Generate,
        models: Sequence[Model],
        client: ClientContext,
        trace: Trace,
    ) -> Flight | Solo:
        """Begin to generate with the first of `models`, or with the next when it fails. The flight is open
        to others only if its answer may be kept."""
        trace.led = True
        source = Generating(self, request, lookup, decision, models, client, trace)
        identity = lookup.identity
        if identity is None or decision.ttl_s == 0 or decision.cache != "miss":
            return Solo(source)
        flight = Flight(source)
        self.flights.register((*identity.owner, identity.exact_key), flight, question_of(lookup))
        return flight

    async def ask(
        self,
        request: Request,
        lookup: Lookup,
        models: Sequence[Model],
        client: ClientContext,
        trace: Trace,
    ) -> dict[str, Any]:
        """An answer that no client waits for and nobody keeps, paid for as any other. Raises BackendError."""
        decision = Generate(cache="bypass", reason="asked by the gateway", ttl_s=0.0)
        solo = Solo(Generating(self, request, lookup, decision, models, client, trace))
        return whole_answer(await solo.whole(), self.dialects.of(request.api))

    async def keep(
        self, request: Request, lookup: Lookup, answer: dict[str, Any], trace: Trace
    ) -> int | None:
        """Keep an answer that `ask` gave, where such answers are kept. The entry's id, if it was."""
        if lookup.ttl_s == 0 or self.dialects.of(request.api).why_not_stored(answer):
            return None
        return await self.store(
            request, lookup, lookup.ttl_s, answer, trace.model, trace.usage, trace.cost_usd
        )

    async def store(
        self,
        request: Request,
        lookup: Lookup,
        ttl_s: float,
        body: dict[str, Any],
        model: str,
        usage: Usage,
        cost_usd: float,
    ) -> int | None:
        """The id of the entry that the answer is kept as now, if it is."""
        assert lookup.identity is not None
        if self._cache is None:
            return None
        now = self._clock()
        identity = lookup.identity
        # Without an index the cache has no space, and keeps no vectors.
        space = self._cache.space if lookup.vector is not None else None
        answer = Answer(
            body=body,
            model=model,
            created_at=now,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cost_usd=cost_usd,
        )
        entry = new_entry(
            request,
            identity,
            answer,
            expires_at=now + ttl_s,
            tags=request.tags,
            text=identity.text,
            space=space,
            vector=lookup.vector.vector if lookup.vector is not None and space is not None else None,
        )
        try:
            async with asyncio.timeout(STORE_DEADLINE_S):
                return await self._cache.put(entry)
        except TimeoutError:
            self._degradation.note("store", f"a write took more than {STORE_DEADLINE_S:g} s")
        except StoreError as error:
            self._degradation.note("store", str(error))
        return None
