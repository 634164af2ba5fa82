"""Is there an answer already? The exact look-up, the embedding, the search and the cache policy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from embeddings.protocols import EmbedderError, EncodedText, Entry, SemanticCache, StoreError
from gateway.degradation import Degradation
from gateway.routing import asked_text, asked_texts
from gateway.settings import Cache as CacheSettings
from gateway.trace import Trace
from gateway.wire.dialect import Dialect
from policies.identity import exact_key, identify
from policies.protocols import CachePolicy
from policies.requirements import is_repeatable
from policies.sharing import SharingRules
from policies.types import (
    Candidate,
    Decision,
    Generate,
    Identity,
    Query,
    Refuse,
    Request,
    ServeCached,
    Verdict,
)

NEIGHBOURS = 5
MAX_EMBEDDED_CHARACTERS = 50_000
"""Longer texts are beyond every embedder's window, and tokenizing megabytes would hold up all others."""

Embed = Callable[[str], Awaitable[EncodedText]]
ScorePairs = Callable[[Sequence[tuple[str, str]]], Awaitable[Sequence[float | None]]]
"""Log-odds that one answer serves both, of (asked, cached); None where it cannot tell."""


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """What a look-up found. `entry` is there when the decision is to serve it; `identity` is None when
    the cache was bypassed whole. `query` is what routing looks at; `chat` asks the same in the form of a
    chat completion; `verdict` is the cache policy's. `ttl_s`: how long an answer may be kept, 0 is not."""

    decision: Decision
    query: Query
    chat: Mapping[str, Any]
    entry: Entry | None = None
    identity: Identity | None = None
    vector: EncodedText | None = None
    verdict: Verdict | None = None
    ttl_s: float = 0.0


