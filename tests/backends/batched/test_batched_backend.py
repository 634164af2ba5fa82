"""The built-in backend around a worker process with a scripted engine: shapes and queue."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import orjson
import pytest

from backends.errors import InvalidCall, Overloaded, UpstreamUnreachable
from tests.backends.batched.subject import Subject, call


async def test_whole_answer(subject: Subject) -> None:
    (body,) = await subject.ask("words 2 0")
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == "named"
    assert abs(body["created"] - time.time()) < 60
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "w0 w1 ", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert body["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_streamed_answer(subject: Subject) -> None:
    *bodies, usage = await subject.ask("words 2 0", stream=True)
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 5)
    assert {body["object"] for body in bodies} == {"chat.completion.chunk"}
    assert len({body["id"] for body in bodies}) == 1
    assert [body["choices"][0]["delta"] for body in bodies] == [
        {"role": "assistant", "content": ""},
        {"content": "w0 "},
        {"content": "w1 "},
        {},
    ]
    assert [body["choices"][0]["finish_reason"] for body in bodies] == [None, None, None, "stop"]


async def test_data_is_the_event_as_it_goes_over_the_wire(subject: Subject) -> None:
    async for chunk in subject.backend.stream(call("words 1 0", stream=True)):
        assert chunk.data == b"data: " + orjson.dumps(chunk.events[0]) + b"\n\n"
        assert chunk.tells_usage == ("usage" in chunk.events[0])


async def test_a_refused_field_never_reaches_the_engine(subject: Subject) -> None:
    with pytest.raises(InvalidCall) as caught:
        await subject.ask("words 1 0", temperature=-1)
    assert caught.value.param == "temperature"
    assert subject.observer.batch_sizes == []


async def test_a_prompt_that_cannot_fit_is_refused_unread(subject: Subject) -> None:
    with pytest.raises(InvalidCall, match="maximum context length is 2048 tokens"):
        await subject.ask("x" * 3_000_000)
    assert subject.observer.batch_sizes == []


async def test_the_engine_refuses(subject: Subject) -> None:
    with pytest.raises(InvalidCall, match="does not fit") as caught:
        await subject.ask("refuse")
    assert caught.value.param == "messages"


async def test_the_engine_breaks(subject: Subject) -> None:
    with pytest.raises(UpstreamUnreachable, match="out of order"):
        await subject.ask("break")


async def test_jobs_beyond_the_batch_wait_their_turn(subject: Subject) -> None:
    answers = await asyncio.gather(*(subject.ask("words 3 0.01") for _ in range(4)))
    assert [body["usage"]["completion_tokens"] for (body,) in answers] == [3, 3, 3, 3]
    assert max(subject.observer.batch_sizes) == 2
    assert subject.observer.waits_s[0] < subject.observer.waits_s[3]


async def test_a_full_queue_is_overloaded_and_recovers(subject: Subject) -> None:
    tasks = [subject.asking("words 3 0.05") for _ in range(4)]
    await subject.running(2)
    load = await subject.backend.load()
    assert (load.queued, load.running) == (2, 2)
    with pytest.raises(Overloaded) as caught:
        await subject.ask("words 1 0")
    assert caught.value.retry_after_s >= 1
    await asyncio.gather(*tasks)
    assert await subject.ask("words 1 0")


async def test_leaving_a_stream_frees_its_place(subject: Subject) -> None:
    async with aclosing(subject.backend.stream(call("words 1000 0.02", stream=True))) as chunks:
        async for _ in chunks:
            break
    assert (await subject.backend.load()).running == 0
    seen = len(subject.observer.loads)
    await subject.observer.until(lambda: any(load.kv_usage == 0 for load in subject.observer.loads[seen:]))


async def test_a_cancelled_caller_leaves_queue_and_engine(subject: Subject) -> None:
    tasks = [subject.asking("wait") for _ in range(3)]
    await subject.running(2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    load = await subject.backend.load()
    assert (load.queued, load.running) == (0, 0)
    assert await subject.ask("words 1 0")
