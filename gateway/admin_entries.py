"""`/admin/entries`, `/admin/invalidate`, `/admin/feedback`: the cache's entries, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from embeddings.protocols import Entry, EntryUse, IdArray, SemanticCache
from gateway.admin_access import note
from gateway.admin_forms import (
    GREATEST_ID,
    MAX_SAMPLE,
    Action,
    CachedEntry,
    CachedEntryDetail,
    CachedEntryPage,
    CachedRequest,
    FeedbackTaken,
    Invalidated,
    InvalidateRequest,
    MatchedEntry,
    Removed,
    body_of,
    feedback,
    invalidation,
    page_of,
    whole_number,
)
from gateway.assembly import Gateway
from gateway.config_problems import ConfigError
from gateway.errors import RequestError
from gateway.lookup import MAX_EMBEDDED_CHARACTERS
from gateway.served import KEPT, Served
from gateway.similarity import min_similarity
from gateway.wire.validation import field_error
from policies.conversation import shown
from policies.identity import request_of

REMOVED_AT_ONCE = 1000
"""Entries in one write of the store: what requests store meanwhile waits for no more than that."""


class AdminEntries:
    """Without a cache every answer is 409. StoreError and EmbedderError come through."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._settings = gateway.settings
        self._clock = gateway.clock

    async def listed(self, request: HttpRequest) -> Response:
        which, before, limit = page_of(request.query_params)
        now = self._clock()
        found = await self._cache.listed(which, now, before=before, limit=limit + 1)
        entries = [CachedEntry(**_told(entry, use, now)) for entry, use in found[:limit]]
        note(request, returned=len(entries))
        return _json(CachedEntryPage(entries=entries, next=entries[-1].id if len(found) > limit else None))

    async def one(self, request: HttpRequest) -> Response:
        """GET shows an entry, DELETE removes it."""
        text = request.path_params["id"]
        entry_id = whole_number(text, GREATEST_ID)
        if entry_id is None:
            raise _no_entry(text)
        if request.method == "DELETE":
            removed = await self._cache.remove([entry_id])
            if not removed:
                raise _no_entry(text)
            return _json(Removed(removed=removed))
        now = self._clock()
        found = await self._cache.inspect(entry_id, now)
        if found is None:
            raise _no_entry(text)
        entry, use = found
        asked = _asked(entry.request)
        return _json(CachedEntryDetail(**_told(entry, use, now), request=asked, answer=entry.answer.body))

    async def invalidate(self, request: HttpRequest) -> Response:
        form = invalidation(await self._body(request))
        cache, now = self._cache, self._clock()
        ids, similarity = await self._matching(cache, form, now)
        sample = await _sample(cache, ids, similarity, now)
        removed = 0 if form.dry_run else await _remove(cache, ids)
        done = Invalidated(matched=len(ids), removed=removed, dry_run=form.dry_run, sample=sample)
        criteria = ", ".join(form.criteria()) or "all"
        note(request, criteria=criteria, matched=done.matched, removed=removed, dry_run=form.dry_run)
        return _json(done)

    async def feedback(self, request: HttpRequest) -> Response:
        form = feedback(await self._body(request))
        cache = self._cache
        if form.request_id is not None:
            served = self._gateway.served.find(form.request_id)
            if served is None:
                raise _not_found(
                    f"No entry is known for the request {form.request_id[:200]}: it is not among the latest"
                    f" {KEPT:,}, or neither came from the cache nor was stored."
                )
        else:
            assert form.entry is not None
            served = Served(entry_id=form.entry, by_similarity=False)
        entry_id, by_similarity = served.entry_id, served.by_similarity
        if not await cache.judge(entry_id, right=form.correct, by_similarity=by_similarity):
            raise _no_entry(str(entry_id))
        if self._gateway.learner is not None:
            self._gateway.learner.feedback(served, right=form.correct)
        self._gateway.metrics.cache.judged(form.correct)
        action: Action = "noted" if form.correct else "withdrawn" if by_similarity else "removed"
        note(request, entry=entry_id, correct=form.correct, outcome=action)
        return _json(FeedbackTaken(entry=entry_id, action=action))

    @property
    def _cache(self) -> SemanticCache:
        """Raises RequestError (409) when there is none."""
        cache = self._gateway.cache
        if cache is None:
            raise RequestError("The cache is off: cache.enabled is false.", status=409, code="cache_off")
        return cache

    async def _body(self, request: HttpRequest) -> dict[str, Any]:
        return await body_of(request, self._settings.server.max_body_bytes)

    async def _matching(
        self, cache: SemanticCache, form: InvalidateRequest, now: float
    ) -> tuple[IdArray, dict[int, float]]:
        """The ids of what is to go, the newest or the most similar first; and the similarity of each, where
        that was asked for."""
        if form.similar_to is None:
            return (await cache.matching(form.which(), now))[::-1], {}
        if cache.space is None:
            raise field_error(
                "similar_to",
                "the cache finds by exact key only (cache.policy), so it has no embedder to compare texts",
            )
        least = self._least_similarity(form.min_similarity, cache.space)
        encoded = None
        if len(form.similar_to) <= MAX_EMBEDDED_CHARACTERS:
            encoded = await cache.embed(form.similar_to)
        if encoded is None or encoded.truncated:
            raise field_error(
                "similar_to", "expected a text that fits the embedder's window: its end would not be compared"
            )
        similarity = dict(await cache.similar(encoded.vector, least, form.which(), now))
        return np.fromiter(similarity, np.int64, len(similarity)), similarity

    def _least_similarity(self, asked: float | None, space: str) -> float:
        if asked is not None:
            return asked
        try:
            return min_similarity(self._settings.cache.policy.min_similarity, space)
        except ConfigError as error:
            raise field_error("min_similarity", f"expected {error.problems[0].expected}") from None