class CacheLookup:
    """Looks for an answer, and fails open: a part that is late or broken costs a hit, never a request.

    `embed` is None when there is no embedder, `cache` when caching is off, `score_pairs` when there is no
    cross-encoder. `conversations`: the policy compares the turns before the last message too.
    """

    def __init__(
        self,
        *,
        settings: CacheSettings,
        cache: SemanticCache | None,
        embed: Embed | None,
        space: str | None,
        policy: CachePolicy,
        rules: SharingRules,
        secret: bytes,
        deadline_s: float,
        degradation: Degradation,
        clock: Callable[[], float] = time.time,
        score_pairs: ScorePairs | None = None,
        conversations: bool = False,
    ) -> None:
        self._settings = settings
        self._score_pairs = score_pairs
        self._conversations = conversations
        self._cache = cache
        self._embed = embed
        self._space = space
        self._policy = policy
        self._rules = rules
        self._secret = secret
        self._deadline_s = deadline_s
        self._degradation = degradation
        self._clock = clock
        self._semantic = (
            cache is not None
            and embed is not None
            and settings.policy.kind != "exact"
            and settings.policy.mode != "off"
        )

    def exact_key(self, request: Request) -> bytes | None:
        """None when the cache is bypassed."""
        if self.why_bypassed(request):
            return None
        return exact_key(request, self._secret, self._rules.tenant(request))

    async def find(self, key: bytes, request: Request, trace: Trace) -> Entry | None:
        """The entry under the request's exact key, if the client takes one of its age."""
        if self._cache is None or request.cache.no_cache:
            return None
        entry = self._cache.at_hand(key, self._clock())
        if entry is None:
            entry = await self._guarded(lambda cache: cache.find(key, self._clock()))
        return self._fresh(entry, request, trace)

    async def decide(
        self, request: Request, key: bytes | None, dialect: Dialect, trace: Trace, *, routed: bool
    ) -> Lookup:
        """For a request without an exact answer; `key` as `exact_key` gave it. `routed`: a routing policy
        wants to look at the question's embedding."""
        chat = dialect.chat_view(request.body)
        messages = chat.get("messages") or ()
        asked = asked_text(messages)
        if key is None:
            decision = self._generate(request, "bypass", self.why_bypassed(request), max_ttl_s=0.0)
            encoded = await self._encode(asked, trace) if routed else None
            return Lookup(decision=decision, query=self._query(asked, encoded), chat=chat)
        identity = identify(
            request,
            self._secret,
            self._rules.tenant(request),
            key,
            chat=chat,
            without_question=dialect.without_question,
            conversations=self._conversations,
        )
        trace.client_refused = trace.client_refused or request.cache.no_cache
        restriction = self._rules.restriction(request.api, request.body, asked_texts(messages))
        if restriction.reason:
            identity = replace(identity, text=None, unsafe_reason=restriction.reason)
        wanted = routed or (identity.text is not None and self._semantic)
        searched_by = identity.searched_by or identity.text
        encoded = await self._encode(searched_by or asked, trace) if wanted else None
        query = self._query(asked, encoded)
        comparable = self._comparable(identity, encoded, trace)
        verdict = await self._verdict(request, identity, comparable, trace)
        entry = await self._chosen(verdict, request, trace)
        if entry is not None and verdict.candidate is not None:
            decision = ServeCached(
                kind="hit-semantic",
                entry_id=entry.id,
                similarity=verdict.candidate.similarity,
                reason=verdict.reason,
                confidence=verdict.confidence,
            )
        else:
            kind: Literal["miss", "bypass"] = "miss"
            if request.cache.no_cache or restriction.max_ttl_s == 0:
                kind = "bypass"
            lost = verdict.candidate is not None and trace.shadow_entry_id is None
            reason = "the entry that was found has gone" if lost else verdict.reason
            decision = self._generate(request, kind, reason, max_ttl_s=restriction.max_ttl_s)
        return Lookup(
            decision=decision,
            query=query,
            chat=chat,
            entry=entry,
            identity=identity,
            vector=comparable,
            verdict=verdict,
            ttl_s=self._ttl_s(request, restriction.max_ttl_s),
        )

    def would_serve(self, request: Request, identity: Identity, candidates: Sequence[Candidate]) -> Verdict:
        """What the policy says of answers that are not there yet."""
        if not candidates or identity.text is None or self._settings.policy.mode != "on":
            return Verdict(candidate=None, reason="nothing comparable is being answered")
        try:
            return self._policy.judge(
                identity, candidates, self._clock(), max_error_rate=request.max_error_rate, in_flight=True
            )
        except Exception as error:  # noqa: BLE001 - as in `_judge`
            self._degradation.note("verifier", f"the cache policy failed ({type(error).__name__})")
            return Verdict(candidate=None, reason="the cache policy failed")

    def why_bypassed(self, request: Request) -> str:
        if self._cache is None:
            return "the cache is off"
        if not is_repeatable(request.api, request.body):
            return "the request changes what its upstream keeps"
        temperature = request.body.get("temperature")
        if temperature is not None and temperature > self._settings.max_temperature:
            return f"temperature {temperature:g} is above {self._settings.max_temperature:g}"
        return ""

    def _comparable(
        self, identity: Identity, encoded: EncodedText | None, trace: Trace
    ) -> EncodedText | None:
        """The vector if it stands for the whole text that is compared."""
        if identity.text is None:
            return None
        searched_by = identity.searched_by or identity.text
        trace.truncated = len(searched_by) > MAX_EMBEDDED_CHARACTERS or (
            encoded is not None and encoded.truncated
        )
        return None if trace.truncated else encoded

    async def _verdict(
        self, request: Request, identity: Identity, vector: EncodedText | None, trace: Trace
    ) -> Verdict:
        if request.cache.no_cache:
            reason = "the client asked for no-cache"
        elif identity.text is None:
            reason = identity.unsafe_reason
        elif trace.truncated:
            reason = "the question is longer than the embedder's window"
        elif not self._semantic:
            reason = "only equal requests are served"
        elif vector is None:
            reason = "the embedder gave no vector in time"
        else:
            return await self._judge(request, identity, vector, trace)
        return Verdict(candidate=None, reason=reason)

    def _query(self, asked: str, encoded: EncodedText | None) -> Query:
        if encoded is None:
            return Query(text=asked, vector=None, space=None)
        return Query(text=asked, vector=encoded.vector, space=self._space)

    async def _encode(self, text: str, trace: Trace) -> EncodedText | None:
        if self._embed is None or not text.strip() or len(text) > MAX_EMBEDDED_CHARACTERS:
            return None
        try:
            with trace.stage("embed"):
                async with asyncio.timeout(self._deadline_s):
                    return await self._embed(text)
        except TimeoutError:
            self._degradation.note("embedder", f"no vector within {self._deadline_s * 1000:.0f} ms")
        except EmbedderError as error:
            self._degradation.note("embedder", str(error))
        return None

    async def _judge(
        self, request: Request, identity: Identity, encoded: EncodedText, trace: Trace
    ) -> Verdict:
        assert self._cache is not None
        now = self._clock()
        try:
            with trace.stage("search"):
                async with asyncio.timeout(self._deadline_s):
                    candidates = await self._cache.search(encoded.vector, identity.partition, NEIGHBOURS, now)
        except TimeoutError:
            self._degradation.note("index", f"no result within {self._deadline_s * 1000:.0f} ms")
            return Verdict(candidate=None, reason="the index gave no result in time")
        except StoreError as error:
            self._degradation.note("index", str(error))
            return Verdict(candidate=None, reason="the index could not be searched")
        limit = request.cache.max_age_s
        if limit is not None:
            fresh = [candidate for candidate in candidates if now - candidate.created_at <= limit]
            if len(fresh) < len(candidates):
                trace.client_refused = True
            if candidates and not fresh:
                return Verdict(candidate=None, reason=f"what is cached is older than max-age={limit:g}")
            candidates = fresh
        with trace.stage("verify"):
            try:
                candidates = await self._scored(identity, candidates)
                return self._policy.judge(
                    identity,
                    candidates,
                    now,
                    max_error_rate=request.max_error_rate,
                    may_explore=not request.cache.only_if_cached,
                )
            except Exception as error:  # noqa: BLE001 - a policy that fails costs a hit, never a request
                self._degradation.note("verifier", f"the cache policy failed ({type(error).__name__})")
                return Verdict(candidate=None, reason="the cache policy failed")

    async def _scored(self, identity: Identity, candidates: list[Candidate]) -> list[Candidate]:
        """With a pair score where the policy wants one, if it comes in time."""
        if self._score_pairs is None or not candidates:
            return candidates
        wanted = self._policy.undecided(identity, candidates)
        if not wanted:
            return candidates
        try:
            async with asyncio.timeout(self._deadline_s):
                scores = await self._score_pairs(list(wanted.values()))
        except TimeoutError:
            self._degradation.note("verifier", f"no score within {self._deadline_s * 1000:.0f} ms")
        except EmbedderError as error:
            self._degradation.note("verifier", str(error))
        else:
            found = dict(zip(wanted, scores, strict=True))
            candidates = [replace(one, pair_score=found.get(one.entry_id)) for one in candidates]
        return candidates

    async def _chosen(self, verdict: Verdict, request: Request, trace: Trace) -> Entry | None:
        """The entry to serve for a verdict, if the mode allows it."""
        if verdict.candidate is None:
            return None
        entry_id = verdict.candidate.entry_id
        if self._settings.policy.mode == "shadow":
            trace.shadow_entry_id = entry_id
            return None
        entry = await self._guarded(lambda cache: cache.get(entry_id, self._clock()))
        return self._own(entry, request)

    async def _guarded(self, read: Callable[[SemanticCache], Awaitable[Entry | None]]) -> Entry | None:
        if self._cache is None:
            return None
        try:
            async with asyncio.timeout(self._deadline_s):
                return await read(self._cache)
        except TimeoutError:
            self._degradation.note("store", f"no answer within {self._deadline_s * 1000:.0f} ms")
        except StoreError as error:
            self._degradation.note("store", str(error))
        return None

    def _generate(
        self, request: Request, cache: Literal["miss", "bypass"], reason: str, *, max_ttl_s: float | None
    ) -> Decision:
        if request.cache.only_if_cached:
            return Refuse(reason=f"only-if-cached, and {reason}")
        return Generate(cache=cache, reason=reason, ttl_s=self._ttl_s(request, max_ttl_s))

    def _ttl_s(self, request: Request, max_ttl_s: float | None) -> float:
        if request.cache.no_store:
            return 0.0
        ttl_s = self._settings.ttl_s if request.ttl_s is None else request.ttl_s
        return ttl_s if max_ttl_s is None else min(ttl_s, max_ttl_s)

    def _fresh(self, entry: Entry | None, request: Request, trace: Trace) -> Entry | None:
        limit = request.cache.max_age_s
        if entry is None or limit is None or self._clock() - entry.answer.created_at <= limit:
            return self._own(entry, request)
        trace.client_refused = True
        return None

    def _own(self, entry: Entry | None, request: Request) -> Entry | None:
        """Its keys have settled already whose an entry is; a store that mixes them up is found out here."""
        if entry is None or not entry.request:  # who asked what is not known of entries of the first version
            return entry
        tenant = self._rules.tenant(request) in ("", entry.tenant)
        if tenant and entry.api == request.api and entry.model == request.model:
            return entry
        self._degradation.note("store", f"entry {entry.id} is another tenant's, API's or model's")
        return None


def same_request(entry: Entry) -> ServeCached:
    """The decision to serve an entry found by exact key."""
    return ServeCached(
        kind="hit-exact", entry_id=entry.id, similarity=1.0, reason="the same request", confidence=1.0
    )
