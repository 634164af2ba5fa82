"""OpenAI's client, the other APIs: completions, embeddings, models, files and batches."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import openai
import pytest

from tests.clients.fake_model import COMPLETION_TOKENS, PROMPT_TOKENS, echo
from tests.clients.fake_openai import vector_of
from tests.clients.stack import CANCELLED_WITHIN_S, Stack


@pytest.mark.parametrize("model", ["gpt", "plain", "claude"])
def test_a_completion_misses_and_then_hits(openai_client: openai.OpenAI, model: str) -> None:
    for cache in ("miss", "hit-exact"):
        raw = openai_client.completions.with_raw_response.create(model=model, prompt="Once upon")
        assert raw.headers["x-lockgate-cache"] == cache
        answer = raw.parse()
        assert answer.choices[0].text == echo("Once upon")
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        assert answer.usage.total_tokens == PROMPT_TOKENS + COMPLETION_TOKENS


@pytest.mark.parametrize("model", ["gpt", "plain", "claude"])
@pytest.mark.parametrize("asked_usage", [True, False])
def test_a_completion_streams(openai_client: openai.OpenAI, model: str, asked_usage: bool) -> None:
    options: Any = {"include_usage": True} if asked_usage else None
    for cache in ("miss", "hit-exact"):
        raw = openai_client.completions.with_raw_response.create(
            model=model, prompt=f"In pieces, {asked_usage}", stream=True, stream_options=options
        )
        assert raw.headers["x-lockgate-cache"] == cache
        chunks = list(raw.parse())
        told = "".join(choice.text for chunk in chunks for choice in chunk.choices)
        assert told == echo(f"In pieces, {asked_usage}")
        usages = [chunk.usage.total_tokens for chunk in chunks if chunk.usage]
        assert usages == ([PROMPT_TOKENS + COMPLETION_TOKENS] if asked_usage else [])


def test_several_prompts_have_a_choice_each(openai_client: openai.OpenAI) -> None:
    for _ in ("miss", "hit-exact"):
        answer = openai_client.completions.create(model="gpt", prompt=["One", "Two"])
        assert [choice.text for choice in answer.choices] == [echo("One"), echo("Two")]


def test_a_completion_that_breaks_off_raises(openai_client: openai.OpenAI) -> None:
    stream = openai_client.completions.create(model="gpt-dies", prompt="Cut", stream=True)
    with pytest.raises(openai.APIError):
        list(stream)


def test_closing_a_completion_reaches_the_upstream(openai_client: openai.OpenAI, stack: Stack) -> None:
    before = stack.openai.aborted
    stream = openai_client.completions.create(model="gpt-hangs", prompt="Left", stream=True)
    next(iter(stream))
    stream.close()
    stack.openai.until(lambda counted: counted.aborted == before + 1, CANCELLED_WITHIN_S)


@pytest.mark.parametrize("encoding_format", [None, "base64", "float"])
def test_embeddings_of_an_upstream(openai_client: openai.OpenAI, encoding_format: Any) -> None:
    """Without a format the client asks for base64 and reads it."""
    asked: dict[str, Any] = {"model": "gpt", "input": ["a", f"bcd {encoding_format}"]}
    if encoding_format is not None:
        asked["encoding_format"] = encoding_format
    for cache in ("miss", "hit-exact"):
        raw = openai_client.embeddings.with_raw_response.create(**asked)
        assert raw.headers["x-lockgate-cache"] == cache
        answer = raw.parse()
        assert [row.index for row in answer.data] == [0, 1]
        for row, text in zip(answer.data, asked["input"], strict=True):
            vector: Any = row.embedding
            if isinstance(vector, str):
                vector = np.frombuffer(base64.b64decode(vector), dtype="<f4")
            np.testing.assert_allclose(vector, vector_of(text), rtol=1e-6)
        assert answer.usage.prompt_tokens == PROMPT_TOKENS


def test_embeddings_by_a_model_that_cannot_are_an_error(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        openai_client.embeddings.create(model="claude", input="a")
    assert raised.value.param == "model"


def test_models_are_listed_with_those_of_the_upstream(openai_client: openai.OpenAI) -> None:
    names = [model.id for model in openai_client.models.list()]
    assert {"auto", "gpt", "plain", "claude", "listed-upstream"} <= set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["auto", "gpt", "listed-upstream"])
def test_a_model_is_retrieved(openai_client: openai.OpenAI, name: str) -> None:
    model = openai_client.models.retrieve(name)
    assert (model.id, model.object) == (name, "model")


def test_the_list_of_models_has_a_request_id(openai_client: openai.OpenAI) -> None:
    assert openai_client.models.with_raw_response.list().request_id


def test_a_model_that_nobody_knows_is_not_found(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        openai_client.models.retrieve("of/nobody")


def test_a_file_comes_back_byte_for_byte(openai_client: openai.OpenAI, stack: Stack) -> None:
    content = random.Random(1).randbytes(300_000) + b"\r\n--not-the-boundary\r\n\x00\xff"
    made = openai_client.files.create(file=("täst.bin", content), purpose="batch")
    assert made.bytes == len(content)
    assert made.filename == "täst.bin"
    assert stack.files.uploads[made.id] == content
    assert openai_client.files.content(made.id).content == content
    with openai_client.files.with_streaming_response.content(made.id) as streamed:
        assert b"".join(streamed.iter_bytes(10_000)) == content
    assert openai_client.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError, match="No such thing"):
        openai_client.files.content(made.id)


def test_batches_pass_through(openai_client: openai.OpenAI) -> None:
    made = openai_client.batches.with_raw_response.create(
        input_file_id="file-9", endpoint="/v1/chat/completions", completion_window="24h"
    )
    assert made.headers["x-lockgate-cache"] == "bypass"
    assert len(made.headers.get_list("x-request-id")) == 1
    assert made.parse().input_file_id == "file-9"
    assert [batch.id for batch in openai_client.batches.list(limit=5)] == ["batch_1"]
