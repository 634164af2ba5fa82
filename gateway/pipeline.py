"""The path of one request, from a parsed Request to the reply's bytes."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson

from backends.errors import BackendError
from embeddings.protocols import Entry
from gateway.catalog import Catalog
from gateway.errors import RequestError, from_backend, openai_error_body
from gateway.generation import ClientContext, Generation, assemble
from gateway.lookup import CacheLookup, same_request
from gateway.routing import asked_text, choose_model
from gateway.single_flight import Flight
from gateway.trace import Trace
from gateway.wire.chat_stream import DONE, as_chunks, frame, without_usage
from policies.types import Generate, Refuse, Request, ServeCached


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Either `body`, or `frames` of a stream whose first one is ready: headers may be sent at once."""

    body: bytes | None = None
    frames: AsyncGenerator[bytes] | None = None


class Pipeline:
    """Exact look-up, embedding and search, policy, single flight, routing, backend, store."""

    def __init__(self, *, catalog: Catalog, lookup: CacheLookup, generation: Generation) -> None:
        self._catalog = catalog
        self._lookup = lookup
        self.generation = generation

    async def answer(self, request: Request, client: ClientContext, trace: Trace) -> Reply:
        """Raises RequestError. Cancelling it, or closing the frames, frees the work upstream."""
        target = self._catalog.find(request.model)
        asked = asked_text(request.body["messages"])
        lookup = await self._lookup.decide(request, asked, trace)
        match lookup.decision:
            case ServeCached() as decision:
                assert lookup.entry is not None
                return self._serve(request, lookup.entry, decision, trace)
            case Refuse() as decision:
                raise RequestError(decision.reason, status=504, kind="cache_error", code="only_if_cached")
            case Generate() as decision:
                trace.cache, trace.reason = decision.cache, decision.reason
        model = choose_model(target, request, lookup.query, trace)
        if lookup.identity and (entry := await self._lookup.recheck(lookup.identity, request)):
            return self._serve(request, entry, same_request(entry), trace)
        # No await from here until the flight is followed: two equal requests cannot both lead.
        if (flight := self.generation.join(request, lookup)) is not None:
            trace.cache, trace.reason = "coalesced", "the same request is being answered now"
        else:
            flight = self.generation.lead(request, lookup, decision, model, client, trace)
        return await self._follow(request, flight, trace)

    def _serve(self, request: Request, entry: Entry, decision: ServeCached, trace: Trace) -> Reply:
        """A hit is a fresh answer in form: a new id and time, the model that was asked for."""
        answer = entry.answer
        trace.cache, trace.reason = decision.kind, decision.reason
        trace.entry_id, trace.similarity, trace.confidence = (
            entry.id,
            decision.similarity,
            decision.confidence,
        )
        trace.age_s = max(0.0, time.time() - answer.created_at)
        trace.route = trace.route_reason = trace.model = trace.backend = ""
        trace.prompt_tokens, trace.completion_tokens = answer.prompt_tokens, answer.completion_tokens
        trace.saved_usd = answer.cost_usd
        completion = {
            **answer.body,
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": request.model,
        }
        return _replay(request, completion)

    async def _follow(self, request: Request, flight: Flight, trace: Trace) -> Reply:
        try:
            if request.stream and flight.stream:
                return await _stream(request, flight, trace)
            chunks = []
            async with aclosing(flight.follow()) as following:
                async for chunk in following:
                    chunks.append(chunk)  # noqa: PERF401 - aclosing frees the work when the client leaves
        except BackendError as error:
            raise from_backend(error) from error
        if not request.stream and not flight.stream:
            return Reply(body=chunks[0].data)
        return _replay(request, assemble(chunks))


def _replay(request: Request, completion: dict[str, Any]) -> Reply:
    if not request.stream:
        return Reply(body=orjson.dumps(completion))

    async def frames() -> AsyncGenerator[bytes]:
        for chunk in as_chunks(completion, include_usage=request.include_usage):
            yield frame(orjson.dumps(chunk))
        yield DONE

    return Reply(frames=frames())


async def _stream(request: Request, flight: Flight, trace: Trace) -> Reply:
    """Waits for the first chunk, so that an upstream's error still becomes a status."""
    following = flight.follow()
    try:
        first = await anext(following)
    except StopAsyncIteration:
        raise RequestError(
            "The upstream ended its stream without a chunk.", status=502, kind="upstream_error"
        ) from None
    except BaseException:
        await following.aclose()
        raise

    async def frames() -> AsyncGenerator[bytes]:
        async with aclosing(following):
            try:
                chunk = first
                while True:
                    if request.include_usage or chunk.body.get("usage") is None:
                        yield frame(chunk.data)
                    elif (rest := without_usage(chunk.body)) is not None:
                        yield frame(orjson.dumps(rest))
                    chunk = await anext(following)
            except StopAsyncIteration:
                yield DONE
            except BackendError as error:
                # The status is long sent: OpenAI's clients read an error event, and no [DONE] follows.
                trace.error = str(error)
                yield frame(openai_error_body(from_backend(error)))

    return Reply(frames=frames())
