"""Counting tokens: by the backend that knows, else estimated."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tests.gateway.api_cases import HELLO, behind
from tests.gateways import Running
from tests.upstreams import FakeUpstream, Reply

PATH = "/v1/messages/count_tokens"
COUNT = Reply(pieces=[b'{"input_tokens": 2095}'], headers={"x-ratelimit-remaining-tokens": "7", "x-own": "1"})


async def count(test: Running, model: str = "claude", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await test.http.post(PATH, json={"model": model, "messages": HELLO, "odd": 1}, headers=named)


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert body["type"] == "error"
    error: dict[str, Any] = body["error"]
    return error


async def test_a_backend_that_knows_counts() -> None:
    async with FakeUpstream(lambda _: COUNT) as upstream, behind(upstream) as test:
        response = await count(test, anthropic_beta="b1", x_api_key="sk-client")
        assert response.json() == {"input_tokens": 2095}
        assert "x-lockgate-estimated" not in response.headers
        assert response.headers["x-ratelimit-remaining-tokens"] == "7"
        assert "x-own" not in response.headers
        (received,) = upstream.received
        assert received.path == PATH
        assert received.json() == {"model": "claude-m", "messages": HELLO, "odd": 1}
        assert received.headers["anthropic-beta"] == "b1"
        assert received.headers["x-api-key"] == "sk-ant-secret"
        assert response.headers.get_list("x-request-id") == [received.headers["x-request-id"]]
        assert response.headers["request-id"] == received.headers["x-request-id"]


async def test_for_a_route_its_large_model_counts() -> None:
    route = {"auto": {"small": "m", "large": "claude", "policy": {"kind": "always-small"}}}
    async with FakeUpstream(lambda _: COUNT) as upstream, behind(upstream, routes=route) as test:
        assert (await count(test, "auto")).json() == {"input_tokens": 2095}
        assert upstream.received[0].json()["model"] == "claude-m"


async def test_for_a_backend_that_cannot_it_is_estimated() -> None:
    async with FakeUpstream() as upstream, behind(upstream) as test:
        response = await count(test, "m")
        assert response.json()["input_tokens"] > 0
        assert response.headers["x-lockgate-estimated"] == "true"
        assert not upstream.received


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_server_without_the_path_leaves_an_estimate(status: int) -> None:
    missing = Reply(status=status, pieces=[b'{"detail": "Not Found"}'])
    async with FakeUpstream(lambda _: missing) as upstream, behind(upstream) as test:
        response = await count(test)
        assert (response.status_code, response.headers["x-lockgate-estimated"]) == (200, "true")


async def test_an_error_of_the_backend_is_passed_on() -> None:
    body = b'{"type":"error","error":{"type":"not_found_error","message":"model: claude-m"}}'
    async with FakeUpstream(lambda _: Reply(status=404, pieces=[body])) as upstream, behind(upstream) as test:
        response = await count(test)
        assert (response.status_code, response.content) == (404, body)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(content_type="text/html", pieces=[b"<html>"]), 502),
        (Reply(pieces=[b'{"input_tok']), 502),
        (Reply(pieces=[b'{"input_tok'], end="reset"), 502),
        (Reply(status=503, content_type="text/html", pieces=[b"<html>"]), 503),
        (Reply(status=0, end="reset"), 502),
        (Reply(pieces=[b" " * 1_000_001]), 502),
    ],
)
async def test_what_is_no_count_is_an_error_in_json(reply: Reply, status: int) -> None:
    async with FakeUpstream(lambda _: reply) as upstream, behind(upstream) as test:
        response = await count(test)
        assert response.status_code == status
        assert error_of(response)["message"]
        assert "html>" not in response.text


async def test_bad_requests_and_unknown_models_in_anthropics_shape() -> None:
    async with FakeUpstream() as upstream, behind(upstream) as test:
        assert error_of(await test.http.post(PATH, content=b"{bad"))["type"] == "invalid_request_error"
        assert error_of(await count(test, "nope"))["type"] == "not_found_error"
        assert not upstream.received


async def test_a_fault_of_ours_is_a_json_500_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(_: object) -> None:
        raise RuntimeError("secret detail")

    async with FakeUpstream() as upstream, behind(upstream) as test:
        monkeypatch.setattr(test.gateway.catalog, "find", explode)
        response = await count(test)
        assert response.status_code == 500
        assert error_of(response)["type"] == "api_error"
        assert "secret" not in response.text


async def test_a_count_costs_nothing_and_has_a_log_line() -> None:
    with capture_logs() as logs:
        async with FakeUpstream(lambda _: COUNT) as upstream, behind(upstream) as test:
            await count(test)
    (line,) = [line for line in logs if line["event"] == "request"]
    assert (line["status"], line["route"], line["backend"]) == (200, "count_tokens", "ant")
    assert not line.get("cost_usd")
