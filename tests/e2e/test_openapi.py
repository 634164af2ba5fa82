"""A real server held to its own OpenAPI document: random requests, as it allows them and as it does not."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance, unsupported_method

from gateway.openapi import document
from gateway.settings import Settings
from gateway.wire.completions import CompletionsDialect
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MessagesDialect
from gateway.wire.responses import ResponsesDialect
from tests.gateway.wire.messages_cases import message, text
from tests.servers import Server, serving
from tests.upstreams import FakeUpstream, Received, Reply, answer_ok, stream_reply

pytestmark = pytest.mark.model

SEED = 20
EXAMPLES = 25
CONFIG = """
[cache]
store = "memory"
policy = {{ kind = "exact" }}
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
DOCUMENT = document(Settings())
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT, config=SchemathesisConfig(seed=SEED))
POSITIVE = schemathesis.openapi.from_dict(
    DOCUMENT,
    config=SchemathesisConfig.from_dict(
        {"seed": SEED, "generation": {"mode": "positive"}, "phases": {"coverage": {"enabled": False}}}
    ),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("home")
    with upstream() as url:
        config = home / "config.toml"
        config.write_text(CONFIG.format(url=url))
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


NATIVE = {"/v1/messages": "claude", "/v1/messages/count_tokens": "claude"}
"""Who answers the API without a translation; else the model gpt does."""
PASSED_THROUGH = ("/v1/models", "/v1/models/{id}")
"""Paths whose other methods go upstream, like every path that is not the gateway's own."""
TRANSPORT_HEADERS = {
    "allow", "content-length", "content-type", "cache-control", "date", "transfer-encoding",
}  # fmt: skip
SETTINGS = hypothesis.settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@SCHEMA.parametrize()
@SETTINGS
def test_every_request_is_answered_as_the_document_says(case: schemathesis.Case, server: Server) -> None:
    hypothesis.assume(not _breaks_a_rule_beyond_json_schema(case))
    send(case, server, NATIVE.get(case.path, "gpt"))


@POSITIVE.include(path_regex="/v1/(chat|completions|responses|messages)").parametrize()
@SETTINGS
def test_what_is_translated_for_a_chat_backend_is_answered_so_too(
    case: schemathesis.Case, server: Server
) -> None:
    """What chat completions cannot express is refused, so not all that is valid is accepted."""
    send(case, server, "chat", excluded=[positive_data_acceptance])


def send(case: schemathesis.Case, server: Server, model: str, excluded: Sequence[Any] = ()) -> None:
    """Sends the request, for `model` where it names any, and holds the answer to the document."""
    if isinstance(case.body, dict):
        case.body = _with_whole_integers(case.body)
        if isinstance(asked := case.body.get("model"), str) and asked:
            case.body["model"] = model
    if case.path in PASSED_THROUGH:
        excluded = [*excluded, unsupported_method]
    response = case.call_and_validate(base_url=server.url, timeout=10, excluded_checks=[*excluded])
    documented = DOCUMENT["paths"][case.path].get(case.method.lower())
    if documented is not None:
        said = documented["responses"][str(response.status_code)]
        assert set(response.headers) <= {*said.get("headers", ()), *TRANSPORT_HEADERS}


def _breaks_a_rule_beyond_json_schema(case: schemathesis.Case) -> bool:
    """`best_of` is at least `n`; since, until and format need `by`; an empty header is none."""
    if (case.headers or {}).get("x-lockgate-route") == "":
        return True
    if case.path == "/admin/stats":
        return bool(case.query) and "by" not in case.query
    body = case.body
    if case.path != "/v1/completions" or not isinstance(body, dict):
        return False
    best_of, n = body.get("best_of"), body.get("n") or 1
    return isinstance(best_of, int | float) and isinstance(n, int | float) and best_of < n


def _with_whole_integers(value: Any) -> Any:
    """JSON Schema takes 1.0 for an integer; the gateway does not."""
    if isinstance(value, dict):
        return {name: _with_whole_integers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_whole_integers(one) for one in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return value
