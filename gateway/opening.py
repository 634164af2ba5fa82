"""Opens the parts that hold something: files, threads, processes, connections; and closes them again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from backends.protocols import Backend
from embeddings.engine_thread import EngineThread
from embeddings.pair_thread import PairThread
from embeddings.protocols import AnswerStore, Embedder, SemanticCache
from gateway import parts
from gateway.announcements import Announce, index_progress
from gateway.chosen_policy import WantedEncoder
from gateway.degradation import Degradation
from gateway.housekeeping import Housekeeping
from gateway.ledger import Ledger, open_ledger
from gateway.metrics import Metrics
from gateway.settings import BatchedBackendSettings, Settings


class Opening:
    """What has been opened so far, so that a start that fails leaves nothing behind."""

    def __init__(
        self,
        settings: Settings,
        announce: Announce,
        *,
        metrics: Metrics,
        degradation: Degradation,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._announce = announce
        self._metrics = metrics
        self._degradation = degradation
        self._clock = clock
        self._closers: list[Callable[[], Awaitable[None]]] = []

    def closes(self, closer: Callable[[], Awaitable[None]]) -> None:
        """To be closed before all that has been opened by now."""
        self._closers.append(closer)

    async def close(self) -> None:
        """The latest first."""
        while self._closers:
            await self._closers.pop()()

    def _close_on_a_thread(self, close: Callable[[], None]) -> None:
        async def closer() -> None:
            await asyncio.to_thread(close)

        self._closers.append(closer)

    async def store(self) -> AnswerStore:
        store = await asyncio.to_thread(parts.answer_store, self._settings.cache)
        self._closers.append(store.aclose)
        return store

    async def ledger(self) -> Ledger:
        loop = asyncio.get_running_loop()

        def on_fault(detail: str) -> None:  # on the ledger's thread
            loop.call_soon_threadsafe(self._degradation.note, "ledger", detail)

        ledger = await asyncio.to_thread(open_ledger, self._settings, on_fault)
        self._close_on_a_thread(ledger.close)
        return ledger

    async def embedder(self, given: Embedder | None) -> EngineThread | None:
        settings = self._settings
        routed = any(route.policy.kind == "difficulty" for route in settings.routes.values())
        if not (routed or parts.semantic(settings)):
            return None
        began = time.perf_counter()
        embedder = given if given is not None else await asyncio.to_thread(parts.embedder, settings)
        engine = EngineThread(embedder)
        self._close_on_a_thread(engine.close)
        self._announce("embedder", f"{engine.space} ({time.perf_counter() - began:.1f} s)")
        return engine

    async def backends(self, running: Mapping[str, Backend]) -> dict[str, Backend]:
        backends: dict[str, Backend] = {}
        for name, settings in self._settings.backends.items():
            if name in running:
                backends[name] = running[name]
            elif isinstance(settings, BatchedBackendSettings):
                batched = parts.batched_backend(name, settings, self._metrics.engine)
                self._closers.append(batched.aclose)
                await batched.start()
                self._announce("engine", (await batched.health()).detail)
                backends[name] = batched
            else:
                hosted = parts.http_backend(name, settings)
                self._closers.append(hosted.aclose)
                backends[name] = hosted
        return backends

    async def cache(self, store: AnswerStore, engine: EngineThread | None) -> SemanticCache | None:
        settings = self._settings
        if not settings.cache.enabled:
            self._announce("cache", "off (cache.enabled = false)")
            return None
        cache = await asyncio.to_thread(parts.semantic_cache, store, engine, settings)
        self._closers.append(cache.aclose)
        await cache.start(self._clock(), index_progress(self._announce))
        housekeeping = Housekeeping(cache, self._clock)
        self._closers.append(housekeeping.aclose)
        where = settings.cache.path if settings.cache.store == "sqlite" else "memory"
        shared = ", shared by ALL tenants" if settings.cache.share == "everyone" else ""
        self._announce("cache", f"{where}, {(await cache.size()).entries} entries{shared}")
        return cache

    async def pair_encoder(self, wanted: WantedEncoder | None) -> PairThread | None:
        if wanted is None:
            return None
        began = time.perf_counter()
        threads = self._settings.embeddings.threads
        thread = PairThread(await asyncio.to_thread(wanted.opened, threads))
        self._close_on_a_thread(thread.close)
        self._announce("verifier", f"{thread.identity} ({time.perf_counter() - began:.1f} s)")
        return thread
