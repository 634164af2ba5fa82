"""The path of one request, from a parsed Request to the reply's bytes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import Any

import msgspec
import orjson

from backends.errors import BackendError
from backends.protocols import Chunk
from embeddings.protocols import Entry
from gateway.catalog import Catalog, Model, Route
from gateway.errors import RequestError, from_backend
from gateway.generating import ClientContext, whole_answer
from gateway.generation import Generation
from gateway.http import Last
from gateway.joining import Joined
from gateway.learning import Learner
from gateway.lookup import CacheLookup, Lookup, same_request
from gateway.prices import Price
from gateway.replay import replayed
from gateway.routing import choose_models, needs_score
from gateway.single_flight import Flight, Solo
from gateway.trace import Trace
from gateway.wire.chat_stream import without_usage
from gateway.wire.dialect import Dialect
from policies.types import Answer, Generate, Refuse, Request, ServeCached, Usage

_NOT_THE_REQUESTS_FAULT = frozenset({401, 403, 408, 409, 425, 429})

Presence = Callable[[], AbstractAsyncContextManager[None]]
"""Cancels what runs inside when the client leaves."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Either `body`, or `frames` of a stream whose first one is ready: headers may be sent at once. `paced`:
    the frames take their time."""

    body: bytes | None = None
    frames: AsyncGenerator[bytes] | None = None
    paced: bool = True


class Pipeline:
    """Exact look-up, embedding and search, policy, single flight, routing, backend, store."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        lookup: CacheLookup,
        generation: Generation,
        coalesce_wait_s: float,
        replay_tokens_per_s: float | None = None,
        clock: Callable[[], float] = time.time,
        learner: Learner | None = None,
    ) -> None:
        self._learner = learner
        self._catalog = catalog
        self._lookup = lookup
        self.generation = generation
        self._coalesce_wait_s = coalesce_wait_s
        self._replay_tokens_per_s = replay_tokens_per_s
        self._clock = clock

    async def answer_exactly(
        self, request: Request, trace: Trace, key: bytes | None = None
    ) -> tuple[Reply | None, bytes | None]:
        """The reply to a request that has been answered before, if it is kept; and the request's exact key
        (`key`, where it is known already), for `answer_otherwise`. Raises RequestError for a model that
        nobody knows."""
        trace.reference = reference_price(self._catalog.find(request.model))
        key = key or self._lookup.exact_key(request)
        entry = None if key is None else await self._lookup.find(key, request, trace)
        if entry is None:
            return None, key
        return self._serve(request, entry, same_request(entry), trace), key

    async def answer(self, request: Request, client: ClientContext, trace: Trace) -> Reply:
        """The whole path. Raises RequestError."""
        reply, key = await self.answer_exactly(request, trace)
        return reply or await self.answer_otherwise(request, key, client, trace)

    async def answer_otherwise(
        self, request: Request, key: bytes | None, client: ClientContext, trace: Trace
    ) -> Reply:
        """The reply when there was none by exact key. Raises RequestError. Cancelling it, or closing the
        frames, frees the work upstream."""
        target = self._catalog.find(request.model)
        dialect = self.generation.dialects.of(request.api)
        routed = needs_score(target, request)
        lookup = await self._lookup.decide(request, key, dialect, trace, routed=routed)
        match lookup.decision:
            case ServeCached() as decision:
                assert lookup.entry is not None
                if self._learner is not None:
                    self._learner.served(request, lookup, partial(choose_models, target), client)
                trace.probability = lookup.verdict.probability if lookup.verdict is not None else None
                return self._serve(request, lookup.entry, decision, trace)
            case Refuse() as decision:
                raise RequestError(decision.reason, status=504, kind="cache_error", code="only_if_cached")
            case Generate() as decision:
                trace.cache, trace.reason = decision.cache, decision.reason
        models = choose_models(target, request, lookup.chat, lookup.query, trace)
        # Another request may have stored the answer while this one was being embedded.
        if lookup.vector is not None and key and (entry := await self._lookup.find(key, request, trace)):
            return self._serve(request, entry, same_request(entry), trace)
        reply = await self._answer_with_others(request, lookup, dialect, trace)
        if reply is not None:
            return reply
        # No await since the last look for a flight: two equal requests cannot both lead.
        flight = self.generation.lead(request, lookup, decision, models, client, trace)
        return await self._follow(request, flight, dialect, trace)

    async def _answer_with_others(
        self, request: Request, lookup: Lookup, dialect: Dialect, trace: Trace
    ) -> Reply | None:
        """The reply from what is being answered already; None when this request must ask for itself. When the
        call that was followed fails, one of those that followed it asks again, and the others follow that:
        once, lest a dead upstream be asked by each in turn. Raises RequestError."""
        asked = trace.cache, trace.reason
        failed = ""
        while joined := self.generation.join(request, lookup, self._lookup.would_serve):
            trace.cache, trace.reason, trace.similarity = "coalesced", joined.reason, joined.similarity
            try:
                async with asyncio.timeout(self._coalesce_wait_s) as waiting:
                    return await self._follow(request, joined.flight, dialect, trace)
            except TimeoutError:
                if not waiting.expired():
                    raise
                failed = f"no answer within {self._coalesce_wait_s:g} s"
                break
            except RequestError as error:
                if failed or not _another_may_succeed(error, joined):
                    raise
                failed = "it failed"
        if failed:
            trace.cache = asked[0]
            trace.reason = f"{asked[1]}; followed another request's call, but {failed}"
            trace.similarity = None
        return None

    def _serve(self, request: Request, entry: Entry, decision: ServeCached, trace: Trace) -> Reply:
        """A hit is a fresh answer in form: a new id and time, the model that was asked for."""
        answer = entry.answer
        now = self._clock()
        trace.cache, trace.reason = decision.kind, decision.reason
        trace.entry_id, trace.similarity, trace.confidence = (
            entry.id,
            decision.similarity,
            decision.confidence,
        )
        trace.age_s = max(0.0, now - answer.created_at)
        trace.ttl_left_s = entry.expires_at - now
        trace.route = trace.route_reason = trace.model = trace.backend = ""
        dialect = self.generation.dialects.of(request.api)
        trace.usage = _usage_of(answer, dialect)
        trace.saved_usd, trace.answer_model = answer.cost_usd, answer.model
        renewed = dialect.renewed(answer.body, model=request.model, now=now)
        return _replay(request, renewed, dialect, self._replay_tokens_per_s)

    async def _follow(self, request: Request, flight: Flight | Solo, dialect: Dialect, trace: Trace) -> Reply:
        try:
            if request.stream and flight.stream:
                return await _stream(request, flight, dialect, trace)
            chunks = await flight.whole()
            _note_spent(flight, trace)
        except BackendError as error:
            raise from_backend(error) from error
        if not request.stream and chunks[0].whole:
            return Reply(body=chunks[0].data)
        return _replay(request, whole_answer(chunks, dialect), dialect)


