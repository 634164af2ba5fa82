"""What users of semantic caches report of thresholds, times and faults: one test for each report."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import numpy as np
import pytest

from embeddings.protocols import EmbedderError, Encoding, FloatVector
from gateway.config import parse
from gateway.config_problems import ConfigError
from tests.cache_cases import give_vectors, serving_from, vector_at
from tests.entries import DIMENSION
from tests.gateway.admin_cases import administered, cache_of, invalidated
from tests.gateway.test_kept_answers import FakeClock
from tests.gateways import SETTINGS, running, told, until
from tests.servers import serving
from tests.upstreams import FakeUpstream

COSINES = {"asked": 1.0, "close": 0.95, "related": 0.3, "unrelated": 0.0, "against": -0.3, "opposite": -1.0}
"""By the only word of a question, its cosine to the question that is cached."""


def by_word(text: str) -> FloatVector:
    return vector_at(COSINES[text])


async def served_at(min_similarity: float) -> dict[str, float]:
    """Which of COSINES are served with this threshold, and the similarity that is told of each."""
    async with running(cache=serving_from(min_similarity)) as test:
        give_vectors(test, by_word)
        await test.ask("asked")
        served = {}
        for word in COSINES:
            hit = await test.ask(word, headers={"cache-control": "only-if-cached"})
            if hit.status_code == 200:
                served[word] = float(hit.headers["x-lockgate-similarity"])
        return served


async def test_similarity_is_not_a_distance() -> None:
    """Higher is closer, and a higher threshold is stricter."""
    assert await served_at(0.9) == {"asked": 1.0, "close": 0.95}
    assert await served_at(0.97) == {"asked": 1.0}
    assert await served_at(0.2) == {"asked": 1.0, "close": 0.95, "related": 0.3}


async def test_similarity_goes_from_minus_1_to_1_not_from_0_to_2() -> None:
    assert await served_at(-1.0) == COSINES
    for value in (1.5, 2.0, -1.1):
        with pytest.raises(ConfigError, match=r"cache\.policy\.min_similarity"):
            parse({"cache": {"policy": {"kind": "static", "min_similarity": value}}}, {}, source="test")


async def test_a_threshold_of_0_is_not_ignored() -> None:
    assert set(await served_at(0.0)) == {"asked", "close", "related", "unrelated"}


async def test_a_threshold_of_0_is_not_ignored_when_entries_are_removed() -> None:
    async with administered(cache=serving_from(0.9)) as test:
        give_vectors(test, by_word)
        for word in COSINES:
            await test.ask(word, headers={"cache-control": "no-cache"})
        asked = {"similar_to": "asked", "dry_run": True}
        assert (await invalidated(test, **asked))["matched"] == 2
        assert (await invalidated(test, **asked, min_similarity=0.0))["matched"] == 4
        assert (await invalidated(test, **asked, min_similarity=0))["matched"] == 4


async def test_a_lifetime_of_0_is_not_ignored() -> None:
    async with running() as test:
        await test.ask(headers={"x-lockgate-ttl-s": "0"})
        assert cache_of(await test.ask()) == "miss"
        assert cache_of(await test.ask(headers={"cache-control": "max-age=0"})) == "miss"


async def test_seconds_are_not_milliseconds() -> None:
    async with running(cache={**SETTINGS["cache"], "ttl_s": 30}) as test:
        clock = FakeClock(test.gateway)
        await test.ask("sky is it blue?")
        await test.ask("sea is it salty?", headers={"x-lockgate-ttl-s": "3"})
        clock.pass_(2)
        hit = await test.ask("sea is it salty?", headers={"cache-control": "max-age=3"})
        assert (cache_of(hit), hit.headers["age"]) == ("hit-exact", "2")
        clock.pass_(2)
        assert cache_of(await test.ask("sea is it salty?", headers={"x-lockgate-ttl-s": "1"})) == "miss"
        assert cache_of(await test.ask("sky is it blue?", headers={"cache-control": "max-age=3"})) == "miss"
        clock.pass_(31)
        assert cache_of(await test.ask("sky is it blue?")) == "miss"


def waiting(released: threading.Event, at_most_s: float | None = None) -> Callable[[], None]:
    def wait() -> None:
        released.wait(at_most_s)

    return wait


async def test_milliseconds_are_not_seconds() -> None:
    """A deadline of 300 is neither 300 s, nor 300 µs."""
    async with running(embeddings={"deadline_ms": 300}) as test:
        released = threading.Event()
        test.embedder.delay = waiting(released, 0.02)
        assert "embed" in (await test.ask("sky is it blue?")).headers["server-timing"]
        assert cache_of(await test.ask("sky why blue?")) == "hit-semantic"
        test.embedder.delay = waiting(released)
        try:
            async with asyncio.timeout(30):
                assert cache_of(await test.ask("sea is it salty?")) == "miss"
        finally:
            released.set()


async def test_a_dead_embedder_does_not_stall_every_request() -> None:
    """Nor does a queue grow before it: many wait one deadline together, not one after another."""
    async with running(embeddings={"deadline_ms": 100}) as test:
        released = threading.Event()
        test.embedder.delay = waiting(released)
        try:
            async with asyncio.timeout(10):  # 60 deadlines in turn would be 6 s for each of five rounds
                for round_ in range(5):
                    asked = [test.ask(f"topic{number} of round{round_}?") for number in range(60)]
                    replies = await asyncio.gather(*asked)
                    assert {reply.status_code for reply in replies} == {200}
        finally:
            released.set()
        assert cache_of(await test.ask("topic7 of round3?")) == "hit-exact", (
            "what was asked meanwhile is kept"
        )


FAULTS: dict[str, Callable[[str], FloatVector]] = {
    "zeros": lambda _: np.zeros(DIMENSION, dtype=np.float32),
    "not a number": lambda _: np.full(DIMENSION, np.nan, dtype=np.float32),
    "one vector, not of unit norm": lambda _: np.full(DIMENSION, 1.0, dtype=np.float32),
    "infinite": lambda _: np.full(DIMENSION, np.inf, dtype=np.float32),
    "another dimension": lambda _: np.ones(1, dtype=np.float32),
    "one vector of unit norm": lambda _: vector_at(1.0),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_not_everything_gets_one_answer_after_an_embedder_fault(fault: str) -> None:
    async with running() as test:
        await test.ask("sky is it blue?")
        give_vectors(test, FAULTS[fault])
        texts = ["how do I bake bread?", "name a river in Peru", "translate horse into Greek"]
        assert [told(await test.ask(text)) for text in texts] == ["answer 2", "answer 3", "answer 4"]


async def test_not_everything_gets_one_answer_after_an_embedder_raised() -> None:
    async with running() as test:

        def fail() -> None:
            raise EmbedderError("it is dead")

        await test.ask("sky is it blue?")
        test.embedder.delay, sound = fail, test.embedder.delay
        assert [told(await test.ask(text)) for text in ("sea?", "sand?")] == ["answer 2", "answer 3"]
        test.embedder.delay = sound
        assert told(await test.ask("sun is it hot?")) == "answer 4"
        assert told(await test.ask("sky why blue?")) == "answer 1"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_miss_is_not_embedded_twice(stream: bool) -> None:
    """The search, the routing and the store share one vector; an exact hit needs none."""
    async with running() as test:
        embedded: list[str] = []
        encode = test.embedder.encode

        def noted(texts: Sequence[str]) -> Encoding:
            embedded.extend(texts)
            return encode(texts)

        test.embedder.encode = noted  # type: ignore[method-assign]
        texts = ("sky is it blue?", "sky is it blue?", "sky why blue?")
        for text, kind in zip(texts, ("miss", "hit-exact", "hit-semantic"), strict=True):
            assert cache_of(await test.ask(text, stream=stream)) == kind
        assert embedded == ["sky is it blue?", "sky why blue?"]


async def test_simultaneous_identical_requests_do_not_all_go_upstream() -> None:
    async with running() as test:
        test.backend.gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(test.ask("sky is it blue?", stream=n % 2 == 0)) for n in range(50)]
            await until(lambda: test.followers == 50)
            test.backend.gate.set()
        assert [told(task.result()) for task in asked] == ["answer 1"] * 50
        assert len(test.backend.calls) == 1


@pytest.mark.model
async def test_hashes_do_not_differ_between_processes(tmp_path: Path) -> None:
    """Neither the exact key nor the partition: another process finds both ways what one has stored."""
    questions = ("How do I reset my password?", "How can I reset my password?")
    async with FakeUpstream() as upstream:
        config = tmp_path / "config.toml"
        config.write_text(
            f'[cache]\npath = "{tmp_path}/cache.db"\n[embeddings]\ndeadline_ms = 10000\n'
            f'[backends.up]\nkind = "openai"\nbase_url = "{upstream.base_url}"\n'
            '[models.m]\nbackend = "up"\nname = "m"\n'
        )
        kinds = []
        for seed in ("1", "2"):
            extra = {"PYTHONHASHSEED": seed}
            with serving(tmp_path, "--config", str(config), extra=extra) as server:
                async with httpx.AsyncClient(base_url=server.base_url, timeout=30) as client:
                    for text in questions:
                        body = {"model": "m", "messages": [{"role": "user", "content": text}], "seed": 1}
                        kinds.append(cache_of(await client.post("/chat/completions", json=body)))
                server.stop()
        assert kinds == ["miss", "hit-semantic", "hit-exact", "hit-semantic"]
