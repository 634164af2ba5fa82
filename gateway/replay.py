"""A stored answer as a stream: all at once, or at the pace of a model that writes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from gateway.http import Last
from gateway.wire.chat_deltas import WHOLE_TEXTS
from gateway.wire.dialect import Dialect, Json
from gateway.wire.pieces import tokens_in


async def replayed(
    answer: Json,
    dialect: Dialect,
    *,
    include_usage: bool,
    tokens_per_s: float | None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] | None = None,
) -> AsyncGenerator[bytes]:
    """The stream of an answer that is all there. Without a pace it is many events, but one piece.

    With one, text goes out at about `tokens_per_s`: its first piece at once, and events without text as soon
    as those before them. Each piece has its time from the beginning on, so that a late one delays none after
    it; what is due by now goes out together. `clock` is in seconds and never goes back; None is the event
    loop's.
    """
    events = dialect.events(answer, include_usage=include_usage)
    if tokens_per_s is None:
        yield Last(b"".join([*map(dialect.frame, events), dialect.end]))
        return
    now = clock or asyncio.get_running_loop().time
    at = now()
    due: list[bytes] = []
    for event in events:
        tokens = sum(map(tokens_in, _texts_in(event)))
        if tokens and at > now():
            yield b"".join(due)
            due = []
            if (wait_s := at - now()) > 0:  # the client may have been slow to take it
                await sleep(wait_s)
        due.append(dialect.frame(event))
        at += tokens / tokens_per_s
    yield Last(b"".join([*due, dialect.end]))


def _texts_in(event: Json) -> Iterator[str]:
    """What the model says in one event of any API's stream. An event that repeats what was said, as those of
    Responses that end an item do, says nothing."""
    delta = event.get("delta")
    if isinstance(delta, str):  # responses
        yield delta
    elif isinstance(delta, Mapping):  # messages
        yield from _strings(delta.get(name) for name in ("text", "thinking", "partial_json"))
    for choice in event.get("choices") or ():
        yield from _strings([choice.get("text")])  # completions
        yield from _texts_of_chat(choice.get("delta") or {})


def _texts_of_chat(delta: Json) -> Iterator[str]:
    yield from _strings(value for name, value in delta.items() if name not in WHOLE_TEXTS)
    calls = [call.get("function") or call.get("custom") for call in delta.get("tool_calls") or ()]
    for call in (delta.get("function_call"), *calls):
        if isinstance(call, Mapping):
            yield from _strings([call.get("arguments"), call.get("input")])


def _strings(values: Iterable[Any]) -> Iterator[str]:
    return (value for value in values if isinstance(value, str))