def _note_spent(flight: Flight | Solo, trace: Trace) -> None:
    """What the answer has taken by now; who follows somebody else's call was spared it."""
    outcome = flight.outcome()
    trace.usage = outcome.usage
    if not trace.led:
        trace.saved_usd, trace.answer_model = outcome.cost_usd, outcome.model
        trace.stored_entry_id = outcome.entry_id


def _usage_of(answer: Answer, dialect: Dialect) -> Usage:
    """As the answer tells it, with what came from the provider's prompt cache; else as it was estimated."""
    counted = (answer.prompt_tokens, answer.completion_tokens)
    told = dialect.usage(answer.body)
    if told is not None and (told.prompt_tokens, told.completion_tokens) == counted:
        return told
    return Usage(prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens)


def reference_price(target: Route | Model) -> Price:
    """What a token costs where there is neither cache nor routing."""
    return target.large.price if isinstance(target, Route) else target.price


def _replay(
    request: Request, answer: dict[str, Any], dialect: Dialect, tokens_per_s: float | None = None
) -> Reply:
    if not request.stream:
        return Reply(body=orjson.dumps(answer))
    frames = replayed(answer, dialect, include_usage=request.include_usage, tokens_per_s=tokens_per_s)
    return Reply(frames=frames, paced=tokens_per_s is not None)


def _another_may_succeed(error: RequestError, joined: Joined) -> bool:
    """Whether a call that ended so may end well for somebody else: who asks the same has the same request,
    but not always the same credential."""
    return joined.similarity is not None or error.status >= 500 or error.status in _NOT_THE_REQUESTS_FAULT


async def _stream(request: Request, flight: Flight | Solo, dialect: Dialect, trace: Trace) -> Reply:
    """Waits for the first chunk, so that an upstream's error still becomes a status."""
    following = flight.follow()
    try:
        first = await anext(following)
        if first.whole:  # a server may answer in one although it was asked for a stream
            async for _ in following:
                pass
            _note_spent(flight, trace)
            return _replay(request, dict(first.events[0]), dialect)
    except BaseException:
        await following.aclose()
        raise

    async def frames() -> AsyncGenerator[bytes]:
        try:
            async with aclosing(following):
                chunk = first
                while True:
                    if not chunk.tells_usage or request.include_usage:
                        yield chunk.data
                    elif rest := _without_usage(chunk, dialect):
                        yield rest
                    chunk = await anext(following)
        except StopAsyncIteration:
            yield Last(dialect.end)
        except BackendError as error:
            # The status is long sent: clients read an error event, and no mark of the end follows.
            trace.error = str(error)
            yield Last(dialect.error_frame(from_backend(error)))
        finally:
            _note_spent(flight, trace)  # of who leaves in the middle too

    return Reply(frames=frames())


_EMPTY_USAGE = b',"usage":null'


def _without_usage(chunk: Chunk, dialect: Dialect) -> bytes:
    """The chunk as a client sees it that did not ask for usage; b"" when nothing else was in it."""
    empty = [event for event in chunk.events if event.get("usage", 0) is None]
    # Unescaped quotes stand outside of strings only, so this is a field, if not one of a deeper object.
    if len(empty) == len(chunk.events) == chunk.data.count(_EMPTY_USAGE):
        return chunk.data.replace(_EMPTY_USAGE, b"")
    kept = (without_usage(event) for event in chunk.events)
    return b"".join(dialect.frame(event) for event in kept if event is not None)
