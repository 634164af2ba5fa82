"""A real server held to its own OpenAPI document: random requests, as it allows them and as it does not."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import API_PATHS, COUNT_TOKENS_PATH
from gateway.wire.completions import CompletionsDialect
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MessagesDialect
from gateway.wire.responses import ResponsesDialect
from tests.gateway.wire.messages_cases import message, text
from tests.servers import Server, serving
from tests.upstreams import FakeUpstream, Received, Reply, answer_ok, stream_reply

pytestmark = pytest.mark.model

CONFIG = """
[cache]
store = "memory"
policy = {{ kind = "{policy}" }}
[backends.openai]
kind = "openai"
base_url = "{url}/v1"
apis = ["chat", "completions", "responses", "embeddings"]
[backends.anthropic]
kind = "anthropic"
base_url = "{url}"
[backends.chat]
kind = "openai"
base_url = "{url}/v1"
apis = ["chat"]
[models.gpt]
backend = "openai"
name = "gpt"
[models.claude]
backend = "anthropic"
name = "claude"
[models.chat]
backend = "chat"
name = "chat"
"""
SCHEMATHESIS = """
seed = 20
[generation]
database = "none"
deterministic = true
max-examples = {examples}
mode = "{mode}"
[phases]
examples.enabled = false
stateful.enabled = false
coverage.enabled = {systematic}
fuzzing.extra-data-sources.responses = false
[checks]
ignored_auth.enabled = false
positive_data_acceptance.enabled = {accepted}
[[operations]]
# Other methods go upstream there, as on every path that is not the gateway's own.
include-path-regex = "^/v1/models"
checks.unsupported_method.enabled = false
[[operations]]
# A count is asked for with what a message is: the hundreds of systematic cases of the one are enough.
include-path = "/v1/messages/count_tokens"
phases.coverage.enabled = false
"""
OF_ENTRIES = "^/admin/(entries|invalidate|feedback)"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with gateway(tmp_path_factory.mktemp("home"), policy="exact") as running:
        yield running


@pytest.fixture(scope="module")
def semantic_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with gateway(tmp_path_factory.mktemp("semantic"), policy="static") as running:
        yield running


@contextmanager
def gateway(home: Path, *, policy: str) -> Iterator[Server]:
    with upstream() as url:
        config = home / "config.toml"
        config.write_text(CONFIG.format(url=url, policy=policy))
        with serving(home, "--config", str(config)) as running:
            yield running


@contextmanager
def upstream() -> Iterator[str]:
    """A server of every API in a thread of its own; gives its address."""
    started, stop = threading.Event(), asyncio.Event()
    loops: list[tuple[asyncio.AbstractEventLoop, str]] = []

    async def serve() -> None:
        async with FakeUpstream(answer) as fake:
            loops.append((asyncio.get_running_loop(), fake.base_url.removesuffix("/v1")))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(10)
    loop, url = loops[0]
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def answer(request: Received) -> Reply:
    """What a well-behaved server of the API says."""
    path = request.path.removeprefix("/v1").partition("?")[0]
    if path == "/messages/count_tokens":
        return Reply(pieces=[b'{"input_tokens":7}'])
    if path == "/embeddings":
        vector = {"object": "embedding", "index": 0, "embedding": [0.5, -0.5]}
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return whole({"object": "list", "data": [vector], "model": "gpt", "usage": usage})
    if path not in ANSWERS:
        return answer_ok(request)
    dialect, said = ANSWERS[path]
    if not request.json().get("stream"):
        return whole(said)
    events = [*map(dialect.frame, dialect.events(said, include_usage=True)), dialect.end]
    return stream_reply([event for event in events if event])


def whole(body: Mapping[str, Any]) -> Reply:
    return Reply(pieces=[json.dumps(body).encode()])


ANSWERS: Mapping[str, tuple[Dialect, Mapping[str, Any]]] = {
    "/completions": (
        CompletionsDialect(),
        {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1,
            "model": "gpt",
            "choices": [{"index": 0, "text": "hello", "finish_reason": "stop", "logprobs": None}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        },
    ),
    "/responses": (
        ResponsesDialect(),
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": "gpt",
            "output": [
                {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "hello", "annotations": []}],
                }
            ],
            "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        },
    ),
    "/messages": (MessagesDialect(), message(text("hello"))),
}


def test_every_request_is_answered_as_the_document_says(server: Server, tmp_path: Path) -> None:
    config = SCHEMATHESIS.format(examples=15, mode="all", systematic="true", accepted="true")
    run(server, tmp_path, config, "--exclude-path-regex", OF_ENTRIES)


def test_what_the_cache_holds_is_told_and_removed_so_too(semantic_server: Server, tmp_path: Path) -> None:
    """With an embedder, which similar_to needs, and some entries to be found."""
    for number in range(20):
        body = {"model": "gpt", "messages": [{"role": "user", "content": f"What is {number}?"}]}
        assert httpx.post(f"{semantic_server.base_url}/chat/completions", json=body).status_code == 200
    config = SCHEMATHESIS.format(examples=25, mode="all", systematic="true", accepted="true")
    run(semantic_server, tmp_path, config, "--include-path-regex", OF_ENTRIES)


def test_what_is_translated_for_a_chat_backend_is_answered_so_too(server: Server, tmp_path: Path) -> None:
    """What chat completions cannot express is refused, so not all that is valid is accepted."""
    config = SCHEMATHESIS.format(examples=8, mode="positive", systematic="false", accepted="false")
    run(
        server,
        tmp_path,
        config,
        "--include-path-regex",
        "/v1/(chat|completions|responses|messages)",
        MODEL="chat",
    )


def test_what_the_local_model_embeds_is_answered_so_too(semantic_server: Server, tmp_path: Path) -> None:
    """It takes no tokens, and has one number of dimensions, so not all that is valid is accepted."""
    before = answered(semantic_server)
    config = SCHEMATHESIS.format(examples=20, mode="all", systematic="false", accepted="false")
    run(semantic_server, tmp_path, config, "--include-path", "/v1/embeddings", MODEL="lockgate-embedding")
    assert answered(semantic_server) > before


def answered(server: Server) -> int:
    """How many requests ended well."""
    ended: int = httpx.get(f"{server.url}/admin/stats").json()["by_status"].get("200", 0)
    return ended


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"model":NaN}',
        b'{"model":1e999}',
        b'{"model":"\xff"}',
        b'{"model":"\\ud800"}',
        b'{"a":' + b"[" * 300 + b"]" * 300 + b"}",
        b"[" * 100_000,
    ],
    ids=["empty", "list", "nan", "huge number", "not UTF-8", "half a surrogate", "deep", "deeper"],
)
def test_a_body_that_no_schema_can_describe_is_refused(server: Server, body: bytes) -> None:
    for path in (*API_PATHS, COUNT_TOKENS_PATH):
        response = httpx.post(f"{server.url}{path}", content=body)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"


def run(server: Server, folder: Path, config: str, *options: str, **variables: str) -> None:
    """Sends random requests, those that the document allows and others, and holds the answers to it."""
    path = folder / "schemathesis.toml"
    path.write_text(config)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(path)),
        *("run", f"{server.url}/openapi.json", "--no-color", *options),
    ]
    environment = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "tests.e2e.openapi_hooks",
        "PYTHONPATH": str(ROOT),
        **variables,
    }
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
