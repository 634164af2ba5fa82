from __future__ import annotations

from collections.abc import Iterator

import anthropic
import openai
import pytest

from tests.clients.stack import Stack, running_stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def openai_client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=stack.server.base_url, api_key="sk-client", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def anthropic_client(stack: Stack) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=stack.server.url, api_key="sk-ant-client", max_retries=0) as client:
        yield client
