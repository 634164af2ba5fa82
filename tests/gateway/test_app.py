"""The routes around the pipeline, and the edge of the chat endpoint."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.router_weights import read_weights, shipped, write_weights
from policies.difficulty import HEADS
from tests.gateways import Running, running, told, until


async def test_models_are_routes_and_models() -> None:
    async with running() as test:
        rows = (await test.http.get("/v1/models")).json()["data"]
        assert [row["id"] for row in rows] == [
            "auto", "small", "large", "lockgate-embedding", "multilingual-e5-small",
        ]  # fmt: skip
        assert {row["object"] for row in rows} == {"model"}


async def test_a_model_may_be_asked_for_by_name() -> None:
    async with running() as test:
        response = await test.ask(model="large")
        assert response.headers["x-lockgate-route"] == "direct"
        assert response.headers["x-lockgate-model"] == "fake-large"


async def test_an_unknown_model_is_404_or_goes_to_the_backend_for_unknown_names() -> None:
    async with running() as test:
        response = await test.ask(model="gpt-nope")
        assert response.status_code == 404
        error = response.json()["error"]
        assert (error["param"], error["code"]) == ("model", "model_not_found")
        assert "auto, small, large" in error["message"]
    async with running(server={"unknown_models": {"backend": "fake"}}) as test:
        assert (await test.ask(model="gpt-new")).headers["x-lockgate-model"] == "gpt-new"


async def test_the_client_may_pin_the_tier() -> None:
    async with running() as test:
        for tier in ("small", "large"):
            response = await test.ask(headers={"x-lockgate-route": tier})
            assert response.headers["x-lockgate-route"] == tier
            assert "the client asked" in response.headers["x-lockgate-route-reason"]
            assert response.headers["x-lockgate-cache"] == "miss", "the pin is part of the identity"
        assert (await test.ask(headers={"x-lockgate-route": "medium"})).status_code == 400


async def test_what_the_small_model_cannot_do_goes_to_the_large_one() -> None:
    models: dict[str, Any] = {
        "small": {"backend": "fake", "name": "fake-small", "capabilities": [], "context_tokens": 500},
        "large": {"backend": "fake", "name": "fake-large"},
    }
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    async with running(models=models) as test:
        with_tools = await test.ask("hi", tools=[tool])
        assert with_tools.headers["x-lockgate-route"] == "large"
        assert with_tools.headers["x-lockgate-route-reason"] == "the small model lacks tools"
        long = await test.ask("word " * 400)
        assert "500 tokens of context" in long.headers["x-lockgate-route-reason"]


async def test_fixed_policies() -> None:
    for kind, tier in (("always-small", "small"), ("always-large", "large")):
        route = {"small": "small", "large": "large", "policy": {"kind": kind}}
        async with running(routes={"auto": route}) as test:
            assert (await test.ask()).headers["x-lockgate-route"] == tier


async def test_a_route_may_bring_weights_of_its_own(tmp_path: Path) -> None:
    weights = read_weights(shipped()).weights
    eager = np.zeros(2, np.float32)
    eager[HEADS.index("large")] = 20.0
    eager[HEADS.index("small")] = -20.0
    write_weights(tmp_path / "mine.onnx", replace(weights, lexical_only_bias=eager), {})
    for own, tier in (({}, "small"), ({"weights": str(tmp_path / "mine.onnx")}, "large")):
        route = {"small": "small", "large": "large", "policy": {"kind": "difficulty", **own}}
        async with running(routes={"auto": route}) as test:
            assert (await test.ask("hello")).headers["x-lockgate-route"] == tier


async def test_paths_and_methods_that_are_not_there() -> None:
    async with running() as test:
        for method, path, status in (("GET", "/v1/nope", 404), ("GET", "/v1/chat/completions", 405)):
            response = await test.http.request(method, path)
            assert response.status_code == status
            assert path in response.json()["error"]["message"]


async def test_bad_bodies() -> None:
    async with running() as test:
        for content, param in ((b"{bad", None), (b"{}", "model"), (b'{"model": "auto"}', "messages")):
            response = await test.http.post("/v1/chat/completions", content=content)
            assert response.status_code == 400
            assert response.json()["error"]["param"] == param
            assert len(response.headers.get_list("x-request-id")) == 1


async def test_a_body_that_is_too_large_is_413_and_is_not_kept() -> None:
    async with running(server={"max_body_bytes": 1000}) as test:
        response = await test.ask("x" * 2000)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "body_too_large"
        assert "allows 1000" in response.json()["error"]["message"]


async def test_a_request_id_is_kept_when_it_is_harmless() -> None:
    async with running() as test:
        kept = await test.ask(headers={"x-request-id": "trace-1.2"})
        assert kept.headers["x-request-id"] == "trace-1.2"
        assert test.backend.calls[0].headers["x-request-id"] == "trace-1.2"
        replaced = await test.ask(headers={"x-request-id": "a b\tc"})
        assert replaced.headers["x-request-id"].startswith("req_")


async def test_only_harmless_headers_go_upstream() -> None:
    async with running() as test:
        await test.ask(headers={"cookie": "s=1", "x-custom": "1", "traceparent": "00-a-b-01"})
        assert set(test.backend.calls[0].headers) == {"x-request-id", "traceparent", "user-agent"}


async def test_health() -> None:
    async with running() as test:
        assert (await test.http.get("/health/live")).json() == {"status": "ok"}
        ready = await test.http.get("/health/ready")
        assert ready.status_code == 200
        assert ready.json()["backends"]["fake"] == {"ready": True, "detail": "as told"}
    async with running() as test:
        test.backend.ready = False
        ready = await test.http.get("/health/ready")
        assert ready.status_code == 503
        assert ready.json()["status"] == "unavailable"
        test.backend.ready = True
        assert (await test.http.get("/health/ready")).status_code == 200, "recovery shows at once"


async def test_metrics_have_the_names_users_see() -> None:
    async with running() as test:
        await test.ask()
        text = (await test.http.get("/metrics")).text
        for name in (
            'lockgate_requests_total{cache="miss",model="fake-',
            "lockgate_request_seconds_bucket",
            'lockgate_stage_seconds_bucket{le="0.001",stage="embed"}',
            "lockgate_cache_entries 1.0",
            'lockgate_tokens_total{direction="input"',
            "lockgate_cost_usd_total",
            "lockgate_saved_usd_total",
            'lockgate_backend_up{backend="fake"} 1.0',
        ):
            assert name in text


async def test_clients_cannot_make_labels_without_end() -> None:
    async with running(server={"unknown_models": {"backend": "fake"}}) as test:
        for number in range(120):
            await test.ask(model=f"made-up-{number}")
        text = (await test.http.get("/metrics")).text
        lines = [line for line in text.splitlines() if line.startswith("lockgate_requests_total")]
        assert len(lines) <= 102
        assert any('model="other"' in line for line in lines)


async def leave(test: Running, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Speaks ASGI itself: asks, waits until the backend works, disconnects. What was sent to the client."""
    raw = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "hi"}], **body}).encode()
    left = asyncio.Event()
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": raw, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/v1/chat/completions",
        "headers": [(b"authorization", b"Bearer k")],
        "query_string": b"", "client": ("127.0.0.1", 1), "root_path": "", "http_version": "1.1",
        "scheme": "http", "server": ("gateway", 80), "asgi": {"version": "3.0"},
    }  # fmt: skip
    followers = test.followers
    serving = asyncio.ensure_future(test.app(scope, receive, send))
    await until(lambda: test.followers > followers)
    left.set()
    await asyncio.wait_for(serving, 1)
    return sent


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_the_work_upstream(stream: bool) -> None:
    async with running() as test:
        test.backend.gate = asyncio.Event()
        sent = await leave(test, {"stream": stream})
        await until(lambda: test.backend.cancelled == 1, timeout_s=1)
        assert sent == []
        assert 'status="499"' in (await test.http.get("/metrics")).text


async def test_the_last_to_leave_cancels_and_not_the_first() -> None:
    async with running() as test:
        test.backend.gate = asyncio.Event()
        staying = asyncio.ensure_future(test.ask("hi"))
        await until(lambda: test.followers == 1)
        await leave(test, {})
        assert test.backend.cancelled == 0
        test.backend.gate.set()
        assert told(await staying) == "answer 1"


async def test_a_fault_of_ours_is_a_json_500_that_tells_nothing() -> None:
    async with running() as test:

        def explode(body: dict[str, Any]) -> dict[str, Any]:
            raise RuntimeError("secret detail")

        test.backend.rewrite = explode
        response = await test.ask()
        assert response.status_code == 500
        assert response.json()["error"]["type"] == "server_error"
        assert "secret detail" not in response.text


def test_importing_the_app_loads_nothing_heavy() -> None:
    script = (
        "import sys, gateway.app;"
        "print([m for m in ('torch', 'faiss', 'litellm', 'transformers', 'onnxruntime', 'onnx', 'xllamacpp',"
        " 'sentence_transformers', 'sklearn') if m in sys.modules])"
    )
    told_modules = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert told_modules.strip() == "[]"
