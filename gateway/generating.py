"""One answer on its way from a model to those who wait for it, to the ledger and to the cache."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from backends.errors import InvalidCall
from backends.protocols import Call, CallReport, Chunk
from gateway.attempts import Candidate, Progress
from gateway.catalog import Model
from gateway.ledger import GenerationPosting
from gateway.lookup import Lookup
from gateway.single_flight import Outcome
from gateway.told_usage import ToldUsage
from gateway.trace import NO_USAGE, Trace
from gateway.wire.dialect import Dialect
from policies.requirements import estimated_prompt_tokens, estimated_text_tokens, is_repeatable
from policies.types import Generate, Request, Usage

if TYPE_CHECKING:
    from gateway.generation import Generation


def _charge_nobody(tokens: int, cost_usd: float) -> None:
    pass


class ClientContext(msgspec.Struct, frozen=True, kw_only=True):
    """What of the client goes upstream: its credential, for backends without a key of their own, and the
    headers that are safe to forward. `charge` is told once what its generation used: tokens and USD."""

    credential: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    charge: Callable[[int, float], None] = _charge_nobody


class Generating:
    """One answer on its way: a Source of single flight."""

    def __init__(
        self,
        generation: Generation,
        request: Request,
        lookup: Lookup,
        decision: Generate,
        models: Sequence[Model],
        client: ClientContext,
        trace: Trace,
    ) -> None:
        self.stream = request.stream
        self._generation = generation
        self._request = request
        self._lookup = lookup
        self._decision = decision
        self._models = models
        self._client = client
        self._trace = trace
        self._dialect = generation.dialects.of(request.api)
        self._model = models[0]
        """Who answers; before anybody does, who was to."""
        self._by_candidate: dict[int, Model] = {}
        self._progress = Progress(
            on_begin=self._note_who_answers, repeatable=is_repeatable(request.api, request.body)
        )
        self._began = 0.0
        self._told: dict[str, ToldUsage] = {}
        """Of answers that are translated, by the model's name."""
        self._usage: Usage | None = None

    def chunks(self) -> AsyncGenerator[Chunk]:
        self._trace.attempts = self._progress.attempts
        self._began = time.perf_counter()
        candidates = [self._candidate(model) for model in self._models]
        self._by_candidate = dict(zip(map(id, candidates), self._models, strict=True))
        return self._generation.attempts.stream(candidates, self._progress)

    async def settle(self, chunks: Sequence[Chunk]) -> None:
        self._account(self._usage_of(chunks))
        if self._decision.ttl_s == 0 or self._lookup.identity is None:
            return
        answer = whole_answer(chunks, self._dialect)
        if self._dialect.why_not_stored(answer) == "":
            trace = self._trace
            trace.stored_entry_id = await self._generation.store(
                self._request,
                self._lookup,
                self._decision.ttl_s,
                answer,
                trace.model,
                trace.usage,
                trace.cost_usd,
            )
            self._generation.on_kept(self._lookup, answer, trace.stored_entry_id)

    def abandon(self, chunks: Sequence[Chunk]) -> None:
        self._account(self._usage_of(chunks))

    def _candidate(self, model: Model) -> Candidate:
        request, client, dialects = self._request, self._client, self._generation.dialects

        def open_(report: CallReport, deadline: float) -> AsyncIterator[Chunk]:
            backend = model.backend
            translator = dialects.translator(request.api, backend.apis)
            if translator is None and request.api not in backend.apis:
                raise InvalidCall(
                    f"The backend {backend.name} of '{request.model}' cannot answer this API.", param="model"
                )
            body: Mapping[str, Any] = {**request.body, "model": model.upstream_name}
            if translator is not None:
                body = translator.request(body)
            call = Call(
                api=request.api if translator is None else translator.target,
                body=body,
                credential=client.credential,
                headers=client.headers,
                deadline=deadline,
                report=report,
            )
            if translator is None:
                return backend.stream(call)
            told = ToldUsage(dialects.of(translator.target))
            return dialects.translated(self._heard(backend.stream(call), model, told), translator, request)

        return Candidate(model=model.upstream_name, backend=model.backend, open=open_)

    async def _heard(
        self, chunks: AsyncIterator[Chunk], model: Model, told: ToldUsage
    ) -> AsyncGenerator[Chunk]:
        """The chunks as they are. A translated stream tells usage at its end only, and a client may leave
        before."""
        try:
            async for chunk in chunks:
                told.add(chunk.events)
                self._told[model.name] = told
                yield chunk
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    def _note_who_answers(self) -> None:
        trace, answering = self._trace, self._progress.answering
        if answering is not None:
            self._model = self._by_candidate[id(answering)]
        model = self._model
        trace.stages["upstream"] = time.perf_counter() - self._began
        if model is not self._models[0]:
            trace.route_reason = f"{trace.route_reason}; fell back from {self._models[0].name}"
        trace.model, trace.backend = model.upstream_name, model.backend.name
        trace.upstream_headers = self._progress.headers

    def _usage_of(self, chunks: Sequence[Chunk]) -> Usage:
        """As the upstream told it last; estimated as far as it did not."""
        told = self._told.get(self._model.name) or ToldUsage.of(chunks, self._dialect)
        usage = told.usage
        if usage is None:
            return self._estimate(chunks) if chunks else NO_USAGE
        if told.tells_output:
            return usage
        completion_tokens = max(usage.completion_tokens, self._estimate(chunks).completion_tokens)
        return replace(usage, completion_tokens=completion_tokens, estimated=True)

    def _estimate(self, chunks: Sequence[Chunk]) -> Usage:
        """From the lengths of the texts, where the upstream does not say."""
        answer = whole_answer(chunks, self._dialect)
        return Usage(
            prompt_tokens=estimated_prompt_tokens(self._dialect.chat_view(self._request.body)),
            completion_tokens=estimated_text_tokens(answer),
            estimated=True,
        )

    def outcome(self, chunks: Sequence[Chunk]) -> Outcome:
        model = self._model
        usage = self._usage or self._usage_of(chunks)
        return Outcome(
            usage=usage,
            cost_usd=model.price.cost_usd(usage),
            model=model.upstream_name,
            entry_id=self._trace.stored_entry_id,
        )

    def _account(self, usage: Usage) -> None:
        """However the call ended: it may outlive the request that began it."""
        trace, model = self._trace, self._model
        self._usage = usage
        trace.usage, trace.cost_usd = usage, model.price.cost_usd(usage)
        self._generation.metrics.record_generation(model.upstream_name, usage, trace.cost_usd)
        self._client.charge(usage.prompt_tokens + usage.completion_tokens, trace.cost_usd)
        calls = Counter[str]()
        for attempt in self._progress.attempts:
            calls[attempt.model] += attempt.requests
        attempts = calls.pop(model.upstream_name, 0)
        self._generation.ledger.generation(
            GenerationPosting(
                tenant=trace.tenant,
                key=trace.key or "",
                route=trace.route,
                model=model.upstream_name,
                api=self._request.api,
                cache=self._decision.cache,
                usage=usage,
                cost_usd=trace.cost_usd,
                attempts=attempts,
                elsewhere=tuple((+calls).items()),
            )
        )


def whole_answer(chunks: Sequence[Chunk], dialect: Dialect) -> dict[str, Any]:
    """The answer that the chunks stand for, in the form it has without streaming."""
    if len(chunks) == 1 and chunks[0].whole:
        return dict(chunks[0].events[0])
    assembler = dialect.assembler()
    for chunk in chunks:
        for event in chunk.events:
            assembler.add(event)
    return assembler.answer()
