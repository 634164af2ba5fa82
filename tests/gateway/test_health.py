"""Readiness, degradation and sweeping."""

from __future__ import annotations

import asyncio
import time

import pytest
import structlog.testing

from backends.protocols import Health
from embeddings.memory_store import MemoryStore
from embeddings.protocols import StoreError
from embeddings.semantic_cache import LocalSemanticCache
from gateway import health as health_module
from gateway.degradation import RECENT_S, Degradation
from gateway.health import CHECK_EVERY_S, HealthBoard
from gateway.housekeeping import Housekeeping
from gateway.metrics import Metrics
from tests.gateways import FakeBackend


class FakeClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeCountingBackend(FakeBackend):
    checks = 0

    async def health(self) -> Health:
        self.checks += 1
        return await super().health()


async def test_a_ready_backend_is_asked_twice_a_minute_at_most_and_one_that_is_down_each_time() -> None:
    backend, clock = FakeCountingBackend(), FakeClock()
    board = HealthBoard({"b": backend}, Metrics(), clock)
    for _ in range(3):
        await board.backends()
    assert backend.checks == 1
    clock.now += CHECK_EVERY_S
    backend.ready = False
    assert not (await board.backends())["b"].ready
    backend.ready = True
    assert (await board.backends())["b"].ready
    assert backend.checks == 3


async def test_a_backend_that_does_not_answer_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeHangingBackend(FakeBackend):
        async def health(self) -> Health:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr(health_module, "CHECK_TIMEOUT_S", 0.01)
    told = await HealthBoard({"b": FakeHangingBackend()}, Metrics()).backends()
    assert not told["b"].ready
    assert "no answer within" in told["b"].detail


def test_a_part_is_degraded_for_a_minute_and_logged_once_in_it() -> None:
    metrics, clock = Metrics(), FakeClock()
    with structlog.testing.capture_logs() as lines:
        degradation = Degradation(metrics, clock)
        for _ in range(3):
            degradation.note("embedder", "late")
        assert degradation.current() == {"embedder": "late"}
        clock.now += RECENT_S
        assert degradation.current() == {}
        degradation.note("embedder", "late again")
    assert [line["detail"] for line in lines] == ["late", "late again"]
    assert b'lockgate_cache_faults_total{part="embedder"} 4.0' in metrics.render()


async def test_housekeeping_sweeps_and_survives_a_store_that_fails() -> None:
    sweeps: list[float] = []
    twice = asyncio.Event()

    class FakeFailingCache(LocalSemanticCache):
        async def sweep(self, now: float) -> int:
            sweeps.append(now)
            if len(sweeps) == 1:
                raise StoreError("the disk is away")
            twice.set()
            return 1

    cache = FakeFailingCache(MemoryStore(10))
    housekeeping = Housekeeping(cache, time.time, sweep_every_s=0.001)
    await asyncio.wait_for(twice.wait(), 5)
    await housekeeping.aclose()
    await cache.aclose()
