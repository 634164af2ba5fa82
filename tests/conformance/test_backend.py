"""What every Backend promises, held against each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import pytest_asyncio

from backends.batched.backend import BatchedBackend
from backends.batched.config import BatchedConfig
from backends.openai import OpenAIBackend
from backends.protocols import Backend, Call, Chunk
from backends.sse import SseReader
from tests.openai_calls import events_of
from tests.upstreams import FakeUpstream, Received, Reply, answer_ok, frames, stream_reply

# One loop for the module: a real engine is started once, not once per test.
pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = 400  # tokens; an answer that lasts longer than it takes to leave it


def answer_at_length(request: Received) -> Reply:
    if request.body and request.json().get("max_tokens", 0) >= LONG and request.json().get("stream"):
        return stream_reply(frames(["word "] * LONG), gap_s=0.02)
    return answer_ok(request)


@asynccontextmanager
async def openai_backend() -> AsyncIterator[Backend]:
    async with FakeUpstream(answer_at_length) as upstream:
        backend = OpenAIBackend("openai", upstream.base_url)
        yield backend
        await backend.aclose()


@asynccontextmanager
async def batched_backend() -> AsyncIterator[Backend]:
    backend = BatchedBackend("builtin", BatchedConfig(max_batch=4, context_tokens=512, threads=1))
    await backend.start()
    yield backend
    await backend.aclose()


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[
        pytest.param(openai_backend, id="openai"),
        pytest.param(batched_backend, id="batched", marks=pytest.mark.model),
    ],
)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    async with request.param() as made:
        yield made
        await made.aclose()  # and once more below: closing again is harmless


def call(**body: Any) -> Call:
    messages = [
        {"role": "system", "content": "You are a helpful AI assistant."},
        {"role": "user", "content": "Tell me a story about a lighthouse."},
    ]
    return Call(body={"model": "any", "messages": messages, "max_tokens": 8, "temperature": 0, **body})


def begin(backend: Backend, asked: Call) -> AsyncGenerator[Chunk, None]:
    answer = backend.stream(asked)
    assert isinstance(answer, AsyncGenerator)
    return answer


async def collect(backend: Backend, asked: Call) -> list[Chunk]:
    return [chunk async for chunk in backend.stream(asked)]


async def until_load(backend: Backend, *, running: int) -> None:
    """Asks for a second: the load has no event to wait for."""
    for _ in range(100):
        load = await backend.load()
        if (load.queued, load.running) == (0, running):
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"still {load}")


async def test_a_call_without_stream_gives_one_completion(backend: Backend) -> None:
    (chunk,) = await collect(backend, call())
    (body,) = chunk.events
    assert chunk.whole
    assert orjson.loads(chunk.data) == body
    assert body["object"] == "chat.completion"
    assert isinstance(body["id"], str)
    assert isinstance(body["created"], int)
    (choice,) = body["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"]
    assert choice["finish_reason"] in ("stop", "length")
    usage = body["usage"]
    assert usage["prompt_tokens"] > 0
    assert usage["completion_tokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_the_chunks_of_a_streamed_call_make_one_answer(backend: Backend) -> None:
    chunks = await collect(backend, call(stream=True))
    reader = SseReader()
    read = [event.data for chunk in chunks for event in reader.feed(chunk.data) if event.data is not None]
    events = events_of(chunks)
    assert [orjson.loads(data) for data in read] == events
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1
    choices = [choice for event in events for choice in event["choices"]]
    assert {choice["index"] for choice in choices} == {0}
    assert choices[0]["delta"]["role"] == "assistant"
    assert "".join(choice["delta"].get("content") or "" for choice in choices)
    reasons = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    assert len(reasons) == 1
    assert choices[-1]["finish_reason"] == reasons[0]


async def test_a_streamed_answer_says_the_same_as_a_whole_one(backend: Backend) -> None:
    (whole,) = await collect(backend, call())
    chunks = await collect(backend, call(stream=True))
    choices = [choice for event in events_of(chunks) for choice in event["choices"]]
    streamed = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert streamed == whole.events[0]["choices"][0]["message"]["content"]


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}])
async def test_a_stream_gives_usage_asked_or_not(backend: Backend, options: dict[str, Any]) -> None:
    chunks = await collect(backend, call(stream=True, **options))
    usages = [event["usage"] for event in events_of(chunks) if event.get("usage")]
    assert len(usages) == 1
    assert (chunks[-1].tells_usage, chunks[-1].events[0]["usage"]) == (True, usages[0])
    assert usages[0]["total_tokens"] == usages[0]["prompt_tokens"] + usages[0]["completion_tokens"] > 0


async def test_a_call_tells_how_many_requests_it_took(backend: Backend) -> None:
    asked = call()
    await collect(backend, asked)
    assert asked.report.requests == 1


async def test_an_answer_in_progress_counts_as_load(backend: Backend) -> None:
    answer = begin(backend, call(stream=True, max_tokens=LONG))
    await anext(answer)
    await until_load(backend, running=1)
    load = await backend.load()
    assert load.kv_usage is None or 0.0 <= load.kv_usage <= 1.0
    await answer.aclose()


async def test_leaving_early_frees_the_work(backend: Backend) -> None:
    answer = begin(backend, call(stream=True, max_tokens=LONG))
    await anext(answer)
    await answer.aclose()
    await until_load(backend, running=0)


async def test_a_cancelled_reader_frees_the_work(backend: Backend) -> None:
    begun = asyncio.Event()

    async def consume() -> None:
        async for _ in backend.stream(call(stream=True, max_tokens=LONG)):
            begun.set()

    task = asyncio.ensure_future(consume())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    await until_load(backend, running=0)


async def test_a_finished_answer_is_no_load(backend: Backend) -> None:
    await collect(backend, call())
    await until_load(backend, running=0)


async def test_many_at_once_are_all_answered(backend: Backend) -> None:
    answers = await asyncio.gather(*(collect(backend, call(stream=bool(n % 2))) for n in range(9)))
    assert all(answers)
    await until_load(backend, running=0)


async def test_a_running_backend_is_ready(backend: Backend) -> None:
    health = await backend.health()
    assert health.ready
    assert health.detail
    assert backend.name in ("openai", "builtin")
