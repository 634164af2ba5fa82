"""A stored answer as a stream, at once and at a pace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from gateway.http import Last
from gateway.replay import replayed
from gateway.wire.chat_dialect import ChatDialect
from gateway.wire.completions import CompletionsDialect
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MessagesDialect
from gateway.wire.responses import ResponsesDialect

CHAT = ChatDialect()
WORDS = "four and " * 200  # 1,800 characters: 450 tokens
TOKENS = 450
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


class FakeTime:
    """Passes while somebody sleeps, and `oversleeps_s` more each time."""

    def __init__(self, oversleeps_s: float = 0.0) -> None:
        self.now_s = 1_000.0
        self.slept: list[float] = []
        self._oversleeps_s = oversleeps_s

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, wait_s: float) -> None:
        assert wait_s > 0
        self.slept.append(wait_s)
        self.now_s += wait_s + self._oversleeps_s


def completion(**message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": USAGE,
    }


def paced(
    answer: dict[str, Any], time: FakeTime, dialect: Dialect = CHAT, tokens_per_s: float = 50.0
) -> AsyncGenerator[bytes]:
    return replayed(
        answer, dialect, include_usage=True, tokens_per_s=tokens_per_s, sleep=time.sleep, clock=time
    )


async def pieces_of(frames: AsyncGenerator[bytes], clock: Callable[[], float]) -> list[tuple[float, bytes]]:
    """(when, what)"""
    return [(clock(), piece) async for piece in frames]


async def at_once(answer: dict[str, Any], dialect: Dialect, *, include_usage: bool = True) -> bytes:
    frames = replayed(answer, dialect, include_usage=include_usage, tokens_per_s=None)
    (piece,) = [piece async for piece in frames]
    assert type(piece) is Last
    return piece


@pytest.mark.parametrize("include_usage", [False, True])
async def test_without_a_pace_all_is_one_piece_of_many_events(include_usage: bool) -> None:
    data = await at_once(completion(content=WORDS), CHAT, include_usage=include_usage)
    *events, done, rest = data.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    assert len(events) > 45
    assert (b"usage" in events[-1]) == include_usage


def a_message() -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": WORDS, "signature": "s" * 400},
        {"type": "text", "text": WORDS},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"query": WORDS}},
    ]
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    return {**head, "stop_reason": "end_turn", "stop_sequence": None, "usage": {"output_tokens": 9}}


def a_response() -> dict[str, Any]:
    part = {"type": "output_text", "text": WORDS, "annotations": []}
    items = [
        {"id": "r", "type": "reasoning", "summary": [{"type": "summary_text", "text": WORDS}]},
        {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]},
        {"id": "f", "type": "function_call", "call_id": "c", "name": "f", "arguments": WORDS},
    ]
    return {"id": "resp", "object": "response", "status": "completed", "model": "m", "output": items}


def a_chat_completion() -> dict[str, Any]:
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": WORDS}}
    return completion(reasoning_content=WORDS, content=WORDS, tool_calls=[call])


def a_completion() -> dict[str, Any]:
    choices = [{"index": i, "text": WORDS, "logprobs": None, "finish_reason": "stop"} for i in range(3)]
    return {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": choices}


EACH_API = pytest.mark.parametrize(
    ("dialect", "answer"),
    [
        (CHAT, a_chat_completion()),
        (CompletionsDialect(), a_completion()),
        (MessagesDialect(), a_message()),
        (ResponsesDialect(), a_response()),
    ],
    ids=lambda value: value.api if hasattr(value, "api") else "",
)


@EACH_API
async def test_at_a_pace_the_same_bytes_take_as_long_as_their_text(
    dialect: Dialect, answer: dict[str, Any]
) -> None:
    time = FakeTime()
    pieces = await pieces_of(paced(answer, time, dialect), time)
    assert b"".join(data for _, data in pieces) == await at_once(answer, dialect)
    assert type(pieces[-1][1]) is Last
    assert pieces[0][0] == 1_000.0
    # Three texts; the first piece of a text comes at once, and what ends the stream does not wait.
    assert 3 * TOKENS / 50 - 0.5 < time.now_s - 1_000.0 <= 3 * TOKENS / 50 + 0.1
    assert max(time.slept) < 0.35, "no smooth flow"


async def test_nothing_waits_before_the_first_of_the_text_and_what_has_no_text_never() -> None:
    time = FakeTime()
    (piece,) = await pieces_of(paced(completion(content="Yes."), time), time)
    assert time.slept == []
    assert piece[1] == await at_once(completion(content="Yes."), CHAT)
    empty = completion(content=None, audio={"data": "U" * 9_000})
    await pieces_of(paced(empty, time), time)
    assert time.slept == []


async def test_late_sleeps_do_not_add_up() -> None:
    exact, late = FakeTime(), FakeTime(oversleeps_s=0.05)
    for time in (exact, late):
        await pieces_of(paced(completion(content=WORDS), time), time)
    assert len(late.slept) == len(exact.slept)
    assert late.now_s - exact.now_s < 0.051


async def test_what_is_due_goes_out_together() -> None:
    time = FakeTime(oversleeps_s=1.0)
    pieces = await pieces_of(paced(completion(content=WORDS), time), time)
    assert 8 <= len(pieces) <= 11
    assert min(data.count(b"data: ") for _, data in pieces[1:-1]) > 5


async def test_a_client_that_reads_slowly_is_not_slowed_further() -> None:
    time = FakeTime()
    async for _ in paced(completion(content=WORDS), time):
        time.now_s += 0.5
    assert time.slept == []


async def test_each_script_has_its_pace() -> None:
    time = FakeTime()
    await pieces_of(paced(completion(content="日本語のテキスト" * 25), time), time)
    assert 3.5 < time.now_s - 1_000.0 <= 4.0


async def test_of_a_client_that_leaves_nothing_is_left() -> None:
    time = FakeTime()
    frames = paced(completion(content=WORDS), time)
    first = await anext(frames)
    assert json.loads(first.split(b"\n\n")[0].removeprefix(b"data: "))["choices"][0]["delta"]["content"] == ""
    await frames.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(frames)
    assert time.slept == []


async def test_a_wait_can_be_cancelled() -> None:
    frames = replayed(completion(content=WORDS), CHAT, include_usage=False, tokens_per_s=1e-6)
    await anext(frames)
    waiting = asyncio.ensure_future(anext(frames))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(StopAsyncIteration):
        await anext(frames)
