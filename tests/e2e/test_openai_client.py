"""The official OpenAI client against a real server with the real small model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.servers import Server, serving

pytestmark = pytest.mark.model

PARIS = "What is the capital of France?"
PARIS_REWORDED = "Can you tell me what the capital of France is?"
HARD = (
    "Prove that every finite group of order p^2, where p is prime, is abelian, and then derive the number of "
    "isomorphism classes of such groups. Justify each step rigorously."
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.base_url, api_key="sk-e2e", max_retries=0) as opened:
        yield opened


def asked(client: openai.OpenAI, text: str, **options: Any) -> tuple[str, Any]:
    """(content, headers)"""
    raw = client.chat.completions.with_raw_response.create(
        model="auto", messages=[{"role": "user", "content": text}], max_tokens=60, **options
    )
    return raw.parse().choices[0].message.content or "", raw.headers


def test_miss_exact_semantic_miss(client: openai.OpenAI) -> None:
    answer, headers = asked(client, PARIS)
    assert headers["x-lockgate-cache"] == "miss"
    assert "Paris" in answer
    again, headers = asked(client, PARIS)
    assert headers["x-lockgate-cache"] == "hit-exact"
    assert again == answer
    reworded, headers = asked(client, PARIS_REWORDED)
    assert headers["x-lockgate-cache"] == "hit-semantic"
    assert reworded == answer
    _, headers = asked(client, "Which planet is the largest in the solar system?")
    assert headers["x-lockgate-cache"] == "miss"
    assert headers["x-lockgate-backend"] == "builtin"


def test_an_easy_and_a_hard_question_take_different_routes(client: openai.OpenAI) -> None:
    _, easy = asked(client, "Say hello.")
    _, hard = asked(client, HARD)
    assert easy["x-lockgate-route"] == "small"
    assert hard["x-lockgate-route"] == "large"


def test_a_stream_comes_in_chunks_and_is_stored(client: openai.OpenAI) -> None:
    def streamed() -> tuple[str, int, str | None, int | None]:
        text, chunks, reason, total = "", 0, None, None
        for chunk in client.chat.completions.create(
            model="auto",
            messages=[{"role": "user", "content": "What color is the sky?"}],
            stream=True,
            stream_options={"include_usage": True},
        ):
            chunks += 1
            if chunk.usage:
                total = chunk.usage.total_tokens
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
        return text, chunks, reason, total

    first, again = streamed(), streamed()
    assert first[0]
    assert first[1] > 3
    assert first[2] == "stop"
    assert first[3]
    assert (again[0], again[2], again[3]) == (first[0], first[2], first[3])


async def test_the_async_client_and_one_call_for_equal_questions(server: Server) -> None:
    async with openai.AsyncOpenAI(base_url=server.base_url, api_key="sk-async", max_retries=0) as client:

        async def ask() -> tuple[str, str]:
            raw = await client.chat.completions.with_raw_response.create(
                model="auto", messages=[{"role": "user", "content": "Name three colors of the rainbow."}]
            )
            completion = raw.parse()
            return completion.choices[0].message.content or "", raw.headers["x-lockgate-cache"]

        results = await asyncio.gather(*(ask() for _ in range(4)))
    assert len({text for text, _ in results}) == 1
    assert [kind for _, kind in results].count("miss") == 1
    assert {kind for _, kind in results} <= {"miss", "coalesced", "hit-exact"}


def test_models_are_listed(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert names == ["auto", "small", "large", "lockgate-embedding", "multilingual-e5-small"]


def test_errors_are_the_clients_own_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist") as missing:
        client.chat.completions.create(model="nope", messages=[{"role": "user", "content": "x"}])
    assert missing.value.param == "model"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(
            model="auto",
            messages=[{"role": "user", "content": "x"}],
            extra_body={"temperature": "hot"},
        )
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as unsupported:
        client.chat.completions.create(
            model="auto",
            messages=[{"role": "user", "content": "x"}],
            tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}],
        )
    assert unsupported.value.param == "tools"


def test_a_huge_body_is_413(server: Server) -> None:
    body = {"model": "auto", "messages": [{"role": "user", "content": "x" * 50_000_000}]}
    response = httpx.post(f"{server.base_url}/chat/completions", json=body, timeout=60)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"


def test_one_structured_log_line_a_request_and_no_secret_in_it(server: Server, client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="auto", messages=[{"role": "user", "content": "What is two plus two, my dear?"}]
    )
    line = json.loads(server.line_with(raw.headers["x-request-id"]))
    assert line["cache"] == raw.headers["x-lockgate-cache"]
    assert line["reason"] == raw.headers["x-lockgate-reason"]
    assert line["status"] == 200
    everything = "".join(server.lines)
    assert "sk-e2e" not in everything
    assert "my dear" not in everything


def test_stats_agree_with_metrics(server: Server) -> None:
    stats = httpx.get(f"{server.url}/admin/stats").json()
    metrics = httpx.get(f"{server.url}/metrics").text
    counted = sum(
        float(line.rsplit(" ", 1)[1])
        for line in metrics.splitlines()
        if line.startswith("lockgate_requests_total")
    )
    assert stats["requests"] == counted
    assert "lockgate_batch_size_count" in metrics


def test_the_start_says_that_small_and_large_are_the_same_model(server: Server) -> None:
    (line,) = [line for line in server.lines if line.startswith("route")]
    assert "small and large are both SmolLM2" in line
    assert "OPENAI_API_KEY" in line


def test_a_restart_keeps_every_entry(tmp_path: Path) -> None:
    with serving(tmp_path) as first, openai.OpenAI(base_url=first.base_url, api_key="k") as client:
        answer, _ = asked(client, PARIS)
        assert first.stop() in (0, -15)
    with serving(tmp_path) as second, openai.OpenAI(base_url=second.base_url, api_key="k") as client:
        again, headers = asked(client, PARIS)
        assert headers["x-lockgate-cache"] == "hit-exact"
        assert again == answer
        _, headers = asked(client, PARIS_REWORDED)
        assert headers["x-lockgate-cache"] == "hit-semantic", "the index is rebuilt from the store"
