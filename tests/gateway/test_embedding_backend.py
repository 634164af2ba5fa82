"""The gateway's own embedder, asked through the embeddings API."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import numpy as np
import pytest

from backends.errors import EngineUnavailable, InvalidCall
from backends.protocols import Call, Chunk
from embeddings.protocols import EmbedderError, EncodedText
from gateway.embedding_backend import EmbeddingBackend
from tests.gateways import running

DIMENSION = 4


async def encode(text: str) -> EncodedText:
    vector = np.full(DIMENSION, 0.5, np.float32)
    return EncodedText(vector=vector, token_count=len(text.split()), truncated=text == "too long")


async def asked(backend: EmbeddingBackend, **body: Any) -> Chunk:
    (chunk,) = [one async for one in backend.stream(Call(api="embeddings", body={"model": "m", **body}))]
    return chunk


def made(encoder: Any = encode) -> EmbeddingBackend:
    return EmbeddingBackend(encoder, DIMENSION)


async def test_each_text_has_its_vector_in_order() -> None:
    chunk = await asked(made(), input=["a b", "c"])
    answer = chunk.events[0]
    assert chunk.whole
    assert [row["index"] for row in answer["data"]] == [0, 1]
    assert answer["data"][0]["embedding"] == [0.5] * DIMENSION
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["model"] == "m"


async def test_base64_is_float32_little_endian() -> None:
    answer = (await asked(made(), input="a", encoding_format="base64")).events[0]
    vector = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4")
    assert vector.tolist() == [0.5] * DIMENSION


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "a", "dimensions": 3}, "dimensions"),
        ({"input": [1, 2]}, "input"),
        ({"input": ["fine", "too long"]}, "input"),
    ],
)
async def test_what_it_cannot_do_is_refused(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        await asked(made(), **body)
    assert caught.value.param == param


async def test_its_own_dimension_may_be_asked_for() -> None:
    assert (await asked(made(), input="a", dimensions=DIMENSION)).whole


async def test_a_dead_embedder_is_an_engine_that_is_not_there() -> None:
    async def dead(_: str) -> EncodedText:
        raise EmbedderError("it is dead")

    backend = made(dead)
    with pytest.raises(EngineUnavailable, match="it is dead"):
        await asked(backend, input="a")
    assert (await backend.load()).running == 0


async def test_what_is_being_encoded_is_its_load() -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slow(text: str) -> EncodedText:
        begun.set()
        await gate.wait()
        return await encode(text)

    backend = made(slow)
    asking = asyncio.ensure_future(asked(backend, input="a"))
    await begun.wait()
    assert (await backend.load()).running == 1
    gate.set()
    await asking
    assert (await backend.load()).running == 0
    assert (await backend.health()).ready


async def test_the_embeddings_api_answers_with_it_and_charges_nothing() -> None:
    async with running() as test:
        body = {"model": "lockgate-embedding", "input": ["sky blue", "sea"]}
        response = await test.http.post("/v1/embeddings", json=body)
        assert response.status_code == 200
        vectors = np.array([row["embedding"] for row in response.json()["data"]])
        assert np.linalg.norm(vectors, axis=1) == pytest.approx([1.0, 1.0], abs=1e-5)
        assert response.headers["x-lockgate-backend"] == "embedder"
        assert (await test.http.get("/admin/stats")).json()["cost_usd"] == 0
        refused = await test.http.post("/v1/embeddings", json={**body, "dimensions": 3})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "dimensions")


async def test_an_embedding_model_does_not_chat() -> None:
    async with running() as test:
        response = await test.ask(model="lockgate-embedding")
        assert response.status_code == 400
        assert "cannot answer this API" in response.json()["error"]["message"]
