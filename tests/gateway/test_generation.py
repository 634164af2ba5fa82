"""What the chunks of a generation stand for, and what each ending of one costs."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from backends.errors import UpstreamTimeout
from backends.protocols import Call
from gateway.generating import whole_answer
from gateway.ledger_rows import LedgerRow, Sums
from gateway.wire.chat_dialect import ChatDialect
from tests.gateways import Running, chunk, running, until, whole

MICRO_USD = 1_000_000
"""In pico-USD, which the ledger counts in. A token of the small model costs one, of the large one ten."""


def test_a_whole_object_is_kept_as_it_came() -> None:
    body = {"object": "chat.completion", "choices": [], "vendor": 1}
    assert whole_answer([whole(body)], ChatDialect()) == body


def test_one_chunk_is_still_a_stream() -> None:
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
    answer = whole_answer([chunk({"object": "chat.completion.chunk", "choices": [choice]})], ChatDialect())
    assert answer["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    ]


class Steps(asyncio.Event):
    """A gate that lets so many chunks pass, and then none."""

    def __init__(self, chunks: int) -> None:
        super().__init__()
        self._left = chunks
        self.shut = asyncio.Event()

    async def wait(self) -> Literal[True]:
        if self._left == 0:
            self.shut.set()
            await asyncio.Event().wait()
        self._left -= 1
        return True


async def leave_after(test: Running, chunks: int, **fields: Any) -> None:
    """A client that asks for a stream and leaves once the upstream has sent so many chunks of it."""
    test.backend.gate = gate = Steps(chunks)
    asking = asyncio.ensure_future(test.ask(stream=True, **fields))
    await gate.shut.wait()
    await until(lambda: test.followers == 1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: test.backend.cancelled == 1)
    await until(lambda: test.followers == 0)


def spent(test: Running) -> Sums:
    return LedgerRow.total(test.gateway.ledger.by("day")).sums


async def test_a_clean_end_is_charged_as_the_upstream_says() -> None:
    async with running() as test:
        await test.ask(model="small")
        sums = spent(test)
        assert (sums.prompt_tokens, sums.completion_tokens, sums.estimated) == (11, 3, 0)
        assert sums.cost_picousd == 11 * MICRO_USD


async def test_a_client_that_leaves_in_mid_stream_has_what_came_estimated() -> None:
    async with running() as test:
        await leave_after(test, 3, model="small")
        await until(lambda: spent(test).upstream_calls == 1)
        sums = spent(test)
        assert sums.estimated == 1
        assert sums.prompt_tokens > 0
        assert 0 < sums.completion_tokens < 11
        assert sums.cost_picousd > 0


async def test_a_client_that_leaves_before_anything_came_is_charged_nothing() -> None:
    async with running() as test:
        await leave_after(test, 0, model="small")
        await until(lambda: spent(test).upstream_calls == 1)
        sums = spent(test)
        assert (sums.prompt_tokens, sums.completion_tokens, sums.cost_picousd) == (0, 0, 0)


async def test_a_call_that_failed_is_counted_and_costs_nothing() -> None:
    async with running() as test:
        test.backend.error = UpstreamTimeout("too late")
        assert (await test.ask(model="small")).status_code == 504
        sums = spent(test)
        assert (sums.upstream_calls, sums.cost_picousd) == (1, 0)


async def test_what_no_upstream_told_is_estimated_from_the_texts() -> None:
    async with running() as test:
        test.backend.rewrite = lambda body: {name: value for name, value in body.items() if name != "usage"}
        await test.ask(model="small")
        sums = spent(test)
        assert sums.estimated == 1
        assert sums.prompt_tokens > 0
        assert sums.completion_tokens > 0


async def test_an_answer_that_another_model_gave_has_its_price() -> None:
    policy = {"kind": "always-small", "fallbacks": ["large"]}
    async with running(routes={"auto": {"small": "small", "large": "large", "policy": policy}}) as test:
        stream = test.backend.stream

        def failing(call: Call) -> Any:
            test.backend.error = UpstreamTimeout("too late") if call.body["model"] == "fake-small" else None
            return stream(call)

        test.backend.stream = failing  # type: ignore[method-assign]
        response = await test.ask()
        assert response.headers["x-lockgate-attempts"] == "fake timeout, fake ok"
        assert spent(test).cost_picousd == 11 * 10 * MICRO_USD
