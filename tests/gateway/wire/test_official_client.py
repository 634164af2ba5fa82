"""OpenAI's own client reads what the dialects write: frames, ends, errors, base64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
from openai import APIError, OpenAI

from gateway.errors import RequestError
from gateway.wire.chat_as_response import ResponseWriter, response_of
from gateway.wire.chat_dialect import ChatDialect
from gateway.wire.completions import CompletionsDialect
from gateway.wire.dialect import Dialect
from gateway.wire.embeddings import embedding_answer
from gateway.wire.responses import ResponsesDialect
from tests.chat_streams import chunk, completion, tool_call

ERROR = RequestError("Cut.", code="upstream_cut")
COMPLETION: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "text": "upon a time", "logprobs": None, "finish_reason": "stop"}],
}


def client(body: bytes, content_type: str = "text/event-stream") -> OpenAI:
    answer = httpx.Response(200, content=body, headers={"content-type": content_type})
    transport = httpx.MockTransport(lambda request: answer)
    http_client: Any = httpx.Client(transport=transport)  # some versions want their own name for this type
    return OpenAI(base_url="http://gateway/v1", api_key="any", http_client=http_client)


def streamed(dialect: Dialect, events: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> bytes:
    return b"".join(map(dialect.frame, events)) + dialect.end


def test_a_stored_response_streams() -> None:
    message = {"reasoning_content": "Hm", "content": "one two three", "tool_calls": [tool_call(0)]}
    answer = response_of(completion(message, "tool_calls"), {"model": "m", "input": "a"})
    dialect = ResponsesDialect()
    with (
        client(streamed(dialect, dialect.events(answer, include_usage=True))) as openai,
        openai.responses.stream(model="m", input="a") as stream,
    ):
        final = stream.get_final_response()
    assert final.output_text == "one two three"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.usage is not None
    assert final.usage.input_tokens_details.cached_tokens == 5


def test_a_translated_response_streams() -> None:
    writer = ResponseWriter({"model": "m", "input": "a"})
    events = [*writer.feed(chunk({"content": "a"})), *writer.feed(chunk({"content": "b"}, "stop"))]
    body = streamed(ResponsesDialect(), [*events, *writer.end()])
    with client(body) as openai, openai.responses.stream(model="m", input="a") as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert stream.get_final_response().output_text == "ab"
    assert texts == ["a", "b"]


def test_an_error_within_a_stream_of_responses_is_an_event() -> None:
    with client(ResponsesDialect().error_frame(ERROR)) as openai:
        (event,) = openai.responses.create(model="m", input="a", stream=True)
    assert event.type == "error"
    assert (event.message, event.code) == ("Cut.", "upstream_cut")


def test_a_stored_completion_streams() -> None:
    dialect = CompletionsDialect()
    with client(streamed(dialect, dialect.events(COMPLETION, include_usage=False))) as openai:
        pieces = list(openai.completions.create(model="m", prompt="Once", stream=True))
    assert "".join(piece.choices[0].text for piece in pieces) == "upon a time"
    assert pieces[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("dialect", [ChatDialect(), CompletionsDialect()])
def test_an_error_within_a_stream_is_raised(dialect: Dialect) -> None:
    with client(dialect.error_frame(ERROR)) as openai, pytest.raises(APIError, match="Cut"):
        list(openai.completions.create(model="m", prompt="Once", stream=True))


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
def test_embeddings_are_read(encoding_format: Any) -> None:
    vectors = np.array([[0.5, -0.25]], dtype=np.float32)
    answer = embedding_answer(vectors, [2], model="e5", encoding_format=encoding_format)
    with client(orjson.dumps(answer), "application/json") as openai:
        read = openai.embeddings.create(model="e5", input=["a"])
    assert read.data[0].embedding == [0.5, -0.25]
