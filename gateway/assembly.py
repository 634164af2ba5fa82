"""Puts the parts together. It and `gateway.parts` are the only modules that name concrete classes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from backends.protocols import Backend
from embeddings.engine_thread import EngineThread
from embeddings.protocols import Embedder, SemanticCache, StoreSize
from gateway import parts
from gateway.announcements import Announce, route_lines
from gateway.answer_judge import AnswerJudge, asked_of
from gateway.attempts import Attempts, Resilience
from gateway.auth import Authenticator
from gateway.catalog import Catalog, Model, catalog_of
from gateway.chosen_policy import ChosenPolicy, chosen_policy
from gateway.clock import SteadyClock
from gateway.degradation import Degradation
from gateway.embedding_backend import EmbeddingBackend
from gateway.endpoint import Edge
from gateway.generation import Generation
from gateway.health import HealthBoard
from gateway.keys import key_ring
from gateway.learning import Learner
from gateway.ledger import Ledger
from gateway.limits import Limits
from gateway.lookup import CacheLookup
from gateway.metrics import Metrics
from gateway.opening import Opening
from gateway.pipeline import Pipeline
from gateway.policy_state import PolicyStateFile
from gateway.prices import FREE, PriceList, unknown_notice
from gateway.recorder import Recorder
from gateway.request_headers import HeaderPolicy
from gateway.request_log import NoRequestLog, RequestLog
from gateway.served import ServedAnswers
from gateway.settings import Settings
from policies.bounded import BoundedPolicy

NOTHING_STORED = StoreSize(entries=0, stored_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A gateway that has started. `aclose` ends all it owns."""

    settings: Settings
    pipeline: Pipeline
    catalog: Catalog
    edge: Edge
    metrics: Metrics
    ledger: Ledger
    served: ServedAnswers
    learner: Learner | None
    degradation: Degradation
    health: HealthBoard
    cache: SemanticCache | None
    clock: Callable[[], float]
    close: Callable[[], Awaitable[None]]

    async def cache_size(self) -> StoreSize:
        return NOTHING_STORED if self.cache is None else await self.cache.size()

    async def aclose(self) -> None:
        await self.close()


async def assemble(
    settings: Settings,
    announce: Announce,
    *,
    backends: Mapping[str, Backend] | None = None,
    embedder: Embedder | None = None,
    log: RequestLog | None = None,
) -> Gateway:
    """Start every part. Raises EmbedderError, StoreError, EngineUnavailable or ConfigError, each with one
    line that says what to do; what had started is then closed again.

    `backends` that run already, by their names in the settings, and an `embedder` are used instead of
    starting those of the settings. The backends stay their owner's to close. `log` takes a line for each
    request.
    """
    starting = _Starting(settings, announce, backends or {}, embedder, log or NoRequestLog())
    try:
        return await starting.gateway()
    except BaseException:
        await starting.opening.close()
        raise