def _told(entry: Entry, use: EntryUse, now: float) -> dict[str, Any]:
    """The fields of a CachedEntry."""
    answer = entry.answer
    return {
        "id": entry.id,
        "tenant": entry.tenant,
        "api": entry.api,
        "model": entry.model,
        "answered_by": answer.model,
        "tags": entry.tags,
        "text": None if entry.text is None else shown(entry.text),
        "semantic": entry.vector is not None,
        "created_at": answer.created_at,
        "expires_at": entry.expires_at,
        "age_s": round(max(0.0, now - answer.created_at), 3),
        "hits": use.hits,
        "last_used_at": use.last_used_at,
        "judged_right": use.judged_right,
        "judged_wrong": use.judged_wrong,
        "stored_bytes": use.stored_bytes,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "cost_usd": answer.cost_usd,
    }


def _asked(canonical: bytes) -> CachedRequest | None:
    """None for an entry of an earlier version, which did not keep what was asked."""
    try:
        asked, _ = request_of(canonical)
    except ValueError:
        return None
    return CachedRequest(
        api=asked.api, model=asked.model, route_pin=asked.route_pin, variant=asked.variant, body=asked.body
    )


async def _sample(
    cache: SemanticCache, ids: IdArray, similarity: Mapping[int, float], now: float
) -> list[MatchedEntry]:
    sample = []
    for entry_id in ids[:MAX_SAMPLE].tolist():
        found = await cache.inspect(entry_id, now)
        if found is not None:  # it may have gone meanwhile
            entry, _ = found
            sample.append(
                MatchedEntry(
                    id=entry_id, text=entry.text and shown(entry.text), similarity=similarity.get(entry_id)
                )
            )
    return sample


async def _remove(cache: SemanticCache, ids: IdArray) -> int:
    removed = 0
    for start in range(0, len(ids), REMOVED_AT_ONCE):
        removed += await cache.remove(ids[start : start + REMOVED_AT_ONCE].tolist())
    return removed


def _no_entry(entry_id: str) -> RequestError:
    return _not_found(f"There is no entry {entry_id[:80]}.")


def _not_found(message: str) -> RequestError:
    return RequestError(message, status=404, code="not_found")


def _json(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
