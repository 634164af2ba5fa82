"""What ends up in the ledger, of requests that go all the way."""

from __future__ import annotations

from typing import Any

import pytest

from backends.errors import UpstreamCut, UpstreamTimeout
from backends.protocols import Call
from gateway.ledger_rows import LedgerRow, Sums
from tests.gateways import Running, running


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