class _Starting:
    """The parts on their way to a gateway."""

    def __init__(
        self,
        settings: Settings,
        announce: Announce,
        running: Mapping[str, Backend],
        embedder: Embedder | None,
        log: RequestLog,
    ) -> None:
        self._log = log
        self._running = running
        self._embedder = embedder
        self._settings = settings
        self._announce = announce
        self._metrics = Metrics()
        self._degradation = Degradation(self._metrics)
        self._clock = SteadyClock()
        self.opening = Opening(
            settings, announce, metrics=self._metrics, degradation=self._degradation, clock=self._clock
        )
        self.opening.closes(self._flush_log)

    async def _flush_log(self) -> None:
        self._log.flush()

    async def gateway(self) -> Gateway:
        settings = self._settings
        # The store first: it is quick, and a second process on the same file must stop here.
        opening = self.opening
        store = await opening.store()
        ledger = await opening.ledger()
        try:
            async with asyncio.TaskGroup() as group:
                engine_task = group.create_task(opening.embedder(self._embedder))
                backends_task = group.create_task(opening.backends(self._running))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        engine, backends = engine_task.result(), backends_task.result()
        cache = await opening.cache(store, engine)
        secret = await store.secret()
        degradation = self._degradation
        catalog, resilience = await self._catalog(engine, backends)
        chosen = chosen_policy(settings, engine.space if engine else None)
        if chosen.notice:
            self._announce("policy", chosen.notice)
        lookup = await self._lookup(chosen, cache, engine, secret)
        generation = Generation(
            dialects=parts.dialects(),
            attempts=Attempts(resilience),
            cache=cache,
            metrics=self._metrics,
            ledger=ledger,
            degradation=degradation,
            clock=self._clock,
        )
        served = ServedAnswers()
        learner = self._learner(chosen.learns, cache, generation, catalog, secret)
        return Gateway(
            settings=settings,
            pipeline=Pipeline(
                catalog=catalog,
                lookup=lookup,
                generation=generation,
                coalesce_wait_s=settings.cache.coalesce_wait_s,
                replay_tokens_per_s=settings.cache.replay_tokens_per_s,
                clock=self._clock,
                learner=learner,
            ),
            learner=learner,
            catalog=catalog,
            edge=self._edge(secret, ledger, served),
            metrics=self._metrics,
            ledger=ledger,
            served=served,
            degradation=degradation,
            health=HealthBoard(backends, self._metrics),
            cache=cache,
            clock=self._clock,
            close=opening.close,
        )

    async def _lookup(
        self, chosen: ChosenPolicy, cache: SemanticCache | None, engine: EngineThread | None, secret: bytes
    ) -> CacheLookup:
        settings = self._settings
        scorer = await self.opening.pair_encoder(chosen.encoder)
        return CacheLookup(
            settings=settings.cache,
            cache=cache,
            embed=engine.encode if engine else None,
            space=engine.space if engine else None,
            policy=chosen.policy,
            rules=parts.sharing_rules(settings.cache),
            secret=secret,
            deadline_s=settings.embeddings.deadline_ms / 1000,
            degradation=self._degradation,
            clock=self._clock,
            score_pairs=scorer.score if scorer else None,
            conversations=chosen.compares_conversations,
        )

    def _learner(
        self,
        policy: BoundedPolicy | None,
        cache: SemanticCache | None,
        generation: Generation,
        catalog: Catalog,
        secret: bytes,
    ) -> Learner | None:
        """Who teaches a policy that learns, what it had learnt before restored."""
        if policy is None or cache is None:
            return None
        settings = self._settings.cache
        path = parts.policy_state_path(settings)
        state = None if path is None else PolicyStateFile(path, secret)
        if state is not None and state.restore(policy):
            self._announce("policy", f"what was learnt before: {path}")
        ask = None if settings.policy.judge is None else asked_of(catalog, generation, settings.policy.judge)
        learner = Learner(
            policy=policy,
            cache=cache,
            generation=generation,
            judge=AnswerJudge(cache.embed, cache.space, ask),
            metrics=self._metrics,
            verify_share=settings.policy.verify_share,
            clock=self._clock,
            state=state,
        )
        generation.on_kept = learner.generated
        self.opening.closes(learner.aclose)
        return learner

    async def _catalog(
        self, engine: EngineThread | None, backends: Mapping[str, Backend]
    ) -> tuple[Catalog, dict[str, Resilience]]:
        """What clients may ask for, and how hard each backend, by its name, is tried."""
        settings = self._settings
        weights = parts.difficulty_weights(settings, engine.space if engine else None)
        prices = PriceList()
        await asyncio.to_thread(prices.load)
        catalog = catalog_of(settings, backends, weights, prices)
        resilience = {name: parts.resilience(backend) for name, backend in settings.backends.items()}
        if engine is not None:
            own = EmbeddingBackend(engine.encode, engine.dimension)
            resilience[own.name] = Resilience(retries=0)
            for name in parts.embedding_names(settings.embeddings.model):
                catalog.models.setdefault(name, Model(name=name, upstream_name=name, backend=own, price=FREE))
        for line in route_lines(catalog):
            self._announce("route", line)
        notice = unknown_notice({name: model.price for name, model in catalog.models.items()}, prices)
        if notice:
            self._announce("prices", notice)
        return catalog, resilience

    def _edge(self, secret: bytes, ledger: Ledger, served: ServedAnswers) -> Edge:
        auth, server = self._settings.auth, self._settings.server
        limits = Limits(auth.keys, spent_usd=ledger.spent_usd)
        return Edge(
            authenticator=Authenticator(auth.mode, secret, keys=key_ring(auth.keys), limits=limits),
            recorder=Recorder(self._metrics, ledger, served, self._log.write),
            header_policy=HeaderPolicy(server.forward_headers),
            max_body_bytes=server.max_body_bytes,
        )
