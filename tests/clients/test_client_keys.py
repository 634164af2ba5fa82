"""Lockgate's own keys, with the official clients."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.clients.stack import Stack, running_stack

KEYS = {"web": "lg-web-key", "few": "lg-few-key", "small": "lg-small-key"}
LIMITS = {"web": "", "few": "requests_per_minute = 2", "small": "tokens_per_minute = 1000"}
USER: list[Any] = [{"role": "user", "content": "Am I let in?"}]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    tables = [
        f'[auth.keys.{name}]\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n{LIMITS[name]}\n'
        for name, key in KEYS.items()
    ]
    config = '[auth]\nmode = "keys"\n' + "".join(tables)
    with running_stack(tmp_path_factory.mktemp("home"), config, api_key="sk-of-the-gateway") as running:
        yield running


@pytest.fixture
def openai_client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=stack.server.base_url, api_key=KEYS["web"], max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(stack: Stack) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=stack.server.url, api_key=KEYS["web"], max_retries=0) as client:
        yield client


def test_a_key_lets_in_and_never_goes_upstream(
    openai_client: openai.OpenAI, anthropic_client: anthropic.Anthropic, stack: Stack
) -> None:
    openai_client.chat.completions.create(model="gpt", messages=USER)
    assert stack.openai.last.headers["authorization"] == "Bearer sk-of-the-gateway"
    anthropic_client.messages.create(model="claude", max_tokens=300, messages=USER)
    assert stack.claude.last.headers["x-api-key"] == "sk-of-the-gateway"
    sent = [value for request in stack.openai.received for value in request.headers.values()]
    sent += [value for request in stack.claude.received for value in request.headers.values()]
    assert not [value for value in sent if KEYS["web"] in value]
    assert KEYS["web"] not in "".join(stack.server.lines)


def test_a_wrong_key_is_an_authentication_error(
    openai_client: openai.OpenAI, anthropic_client: anthropic.Anthropic, stack: Stack
) -> None:
    before = len(stack.openai.received) + len(stack.claude.received)
    wrong = openai_client.with_options(api_key="lg-wrong-key")
    calls: list[Callable[[], object]] = [
        lambda: wrong.chat.completions.create(model="gpt", messages=USER),
        lambda: wrong.chat.completions.create(model="gpt", messages=USER, stream=True),
        lambda: wrong.responses.create(model="gpt", input="Am I?"),
        lambda: wrong.completions.create(model="gpt", prompt="Am I?"),
        lambda: wrong.embeddings.create(model="gpt", input="Am I?"),
        lambda: wrong.models.list(),
        lambda: wrong.files.content("file-1"),
    ]
    for call in calls:
        with pytest.raises(openai.AuthenticationError) as raised:
            call()
        assert raised.value.code == "invalid_api_key"
        assert "lg-wrong-key" not in str(raised.value)
    wrongly = anthropic_client.with_options(api_key="lg-wrong-key")
    with pytest.raises(anthropic.AuthenticationError) as refused:
        wrongly.messages.create(model="claude", max_tokens=300, messages=USER)
    body: Any = refused.value.body
    assert body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.AuthenticationError):
        wrongly.messages.count_tokens(model="claude", messages=USER)
    assert len(stack.openai.received) + len(stack.claude.received) == before


def test_a_wrong_key_for_the_list_of_models_is_told_in_anthropics_shape(
    anthropic_client: anthropic.Anthropic,
) -> None:
    with pytest.raises(anthropic.AuthenticationError) as raised:
        anthropic_client.with_options(api_key="lg-wrong-key").models.list()
    body: Any = raised.value.body
    assert body["type"] == "error"


def test_a_key_beyond_its_requests_is_a_rate_limit_error(
    openai_client: openai.OpenAI, anthropic_client: anthropic.Anthropic
) -> None:
    few = openai_client.with_options(api_key=KEYS["few"])
    left = [
        few.chat.completions.with_raw_response.create(model="gpt", messages=USER).headers[
            "x-ratelimit-remaining-requests"
        ]
        for _ in range(2)
    ]
    assert left == ["1", "0"]
    with pytest.raises(openai.RateLimitError) as raised:
        few.chat.completions.create(model="gpt", messages=USER)
    assert raised.value.code == "requests_per_minute_exceeded"
    assert 1 <= int(raised.value.response.headers["retry-after"]) <= 60
    with pytest.raises(anthropic.RateLimitError) as limited:
        anthropic_client.with_options(api_key=KEYS["few"]).messages.create(
            model="claude", max_tokens=300, messages=USER
        )
    body: Any = limited.value.body
    assert body["error"]["type"] == "rate_limit_error"


def test_a_request_beyond_the_tokens_of_a_minute_is_told_its_size(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError, match="may use 1000 per minute") as raised:
        openai_client.with_options(api_key=KEYS["small"]).chat.completions.create(
            model="gpt", messages=USER, max_tokens=2_000
        )
    assert raised.value.status_code == 413


def test_two_keys_share_no_answers(openai_client: openai.OpenAI) -> None:
    asked: Any = {"model": "gpt", "messages": [{"role": "user", "content": "Whose is it?"}]}
    openai_client.chat.completions.create(**asked)
    other = openai_client.with_options(api_key=KEYS["small"])
    raw = other.chat.completions.with_raw_response.create(**asked)
    assert raw.headers["x-lockgate-cache"] == "miss"


def test_the_models_are_listed_for_a_key(openai_client: openai.OpenAI) -> None:
    assert "listed-upstream" in [model.id for model in openai_client.models.list()]
