"""The gateway's own embedding model through OpenAI's client."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import numpy as np
import openai
import pytest

from tests.servers import serving

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    home = tmp_path_factory.mktemp("home")
    path = home / "config.toml"
    path.write_text('[backends.nobody]\nkind = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n')
    with (
        serving(home, "--config", str(path)) as server,
        openai.OpenAI(base_url=server.base_url, api_key="sk-embeddings", max_retries=0) as opened,
    ):
        yield opened


def test_float_and_base64_are_the_same_vectors(client: openai.OpenAI) -> None:
    texts = ["What is the capital of France?", "Which city is the capital of France?", "How do bees fly?"]
    by_default = client.embeddings.create(model="lockgate-embedding", input=texts)
    floats = client.embeddings.create(model="lockgate-embedding", input=texts, encoding_format="float")
    coded = client.embeddings.create(model="lockgate-embedding", input=texts, encoding_format="base64")
    wanted = np.array([row.embedding for row in by_default.data], dtype=np.float32)
    assert np.array_equal(wanted, np.array([row.embedding for row in floats.data], dtype=np.float32))
    decoded = [np.frombuffer(base64.b64decode(str(row.embedding)), dtype="<f4") for row in coded.data]
    assert np.array_equal(wanted, np.array(decoded))
    np.testing.assert_allclose(np.linalg.norm(wanted, axis=1), 1, atol=1e-3)
    likeness = wanted @ wanted.T
    assert likeness[0, 1] > likeness[0, 2]
    assert floats.usage.prompt_tokens > 10
    assert floats.model == "lockgate-embedding"


def test_one_text_is_one_vector_and_its_model_is_listed(client: openai.OpenAI) -> None:
    (row,) = client.embeddings.create(model="lockgate-embedding", input="one").data
    assert row.index == 0
    assert client.models.retrieve("lockgate-embedding").id == "lockgate-embedding"


def test_an_input_it_cannot_read_is_named(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.embeddings.create(model="lockgate-embedding", input="")
    assert raised.value.param == "input"
