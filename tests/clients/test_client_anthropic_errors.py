"""Anthropic's client when things go wrong: typed errors, answers that break off, clients that leave."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import pytest

from tests.clients.stack import ARRIVES_WITHIN_S, CANCELLED_WITHIN_S, Stack

BACKENDS = ("claude", "gpt", "plain")


def user(content: Any) -> list[Any]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "kind", "told"),
    [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (401, anthropic.AuthenticationError, "authentication_error"),
        (404, anthropic.NotFoundError, "not_found_error"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (529, anthropic.APIStatusError, "overloaded_error"),
    ],
)
def test_an_upstreams_error_is_the_clients_own(
    anthropic_client: anthropic.Anthropic,
    backend: str,
    stream: bool,
    status: int,
    kind: type[anthropic.APIStatusError],
    told: str,
) -> None:
    with pytest.raises(kind, match=f"The model says {status}") as raised:
        anthropic_client.messages.create(
            model=f"{backend}-fails-{status}", max_tokens=300, messages=user("Well?"), stream=stream
        )
    assert raised.value.status_code == status
    assert raised.value.request_id
    body: Any = raised.value.body
    assert body["error"]["type"] == told


@pytest.mark.parametrize("model", BACKENDS)
def test_a_wrong_field_is_named(anthropic_client: anthropic.Anthropic, model: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        anthropic_client.messages.create(model=model, max_tokens=0, messages=user("None?"))


def test_a_tool_that_only_anthropic_runs_is_refused_elsewhere(
    anthropic_client: anthropic.Anthropic,
) -> None:
    tools: Any = [{"type": "web_search_20250305", "name": "web_search"}]
    with pytest.raises(anthropic.BadRequestError, match=r"tools\[0\].type"):
        anthropic_client.messages.create(model="plain", max_tokens=300, messages=user("Search."), tools=tools)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stream_that_breaks_off_raises_after_its_text_and_is_not_kept(
    anthropic_client: anthropic.Anthropic, backend: str
) -> None:
    for _ in range(2):
        raw = anthropic_client.messages.with_raw_response.create(
            model=f"{backend}-dies", max_tokens=300, messages=user("Streamed?"), stream=True
        )
        assert raw.headers["x-lockgate-cache"] == "miss"
        events: list[str] = []
        with pytest.raises(anthropic.APIError):
            events.extend(event.type for event in raw.parse())
        assert "message_start" in events
        assert "message_stop" not in events


@pytest.mark.parametrize("backend", BACKENDS)
def test_closing_a_stream_reaches_the_upstream(
    anthropic_client: anthropic.Anthropic, stack: Stack, backend: str
) -> None:
    upstream = {"claude": stack.claude, "gpt": stack.openai, "plain": stack.plain}[backend]
    before = upstream.aborted
    stream = anthropic_client.messages.create(
        model=f"{backend}-hangs", max_tokens=300, messages=user("Left?"), stream=True
    )
    next(iter(stream))
    assert upstream.aborted == before
    stream.close()
    upstream.until(lambda counted: counted.aborted == before + 1, CANCELLED_WITHIN_S)


async def test_cancelling_the_async_client_reaches_the_upstream(stack: Stack) -> None:
    before, asked = stack.claude.aborted, len(stack.claude.received)
    async with anthropic.AsyncAnthropic(
        base_url=stack.server.url, api_key="sk-async", max_retries=0
    ) as client:
        asking = asyncio.ensure_future(
            client.messages.create(model="claude-hangs", max_tokens=300, messages=user("Whole and left?"))
        )
        await asyncio.to_thread(
            stack.claude.until, lambda counted: len(counted.received) == asked + 1, ARRIVES_WITHIN_S
        )
        asking.cancel()
        await asyncio.to_thread(
            stack.claude.until, lambda counted: counted.aborted == before + 1, CANCELLED_WITHIN_S
        )
        with pytest.raises(asyncio.CancelledError):
            await asking


def test_a_bearer_token_goes_on_as_one(stack: Stack) -> None:
    with anthropic.Anthropic(
        base_url=stack.server.url, auth_token="sk-ant-oat01-token", max_retries=0
    ) as client:
        client.messages.create(model="claude", max_tokens=300, messages=user("By token?"))
    assert stack.claude.last.headers["authorization"] == "Bearer sk-ant-oat01-token"
    assert "x-api-key" not in stack.claude.last.headers
