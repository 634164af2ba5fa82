"""Another model answers for one that fails, in the form of the client's API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.gateway.api_cases import (
    CHAT,
    MESSAGES,
    OF_OPENAI,
    RESPONSES,
    ApiCase,
    answering,
    ask,
    behind,
    beside,
    error_of,
    events_of,
    said,
)
from tests.upstreams import FakeUpstream, Received, Reply, error_reply

ROUTE = {"auto": {"small": "m", "large": "m", "policy": {"kind": "always-small", "fallbacks": ["claude"]}}}


def openai_fails(request: Received) -> Reply | None:
    return None if request.path == MESSAGES.path else error_reply(503, "down")


@OF_OPENAI
@pytest.mark.parametrize("stream", [False, True])
async def test_an_anthropic_model_answers_for_an_openai_model_that_fails(case: ApiCase, stream: bool) -> None:
    async with (
        FakeUpstream(beside(openai_fails)) as upstream,
        behind(upstream, routes=ROUTE) as test,
    ):
        response = await ask(test, case, model="auto", stream=stream)
        assert response.status_code == 200
        headers = response.headers
        assert headers["x-lockgate-attempts"] == "up 503, ant ok"
        assert (headers["x-lockgate-model"], headers["x-lockgate-backend"]) == ("claude-m", "ant")
        assert "fell back from m" in headers["x-lockgate-route-reason"]
        assert upstream.received[-1].json()["model"] == "claude-m"
        if stream:
            dialect = test.gateway.pipeline.generation.dialects.of(case.api)
            assembler = dialect.assembler()
            for _, event in events_of(response):
                if event != "[DONE]":
                    assembler.add(event)
            assert said(case, assembler.answer()) == "hello"
            assert (events_of(response)[-1][1] == "[DONE]") is (case.api != "responses")
        else:
            assert said(case, response.json()) == "hello"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_openai_model_answers_for_an_anthropic_model_that_fails(stream: bool) -> None:
    route = {
        "auto": {"small": "claude", "large": "claude", "policy": {"kind": "always-small", "fallbacks": ["m"]}}
    }

    def fails(request: Received) -> Reply | None:
        return (
            Reply(status=529, pieces=[b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}'])
            if request.path == MESSAGES.path
            else None
        )

    async with FakeUpstream(beside(fails)) as upstream, behind(upstream, routes=route) as test:
        response = await ask(test, MESSAGES, model="auto", stream=stream)
        assert response.headers["x-lockgate-attempts"] == "ant 529, up ok"
        if stream:
            assert events_of(response)[-1] == ("message_stop", {"type": "message_stop"})
        else:
            assert said(MESSAGES, response.json()) == "hello"


async def test_the_error_of_a_fallback_is_in_the_clients_shape_too() -> None:
    down = Reply(
        status=529, pieces=[b'{"type":"error","error":{"type":"overloaded_error","message":"too busy"}}']
    )

    def fails(request: Received) -> Reply | None:
        return down if request.path == MESSAGES.path else error_reply(503, "down")

    async with FakeUpstream(beside(fails)) as upstream, behind(upstream, routes=ROUTE) as test:
        response = await ask(test, CHAT, model="auto")
        assert response.status_code == 529
        assert "too busy" in error_of(CHAT, response)["message"]
        assert response.headers["x-lockgate-attempts"] == "up 503, ant 529"


async def test_after_attempts_of_our_own_the_official_clients_are_told_not_to_add_theirs() -> None:
    async with FakeUpstream(lambda _: error_reply(503, "down")) as upstream:
        async with behind(upstream) as test:
            once = await ask(test, CHAT)
            assert (once.status_code, "x-should-retry" in once.headers) == (503, False)
        async with behind(upstream, routes=ROUTE) as test:
            twice = await ask(test, CHAT, model="auto")
            assert twice.headers["x-should-retry"] == "false"


async def test_an_upstreams_own_word_on_retries_is_kept() -> None:
    async with (
        FakeUpstream(lambda _: error_reply(503, "down", x_should_retry="true")) as upstream,
        behind(upstream, routes=ROUTE) as test,
    ):
        assert (await ask(test, CHAT, model="auto")).headers["x-should-retry"] == "true"


async def test_a_request_that_no_model_of_the_route_can_take_is_refused_by_the_first() -> None:
    route = {"auto": {"small": "claude", "large": "claude", "policy": {"kind": "always-small"}}}
    async with FakeUpstream(answering) as upstream, behind(upstream, routes=route) as test:
        response = await ask(test, RESPONSES, model="auto", previous_response_id="resp_0")
        assert response.status_code == 400
        assert error_of(RESPONSES, response)["param"] == "previous_response_id"
        assert not upstream.received


async def test_a_fallback_that_cannot_express_the_request_does_not_hide_why_it_failed() -> None:
    async with FakeUpstream(beside(openai_fails)) as upstream, behind(upstream, routes=ROUTE) as test:
        response = await ask(test, CHAT, model="auto", logprobs=True)
        assert response.status_code == 503
        assert "down" in error_of(CHAT, response)["message"]
        assert response.headers["x-lockgate-attempts"] == "up 503, ant invalid"
        assert len(upstream.received) == 1


CACHED = {"store": "memory", "policy": {"kind": "exact"}}


@pytest.mark.parametrize("field", [{"conversation": "conv_1"}, {"background": True}])
async def test_a_response_that_changes_what_the_upstream_keeps_is_asked_for_each_time(
    field: dict[str, Any],
) -> None:
    async with FakeUpstream(answering) as upstream, behind(upstream, cache=CACHED) as test:
        answers = await asyncio.gather(*(ask(test, RESPONSES, **field) for _ in range(3)))
        answers.append(await ask(test, RESPONSES, **field))
        assert {answer.headers["x-lockgate-cache"] for answer in answers} == {"bypass"}
        assert len(upstream.received) == 4


@pytest.mark.parametrize("field", [{"conversation": "conv_1"}, {"background": True}])
async def test_a_response_that_changes_what_the_upstream_keeps_is_not_asked_for_again(
    field: dict[str, Any],
) -> None:
    async with FakeUpstream() as upstream, behind(upstream, resilience={"retries": 3}) as test:
        upstream.replies(Reply(status=0, end="reset"))
        assert (await ask(test, RESPONSES, **field)).status_code == 502
        assert len(upstream.received) == 1
