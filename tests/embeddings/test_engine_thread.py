from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from embeddings.engine_thread import EngineCounters, EngineThread
from embeddings.protocols import EmbedderError, EncodedText, Encoding
from tests.entries import DIMENSION, SPACE, FakeEmbedder, unit_vector


class FakeGatedEmbedder(FakeEmbedder):
    """Each call announces itself and waits to be let through."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def encode(self, texts: Sequence[str]) -> Encoding:
        self.entered.release()
        assert self.gate.acquire(timeout=30)
        return super().encode(texts)

    async def until_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=30)


class FakePoisonedEmbedder(FakeGatedEmbedder):
    """Fails on any batch with `poison` in it."""

    def encode(self, texts: Sequence[str]) -> Encoding:
        encoding = super().encode(texts)
        if "poison" in texts:
            raise ValueError("secret text")
        if "refused" in texts:
            raise EmbedderError("the embedding server is down: start it")
        if "nan" in texts:
            encoding.vectors[list(texts).index("nan")] = np.nan
        return encoding


@pytest.fixture
def gated() -> Iterator[tuple[FakeGatedEmbedder, EngineThread]]:
    embedder = FakeGatedEmbedder()
    engine = EngineThread(embedder, max_batch=4, max_backlog=6)
    yield embedder, engine
    embedder.gate.release(1000)
    engine.close()


Gated = tuple[FakeGatedEmbedder, EngineThread]


async def encode_behind_a_busy_embedder(
    gated: Gated, texts: Sequence[str]
) -> list[asyncio.Task[EncodedText]]:
    """Queue `texts` in order while the embedder is busy with another text."""
    embedder, engine = gated
    loop = asyncio.get_running_loop()
    first = loop.create_task(engine.encode("first"))
    await embedder.until_entered()
    tasks = [first] + [loop.create_task(engine.encode(text)) for text in texts]
    await asyncio.sleep(0)  # each task runs up to its wait
    return tasks


async def test_encodes_one_text() -> None:
    engine = EngineThread(FakeEmbedder())
    assert (engine.space, engine.dimension, engine.max_tokens) == (SPACE, DIMENSION, 8)
    encoded = await engine.encode("two words")
    assert np.array_equal(encoded.vector, unit_vector("two words"))
    assert (encoded.token_count, encoded.truncated) == (2, False)
    engine.close()


async def test_says_when_a_text_was_truncated() -> None:
    engine = EngineThread(FakeEmbedder())
    encoded = await engine.encode("w " * 9)
    assert (encoded.token_count, encoded.truncated) == (9, True)
    assert engine.counters == EngineCounters(batches=1, texts=1, truncated=1, last_batch=1)
    engine.close()


async def test_what_waits_becomes_one_batch(gated: Gated) -> None:
    embedder, engine = gated
    tasks = await encode_behind_a_busy_embedder(gated, ["a", "b", "a", "c"])
    embedder.gate.release(2)
    results = await asyncio.gather(*tasks)
    assert embedder.calls == [["first"], ["a", "b", "c"]]
    for text, result in zip(["first", "a", "b", "a", "c"], results, strict=True):
        assert np.array_equal(result.vector, unit_vector(text))
    assert engine.counters == EngineCounters(batches=2, texts=4, truncated=0, last_batch=3)


async def test_batches_are_bounded(gated: Gated) -> None:
    embedder, _ = gated
    tasks = await encode_behind_a_busy_embedder(gated, ["a", "b", "c", "d", "d", "e"])
    embedder.gate.release(3)
    await asyncio.gather(*tasks)
    assert embedder.calls == [["first"], ["a", "b", "c", "d"], ["e"]]


async def test_cancelled_waiters_are_not_encoded(gated: Gated) -> None:
    embedder, _ = gated
    tasks = await encode_behind_a_busy_embedder(gated, ["a", "b", "b", "c"])
    for place in (1, 2):
        tasks[place].cancel()
    await asyncio.sleep(0)
    embedder.gate.release(2)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert embedder.calls == [["first"], ["b", "c"]]
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [
        False,
        True,
        True,
        False,
        False,
    ]


async def test_a_waiter_cancelled_in_its_batch_harms_no_one(gated: Gated) -> None:
    embedder, engine = gated
    tasks = await encode_behind_a_busy_embedder(gated, ["a", "b"])
    tasks[0].cancel()
    await asyncio.sleep(0)
    embedder.gate.release(2)
    results = await asyncio.gather(*tasks[1:])
    assert np.array_equal(results[1].vector, unit_vector("b"))
    assert engine.counters.batches == 2


async def test_backlog_is_bounded_and_forgets_the_cancelled(gated: Gated) -> None:
    embedder, engine = gated
    tasks = await encode_behind_a_busy_embedder(gated, list("abcdef"))
    with pytest.raises(EmbedderError, match="backlog"):
        await engine.encode("g")
    tasks[3].cancel()
    await asyncio.sleep(0)
    late = asyncio.get_running_loop().create_task(engine.encode("g"))
    await asyncio.sleep(0)
    assert not late.done()
    embedder.gate.release(10)
    assert np.array_equal((await late).vector, unit_vector("g"))
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("poison", r"encoding failed \(ValueError at test_engine_thread.py:\d+\)"),
        ("refused", "is down: start it"),
        ("nan", "norm is not 1"),
    ],
)
async def test_a_poisoned_text_fails_alone(text: str, message: str) -> None:
    embedder = FakePoisonedEmbedder()
    engine = EngineThread(embedder)
    tasks = await encode_behind_a_busy_embedder((embedder, engine), ["a", text, "b", text])
    embedder.gate.release(100)
    results = (await asyncio.gather(*tasks, return_exceptions=True))[1:]
    assert embedder.calls[1:] == [["a", text, "b"], ["a"], [text], ["b"]]
    for place, name in ((0, "a"), (2, "b")):
        result = results[place]
        assert isinstance(result, EncodedText)
        assert np.array_equal(result.vector, unit_vector(name))
    for place in (1, 3):
        assert isinstance(results[place], EmbedderError)
        with pytest.raises(EmbedderError, match=message) as caught:
            raise results[place]  # type: ignore[misc]
        assert "secret" not in str(caught.value)
    assert np.array_equal((await engine.encode("after")).vector, unit_vector("after"))
    engine.close()


async def test_refuses_an_embedder_that_returns_another_shape() -> None:
    embedder = FakeEmbedder()
    engine = EngineThread(embedder)
    embedder.encode = lambda texts: Encoding(  # type: ignore[method-assign]
        vectors=np.zeros((1, 3), dtype=np.float32),
        token_counts=np.zeros(1, dtype=np.int64),
        truncated=np.zeros(1, dtype=np.bool_),
    )
    with pytest.raises(EmbedderError, match=r"\(1, 3\), not float32 \(1, 16\)"):
        await engine.encode("a")
    engine.close()


async def test_closing_fails_those_who_wait(gated: Gated) -> None:
    embedder, engine = gated
    tasks = await encode_behind_a_busy_embedder(gated, ["a", "b"])
    closing = asyncio.get_running_loop().create_task(asyncio.to_thread(engine.close))
    while not engine._closing:  # noqa: ASYNC110 - another thread sets it
        await asyncio.sleep(0)
    embedder.gate.release()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await closing
    assert isinstance(results[0], EncodedText)
    for result in results[1:]:
        assert isinstance(result, EmbedderError)
        assert "closed" in str(result)
    assert embedder.closed
    with pytest.raises(EmbedderError, match="closed"):
        await engine.encode("late")
    engine.close()


def test_serves_several_event_loops() -> None:
    engine = EngineThread(FakeEmbedder())

    async def many(prefix: str) -> None:
        texts = [f"{prefix} {n}" for n in range(50)]
        for text, encoded in zip(texts, await asyncio.gather(*map(engine.encode, texts)), strict=True):
            assert np.array_equal(encoded.vector, unit_vector(text))

    threads = [threading.Thread(target=asyncio.run, args=(many(name),)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(many("d"))
    assert engine.counters.texts == 200
    engine.close()


def test_a_loop_that_closed_while_it_waited_harms_no_one(gated: Gated) -> None:
    embedder, engine = gated

    async def leave_at_once() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await engine.encode("abandoned")

    asyncio.run(leave_at_once())
    embedder.gate.release(2)
    assert np.array_equal(asyncio.run(engine.encode("next")).vector, unit_vector("next"))


def test_bounds_must_be_positive() -> None:
    with pytest.raises(ValueError, match="max_batch"):
        EngineThread(FakeEmbedder(), max_batch=0)
    with pytest.raises(ValueError, match="max_backlog"):
        EngineThread(FakeEmbedder(), max_backlog=0)
