"""One gateway for all of these tests; the clients of each module have a key of their own, so that no module
is answered from what another has asked."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import openai
import pytest

from tests.clients.stack import Stack, running_stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def key(request: pytest.FixtureRequest) -> str:
    return f"sk-{request.module.__name__.rpartition('.')[2]}"


@pytest.fixture(scope="module")
def openai_client(stack: Stack, key: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=stack.server.base_url, api_key=key, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def anthropic_client(stack: Stack, key: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=stack.server.url, api_key=key, max_retries=0) as client:
        yield client
