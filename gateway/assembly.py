"""Puts the parts together. It and `gateway.parts` are the only modules that name concrete classes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from backends.batched.backend import BatchedBackend
from backends.batched.config import BatchedConfig
from backends.protocols import Backend
from embeddings.engine_thread import EngineThread
from embeddings.pair_thread import PairThread
from embeddings.protocols import AnswerStore, Embedder, SemanticCache, StoreSize, VectorIndex
from embeddings.semantic_cache import LocalSemanticCache
from gateway import parts
from gateway.announcements import Announce, index_progress, route_lines
from gateway.answer_judge import AnswerJudge, asked_of
from gateway.attempts import Attempts, Resilience
from gateway.auth import Authenticator
from gateway.catalog import Catalog, Model, catalog_of
from gateway.clock import SteadyClock
from gateway.degradation import Degradation
from gateway.embedding_backend import EmbeddingBackend
from gateway.endpoint import Edge
from gateway.generation import Generation
from gateway.health import HealthBoard
from gateway.housekeeping import Housekeeping
from gateway.keys import key_ring
from gateway.learning import Learner
from gateway.ledger import Ledger, open_ledger
from gateway.limits import Limits
from gateway.lookup import CacheLookup
from gateway.metrics import Metrics
from gateway.pipeline import Pipeline
from gateway.policy_state import PolicyStateFile
from gateway.prices import FREE, PriceList, unknown_notice
from gateway.recorder import Recorder
from gateway.request_headers import HeaderPolicy
from gateway.request_log import NoRequestLog, RequestLog
from gateway.served import ServedAnswers
from gateway.settings import BatchedBackendSettings, Settings
from policies.bounded import BoundedPolicy
from policies.protocols import CachePolicy

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
        await starting.close()
        raise


class _Starting:
    """Collects what is open on the way, so that a failed start leaves nothing behind."""

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
        self._closers: list[Callable[[], Awaitable[None]]] = [self._flush_log]

    async def _flush_log(self) -> None:
        self._log.flush()

    async def close(self) -> None:
        while self._closers:
            await self._closers.pop()()

    async def gateway(self) -> Gateway:
        settings = self._settings
        # The store first: it is quick, and a second process on the same file must stop here.
        store = await self._open_store()
        ledger = await self._open_ledger()
        try:
            async with asyncio.TaskGroup() as group:
                engine_task = group.create_task(self._open_embedder())
                backends_task = group.create_task(self._start_backends())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        engine, backends = engine_task.result(), backends_task.result()
        cache = await self._open_cache(store, engine)
        secret = await store.secret()
        degradation = self._degradation
        catalog, resilience = await self._catalog(engine, backends)
        policy, lookup = await self._lookup(cache, engine, secret)
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
        learner = self._learner(policy, cache, generation, catalog, secret)
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
            close=self.close,
        )

    async def _lookup(
        self, cache: SemanticCache | None, engine: EngineThread | None, secret: bytes
    ) -> tuple[CachePolicy, CacheLookup]:
        """The cache policy, and the look-up that asks it."""
        settings = self._settings
        space = engine.space if engine else None
        policy, encoder = parts.cache_policy(settings, space)
        if why := parts.why_exact(settings, space):
            self._announce("policy", why)
        scorer = await self._open_pair_encoder(encoder)
        return policy, CacheLookup(
            settings=settings.cache,
            cache=cache,
            embed=engine.encode if engine else None,
            space=space,
            policy=policy,
            rules=parts.sharing_rules(settings.cache),
            secret=secret,
            deadline_s=settings.embeddings.deadline_ms / 1000,
            degradation=self._degradation,
            clock=self._clock,
            score_pairs=scorer.score if scorer else None,
            conversations=isinstance(policy, BoundedPolicy) and policy.judges_conversations,
        )

    async def _open_pair_encoder(self, wanted: parts.WantedEncoder | None) -> PairThread | None:
        if wanted is None:
            return None
        began = time.perf_counter()
        threads = self._settings.embeddings.threads
        thread = PairThread(await asyncio.to_thread(parts.pair_encoder, wanted, threads))

        async def close() -> None:
            await asyncio.to_thread(thread.close)

        self._closers.append(close)
        self._announce("verifier", f"{thread.identity} ({time.perf_counter() - began:.1f} s)")
        return thread

    def _learner(
        self,
        policy: CachePolicy,
        cache: SemanticCache | None,
        generation: Generation,
        catalog: Catalog,
        secret: bytes,
    ) -> Learner | None:
        """Who teaches a policy that learns, what it had learnt before restored."""
        if not isinstance(policy, BoundedPolicy) or cache is None:
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
        self._closers.append(learner.aclose)
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

    async def _open_store(self) -> AnswerStore:
        cache = self._settings.cache
        if not cache.enabled or cache.store == "memory":
            from embeddings.memory_store import MemoryStore

            store: AnswerStore = MemoryStore(cache.max_entries, cache.max_bytes)
        else:
            store = await asyncio.to_thread(parts.sqlite, cache)
        self._closers.append(store.aclose)
        return store

    async def _open_ledger(self) -> Ledger:
        loop = asyncio.get_running_loop()

        def on_fault(detail: str) -> None:  # on the ledger's thread
            loop.call_soon_threadsafe(self._degradation.note, "ledger", detail)

        ledger = await asyncio.to_thread(open_ledger, self._settings, on_fault)

        async def close() -> None:
            await asyncio.to_thread(ledger.close)

        self._closers.append(close)
        return ledger

    async def _open_embedder(self) -> EngineThread | None:
        settings = self._settings
        routed = any(route.policy.kind == "difficulty" for route in settings.routes.values())
        if not (routed or parts.semantic(settings)):
            return None
        began = time.perf_counter()
        embedder = self._embedder
        if embedder is None:
            embedder = await asyncio.to_thread(parts.embedder, settings)
        engine = EngineThread(embedder)

        async def close() -> None:
            await asyncio.to_thread(engine.close)

        self._closers.append(close)
        self._announce("embedder", f"{engine.space} ({time.perf_counter() - began:.1f} s)")
        return engine

    async def _start_backends(self) -> dict[str, Backend]:
        backends: dict[str, Backend] = {}
        for name, settings in self._settings.backends.items():
            if name in self._running:
                backends[name] = self._running[name]
            elif isinstance(settings, BatchedBackendSettings):
                config = BatchedConfig(
                    engine=settings.engine,
                    model=settings.model,
                    max_batch=settings.max_batch,
                    context_tokens=settings.context_tokens,
                    threads=settings.threads,
                    max_queue=settings.max_queue,
                )
                batched = BatchedBackend(name, config, observer=self._metrics.engine)
                self._closers.append(batched.aclose)
                await batched.start()
                self._announce("engine", (await batched.health()).detail)
                backends[name] = batched
            else:
                hosted = parts.http_backend(name, settings)
                self._closers.append(hosted.aclose)
                backends[name] = hosted
        return backends

    async def _open_cache(self, store: AnswerStore, engine: EngineThread | None) -> SemanticCache | None:
        settings = self._settings
        if not settings.cache.enabled:
            self._announce("cache", "off (cache.enabled = false)")
            return None
        index: VectorIndex | None = None
        if engine is not None and parts.semantic(settings):
            from embeddings.faiss_index import FaissIndex

            index = await asyncio.to_thread(FaissIndex, engine.dimension)
        snapshot = parts.snapshot_path(settings.cache)
        cache = LocalSemanticCache(store, index, engine if index is not None else None, snapshot=snapshot)
        self._closers.append(cache.aclose)
        await cache.start(self._clock(), index_progress(self._announce))
        housekeeping = Housekeeping(cache, self._clock)
        self._closers.append(housekeeping.aclose)
        where = settings.cache.path if settings.cache.store == "sqlite" else "memory"
        shared = ", shared by ALL tenants" if settings.cache.share == "everyone" else ""
        self._announce("cache", f"{where}, {(await cache.size()).entries} entries{shared}")
        return cache
