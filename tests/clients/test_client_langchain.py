"""LangChain's OpenAI integration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest
from pydantic import BaseModel, SecretStr

from tests.clients.fake_model import (
    COMPLETION_TOKENS,
    JSON_ANSWER,
    PIXEL,
    PROMPT_TOKENS,
    described_image,
    echo,
)
from tests.clients.fake_openai import vector_of
from tests.clients.stack import Stack

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI

BACKENDS = ("gpt", "plain", "claude")


class City(BaseModel):
    """A city."""

    city: str
    inhabitants: int


def chat(stack: Stack, model: str, **more: Any) -> ChatOpenAI:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(
        base_url=stack.server.base_url,
        api_key=SecretStr("sk-chain"),
        model=model,
        max_retries=0,
        include_response_headers=True,
        **more,
    )


@pytest.mark.parametrize("model", BACKENDS)
def test_a_question_is_answered_and_then_hit(stack: Stack, model: str) -> None:
    asked = [("system", "Be brief."), ("human", "What is a chain?")]
    for cache in ("miss", "hit-exact"):
        message = chat(stack, model).invoke(asked)
        assert message.content == echo("What is a chain?", "Be brief.")
        assert message.response_metadata["headers"]["x-lockgate-cache"] == cache
        assert message.response_metadata["finish_reason"] == "stop"
        usage: Any = message.usage_metadata
        assert (usage["input_tokens"], usage["output_tokens"]) == (PROMPT_TOKENS, COMPLETION_TOKENS)


@pytest.mark.parametrize("model", BACKENDS)
def test_a_stream_adds_up(stack: Stack, model: str) -> None:
    for _ in ("miss", "hit-exact"):
        chunks = list(chat(stack, model, stream_usage=True).stream("What is a link?"))
        assert len(chunks) > 3
        total: Any = chunks[0]
        for chunk in chunks[1:]:
            total += chunk
        assert total.content == echo("What is a link?")
        assert total.usage_metadata["total_tokens"] == PROMPT_TOKENS + COMPLETION_TOKENS


async def test_the_async_side_streams_too(stack: Stack) -> None:
    told = [chunk.content async for chunk in chat(stack, "gpt").astream("What is async?")]
    assert "".join(map(str, told)) == echo("What is async?")


@pytest.mark.parametrize("model", BACKENDS)
def test_tools_are_called_and_their_results_read(stack: Stack, model: str) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage

    def weather(city: str) -> str:
        """Today's weather in a city."""
        return f"fine in {city}"

    bound = chat(stack, model).bind_tools([weather])
    question = HumanMessage("What is the weather in Paris and Rome?")
    for _ in ("miss", "hit-exact"):
        answer: Any = bound.invoke([question])
        assert [(call["name"], call["args"]["city"]) for call in answer.tool_calls] == [
            ("weather", "Paris"),
            ("weather", "Rome"),
        ]
        assert answer.invalid_tool_calls == []
    results = [
        ToolMessage(weather(call["args"]["city"]), tool_call_id=call["id"]) for call in answer.tool_calls
    ]
    told = bound.invoke([question, answer, *results])
    assert told.content == "call_paris says fine in Paris; call_rome says fine in Rome"


@pytest.mark.parametrize("model", BACKENDS)
def test_streamed_tool_calls_are_parsed(stack: Stack, model: str) -> None:
    def weather(city: str) -> str:
        """Today's weather in a city."""
        return city

    total: Any = None
    for chunk in chat(stack, model).bind_tools([weather]).stream("The weather in Rome and Seoul, streamed?"):
        total = chunk if total is None else total + chunk
    assert [call["args"]["city"] for call in total.tool_calls] == ["Rome", "Seoul"]


@pytest.mark.parametrize("model", BACKENDS)
def test_structured_output_is_an_object(stack: Stack, model: str) -> None:
    structured = chat(stack, model).with_structured_output(City)
    assert structured.invoke("Which city?") == City(**JSON_ANSWER)


def test_an_image_reaches_the_model(stack: Stack) -> None:
    from langchain_core.messages import HumanMessage

    parts: list[str | dict[Any, Any]] = [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "base64": PIXEL, "mime_type": "image/png"},
    ]
    answer = chat(stack, "gpt").invoke([HumanMessage(content=parts)])
    assert answer.content == f"I see {described_image('image/png', PIXEL)}."


@pytest.mark.parametrize("model", BACKENDS)
def test_the_responses_api_answers_too(stack: Stack, model: str) -> None:
    for question in ("Whole?", "Whole?"):
        answer = chat(stack, model, use_responses_api=True).invoke(question)
        assert answer.text == echo(question)
    streamed = chat(stack, model, use_responses_api=True).stream("Streamed?")
    assert "".join(chunk.text for chunk in streamed) == echo("Streamed?")


def test_embeddings_of_texts(stack: Stack) -> None:
    from langchain_openai import OpenAIEmbeddings

    embeddings = OpenAIEmbeddings(
        base_url=stack.server.base_url,
        api_key=SecretStr("sk-chain"),
        model="gpt",
        check_embedding_ctx_length=False,  # else it sends token ids, for which it fetches a vocabulary
        max_retries=0,
    )
    vectors = embeddings.embed_documents(["one", "three"])
    for vector, text in zip(vectors, ["one", "three"], strict=True):
        assert vector == pytest.approx(vector_of(text).tolist(), rel=1e-6)


def test_a_completion_model_completes(stack: Stack) -> None:
    from langchain_openai import OpenAI

    model = OpenAI(base_url=stack.server.base_url, api_key=SecretStr("sk-chain"), model="gpt", max_retries=0)
    assert model.invoke("Once upon") == echo("Once upon")
    assert "".join(model.stream("Twice upon")) == echo("Twice upon")


def test_errors_are_those_of_openais_client(stack: Stack) -> None:
    with pytest.raises(openai.RateLimitError, match="The model says 429"):
        chat(stack, "gpt-fails-429").invoke("Well?")
    with pytest.raises(openai.APIError):
        list(chat(stack, "gpt-dies").stream("Cut?"))
