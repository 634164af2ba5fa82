"""What ends up in the ledger, of requests that go all the way."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import pytest
from starlette.types import Message

from backends.errors import UpstreamCut, UpstreamTimeout
from backends.protocols import Call
from gateway.ledger_rows import LedgerRow, Sums
from tests.gateways import Running, running, until


class Turnstile(asyncio.Event):
    """A gate that lets so many chunks through."""

    def __init__(self, chunks: int) -> None:
        super().__init__()
        self._permits = asyncio.Semaphore(chunks)

    async def wait(self) -> Literal[True]:
        return await self._permits.acquire()

    def let_through(self, chunks: int) -> None:
        for _ in range(chunks):
            self._permits.release()


async def leave_after(test: Running, frames: int, **fields: Any) -> None:
    """Asks for a stream and leaves after so many frames of it; the upstream has no more until then."""
    left = asyncio.Event()
    came = 0
    messages = [{"role": "user", "content": "sky why is it blue?"}]
    body = json.dumps({"model": "auto", "messages": messages, "stream": True, **fields}).encode()
    received = [{"type": "http.request", "body": body}]

    async def receive() -> Message:
        if received:
            return received.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal came
        came += bool(message.get("body"))
        if came == frames:
            left.set()

    headers = [(b"authorization", b"Bearer k")]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers}
    await test.app(scope, receive, send)


def posted(test: Running) -> Sums:
    return LedgerRow.total(test.gateway.ledger.by("day")).sums


async def test_a_stream_that_breaks_is_an_error() -> None:
    async with running() as test:
        test.backend.error, test.backend.error_after = UpstreamCut("broke off"), 2
        response = await test.ask(stream=True)
        assert response.status_code == 200
        assert posted(test).errors == 1


async def test_attempts_count_for_the_model_that_was_asked() -> None:
    route = {"small": "small", "large": "large", "policy": {"fallbacks": ["large"]}}
    async with running(routes={"auto": route}) as test:
        stream = test.backend.stream

        def failing(call: Call) -> Any:
            test.backend.error = UpstreamTimeout("too late") if call.body["model"] == "fake-small" else None
            return stream(call)

        test.backend.stream = failing  # type: ignore[method-assign]
        response = await test.ask(headers={"x-lockgate-route": "small"})
        assert response.headers["x-lockgate-model"] == "fake-large"
        calls = {row.name: row.sums.upstream_calls for row in test.gateway.ledger.by("model")}
        assert calls == {"fake-small": 1, "fake-large": 1}


def telling(usage: dict[str, Any]) -> Any:
    """Every chunk tells of it."""
    return lambda body: {**body, "usage": usage}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ],
)
async def test_of_a_stream_that_breaks_what_the_upstream_had_told_counts(
    path: str, fields: dict[str, Any]
) -> None:
    """Though a translated one tells its client at the end only."""
    async with running() as test:
        test.backend.rewrite = telling({"prompt_tokens": 11, "completion_tokens": 2})
        test.backend.error, test.backend.error_after = UpstreamCut("broke off"), 3
        response = await test.http.post(path, json={"model": "auto", "stream": True, **fields})
        assert response.status_code == 200
        sums = posted(test)
        assert (sums.prompt_tokens, sums.completion_tokens, sums.estimated) == (11, 2, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_an_upstream_does_not_tell_is_estimated_for_a_translated_answer_too(stream: bool) -> None:
    async with running() as test:
        test.backend.rewrite = lambda body: {name: value for name, value in body.items() if name != "usage"}
        fields = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "stream": stream}
        await test.http.post("/v1/messages", json={"model": "auto", **fields})
        sums = posted(test)
        assert sums.estimated == 1
        assert sums.prompt_tokens > 0


async def test_a_hit_would_have_cost_what_its_answer_did() -> None:
    """With the tokens that the provider had cached at their own price."""
    model = {"backend": "fake", "name": "m", "input_usd_per_mtok": 10.0, "cached_input_usd_per_mtok": 1.0}
    async with running(models={"m": model}, routes={"auto": {"small": "m", "large": "m"}}) as test:
        details = {"cached_tokens": 8}
        test.backend.rewrite = telling(
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": details}
        )
        await test.ask()
        first = posted(test)
        assert first.without_picousd == first.cost_picousd == 28_000_000
        hit = await test.ask()
        assert hit.headers["x-lockgate-cache"] == "hit-exact"
        assert posted(test).without_picousd == 2 * first.without_picousd
        assert posted(test).saved_tokens == 12


async def test_a_hit_of_an_estimated_answer_would_have_cost_as_much_as_that() -> None:
    """Though translated it tells its client zeros."""
    async with running() as test:
        test.backend.rewrite = lambda body: {name: value for name, value in body.items() if name != "usage"}
        fields = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
        for _ in range(2):
            await test.http.post("/v1/messages", json={"model": "small", **fields})
        sums = posted(test)
        assert sums.without_picousd == 2 * sums.cost_picousd > 0


@pytest.mark.parametrize("uncached", [False, True])
async def test_a_client_that_leaves_would_have_paid_for_what_had_come_without_us_too(uncached: bool) -> None:
    """Whether others might have followed the call, or not."""
    async with running() as test:
        test.backend.gate = Turnstile(3)
        test.backend.rewrite = telling({"prompt_tokens": 11, "completion_tokens": 2})
        await leave_after(test, 3, model="large", **({"temperature": 2} if uncached else {}))
        await until(lambda: posted(test).generations == 1)
        sums = posted(test)
        assert sums.cancelled == 1
        assert sums.without_picousd == sums.cost_picousd == 110_000_000


async def test_who_shares_a_call_and_leaves_is_counted_as_far_as_it_had_come() -> None:
    async with running() as test:
        gate = test.backend.gate = Turnstile(3)
        test.backend.rewrite = telling({"prompt_tokens": 11, "completion_tokens": 2})
        async with asyncio.TaskGroup() as group:
            stays = group.create_task(test.ask(model="large", stream=True))
            await until(lambda: test.followers == 1)
            await leave_after(test, 3, model="large")
            assert posted(test).without_picousd == 110_000_000
            gate.let_through(3)
        assert stays.result().text.endswith("data: [DONE]\n\n")
        sums = posted(test)
        assert (sums.requests, sums.cancelled, sums.generations) == (2, 1, 1)
        assert sums.without_picousd == 2 * sums.cost_picousd == 220_000_000
