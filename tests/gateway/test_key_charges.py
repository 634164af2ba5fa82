"""Keys of ours: who is let in, and what each is charged for."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import httpx
import pytest

from gateway.limits import Limits
from tests.gateway.api_cases import (
    CHAT,
    EACH_API,
    RESPONSES,
    ApiCase,
    answering,
    ask,
    behind,
    error_of,
)
from tests.gateways import Running, running, until
from tests.upstreams import FakeUpstream, Reply, error_reply

KEY = "lg-web-key"


def auth(**limits: Any) -> dict[str, Any]:
    return {"mode": "keys", "keys": {"web": {"sha256": hashlib.sha256(KEY.encode()).hexdigest(), **limits}}}


async def asked_with_key(test: Running, case: ApiCase = CHAT, **fields: Any) -> httpx.Response:
    return await ask(test, case, {"authorization": f"Bearer {KEY}"}, **fields)


@EACH_API
async def test_without_a_key_of_ours_nothing_is_asked(case: ApiCase) -> None:
    async with FakeUpstream(answering) as upstream, behind(upstream, auth=auth()) as test:
        response = await ask(test, case)
        assert response.status_code == 401
        assert error_of(case, response)["type"] == "authentication_error"
        assert not upstream.received
        assert (await asked_with_key(test, case)).status_code == 200
        assert KEY not in str(upstream.received[0].headers)


@EACH_API
async def test_beyond_a_limit_the_apis_shape_and_retry_after(case: ApiCase) -> None:
    async with (
        FakeUpstream(answering) as upstream,
        behind(upstream, auth=auth(requests_per_minute=1)) as test,
    ):
        first = await asked_with_key(test, case)
        assert (first.status_code, first.headers["x-ratelimit-remaining-requests"]) == (200, "0")
        second = await asked_with_key(test, case)
        assert second.status_code == 429
        assert int(second.headers["retry-after"]) >= 1
        assert "web" in error_of(case, second)["message"]
        assert len(upstream.received) == 1


async def test_a_key_with_limits_sees_ours_and_not_those_of_the_upstreams_account() -> None:
    reply = Reply(headers={"x-ratelimit-remaining-requests": "5000"}, pieces=CHAT.whole.pieces)
    async with FakeUpstream(lambda _: reply) as upstream:
        async with behind(upstream, auth=auth(requests_per_minute=60)) as test:
            response = await asked_with_key(test)
            assert response.headers.get_list("x-ratelimit-remaining-requests") == ["59"]
        async with behind(upstream, auth=auth()) as test:
            response = await asked_with_key(test)
            assert response.headers.get_list("x-ratelimit-remaining-requests") == ["5000"]


class Settled:
    """What is settled with a key, watched."""

    def __init__(self, test: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tokens: list[int] = []
        self.usd: list[float] = []
        settle = Limits.settle

        def watched(limits: Limits, key: str, reserved: int, tokens: int, cost_usd: float) -> None:
            assert key == "web"
            self.tokens.append(tokens)
            self.usd.append(cost_usd)
            settle(limits, key, reserved, tokens, cost_usd)

        monkeypatch.setattr(Limits, "settle", watched)


@EACH_API
@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_is_charged_what_the_upstream_says(
    case: ApiCase, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        FakeUpstream(answering) as upstream,
        behind(upstream, auth=auth(tokens_per_minute=10_000)) as test,
    ):
        settled = Settled(test, monkeypatch)
        await asked_with_key(test, case, stream=stream)
        assert settled.tokens == [14]
        price = 3.0 * 11 if case.api == "messages" else 1.0 * 11 + 2.0 * 3
        assert settled.usd == [pytest.approx(price / 1e6)]


@pytest.mark.parametrize("status", [400, 503])
async def test_a_request_that_failed_costs_no_tokens(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        FakeUpstream(lambda _: error_reply(status, "no")) as upstream,
        behind(upstream, auth=auth(tokens_per_minute=10_000)) as test,
    ):
        settled = Settled(test, monkeypatch)
        await asked_with_key(test)
        assert (settled.tokens, settled.usd) == ([0], [0.0])


async def test_a_request_that_is_refused_before_it_is_sent_is_settled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        FakeUpstream(answering) as upstream,
        behind(upstream, auth=auth(tokens_per_minute=10_000)) as test,
    ):
        settled = Settled(test, monkeypatch)
        await asked_with_key(test, model="nope")
        await asked_with_key(test, RESPONSES, model="claude", previous_response_id="r")
        assert settled.tokens == [0, 0]


async def test_an_answer_from_the_cache_is_charged_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = {"store": "memory", "policy": {"kind": "exact"}}
    async with (
        FakeUpstream(answering) as upstream,
        behind(upstream, cache=cache, auth=auth(tokens_per_minute=10_000)) as test,
    ):
        settled = Settled(test, monkeypatch)
        assert (await asked_with_key(test)).headers["x-lockgate-cache"] == "miss"
        assert (await asked_with_key(test)).headers["x-lockgate-cache"] == "hit-exact"
        assert settled.tokens == [14, 0]


async def test_who_shares_a_call_is_not_charged_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(auth=auth(tokens_per_minute=10_000)) as test:
        settled = Settled(test, monkeypatch)
        test.backend.gate = asyncio.Event()
        asking = [asyncio.ensure_future(test.ask(key=KEY)) for _ in range(3)]
        await until(lambda: test.followers == 3)
        test.backend.gate.set()
        await asyncio.gather(*asking)
        assert sorted(settled.tokens) == [0, 0, 14]


async def test_a_key_that_has_spent_its_budget_is_refused() -> None:
    async with (
        FakeUpstream(answering) as upstream,
        behind(upstream, auth=auth(budget_usd_per_month=0.000001)) as test,
    ):
        assert (await asked_with_key(test)).status_code == 200
        response = await asked_with_key(test)
        assert response.status_code == 429
        assert response.json()["error"]["code"] == "budget_exceeded"
        assert response.headers["x-should-retry"] == "false"
        assert len(upstream.received) == 1
