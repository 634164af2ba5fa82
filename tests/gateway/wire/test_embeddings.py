"""Embeddings: what is accepted, and answers that OpenAI's client reads."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from openai.types import CreateEmbeddingResponse

from gateway.errors import RequestError
from gateway.wire.dialect import Dialect
from gateway.wire.embeddings import MAX_INPUTS, EmbeddingsDialect, embedding_answer, texts_of
from policies.semantic_safety import why_unsafe
from policies.types import Usage

DIALECT: Dialect = EmbeddingsDialect()
VECTORS = np.array([[0.25, -1.5], [3.0, 0.1]], dtype=np.float32)


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "e5", "input": "hello", **fields}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"input": ["a", "b"]},
        {"input": [1, 2]},
        {"input": [[1], [2, 3]]},
        {"encoding_format": "base64", "dimensions": 256, "user": "u", "later": [1]},
        {"encoding_format": None, "dimensions": None},
    ],
)
def test_requests_of_every_form(fields: dict[str, Any]) -> None:
    asked = DIALECT.check(body(**fields))
    assert (asked.model, asked.stream) == ("e5", False)


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"input": None}, "input", "expected `str | array"),
        ({"input": []}, "input", "length >= 1"),
        ({"input": ["a", 1]}, "input[1]", "all texts"),
        ({"input": [{"text": "a"}]}, "input[0]", "expected"),
        ({"encoding_format": "hex"}, "encoding_format", "float, base64"),
        ({"dimensions": 0}, "dimensions", ">= 1"),
        ({"stream": True}, "stream", "not streamed"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        DIALECT.check(body(**fields))
    assert caught.value.param == param
    assert message in str(caught.value)


@pytest.mark.parametrize("given", ["hello", ["hello"], [1, 2]])
def test_a_near_text_has_another_vector(given: Any) -> None:
    assert why_unsafe(DIALECT.chat_view(body(input=given)))[1] is None


def test_the_question_is_the_input() -> None:
    assert DIALECT.without_question(body(dimensions=3)) == {"model": "e5", "dimensions": 3}


@pytest.mark.parametrize(("given", "texts"), [("a", ["a"]), (["a", "b"], ["a", "b"])])
def test_the_texts_of_a_request(given: Any, texts: list[str]) -> None:
    assert texts_of(body(input=given)) == texts


@pytest.mark.parametrize(
    ("given", "param", "message"),
    [
        ([1, 2], "input", "tokens"),
        ([[1]], "input", "tokens"),
        ("", "input", "not empty"),
        (["a", ""], "input[1]", "not empty"),
        (["a"] * (MAX_INPUTS + 1), "input", "at most 2048 texts, got 2049"),
    ],
)
def test_what_a_local_embedder_cannot_take_is_named(given: Any, param: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        texts_of(body(input=given))
    assert (caught.value.status, caught.value.param) == (400, param)
    assert message in str(caught.value)


def test_vectors_as_numbers() -> None:
    answer = embedding_answer(VECTORS, [2, 3], model="e5")
    parsed = CreateEmbeddingResponse.model_validate(answer)
    assert [one.embedding for one in parsed.data] == VECTORS.tolist()
    assert [one.index for one in parsed.data] == [0, 1]
    assert (parsed.model, parsed.usage.prompt_tokens, parsed.usage.total_tokens) == ("e5", 5, 5)


def test_vectors_as_base64_are_little_endian_float32() -> None:
    answer = embedding_answer(VECTORS.astype(">f4"), [2, 3], model="e5", encoding_format="base64")
    decoded = [np.frombuffer(base64.b64decode(one["embedding"]), dtype="<f4") for one in answer["data"]]
    assert np.array_equal(np.stack(decoded), VECTORS)


def test_usage_is_the_prompts() -> None:
    assert DIALECT.usage(embedding_answer(VECTORS, [2, 3], model="e5")) == Usage(prompt_tokens=5)


def test_an_answer_is_one_event_of_its_own() -> None:
    answer = embedding_answer(VECTORS, [2, 3], model="e5")
    assembler = DIALECT.assembler()
    for event in DIALECT.events(answer, include_usage=True):
        assembler.add(event)
    assert assembler.answer() == answer


def test_an_answer_with_vectors_is_kept() -> None:
    assert DIALECT.why_not_stored(embedding_answer(VECTORS, [2, 3], model="e5")) == ""
    assert DIALECT.why_not_stored({"object": "list", "data": []}) == "the answer has no embeddings"


def test_only_an_id_that_was_there_is_renewed() -> None:
    answer = embedding_answer(VECTORS, [2, 3], model="up")
    assert DIALECT.renewed(answer, model="e5", now=9.5) == {**answer, "model": "e5"}
    fresh = DIALECT.renewed({**answer, "id": "embd-1", "created": 1}, model="e5", now=9.5)
    assert fresh["id"] != "embd-1"
    assert fresh["created"] == 9


def test_errors_have_openais_shape() -> None:
    assert DIALECT.error_body(RequestError("No.", param="input")).startswith(b'{"error":{"message":"No."')
    assert DIALECT.error_frame(RequestError("No.")).startswith(b'data: {"error":')
    assert (DIALECT.frame({"a": 1}), DIALECT.end) == (b'data: {"a":1}\n\n', b"")
