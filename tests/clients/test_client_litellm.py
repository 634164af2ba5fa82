"""litellm as a client, of the OpenAI side and of the Anthropic side."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from tests.clients.fake_model import (
    COMPLETION_TOKENS,
    JSON_ANSWER,
    PROMPT_TOKENS,
    REASONING,
    echo,
)
from tests.clients.fake_openai import vector_of
from tests.clients.stack import Stack

# Its own code warns: pydantic of its fields, asyncio of what it does not close.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
]
SIDES = ("openai/gpt", "openai/plain", "openai/claude", "anthropic/claude", "anthropic/gpt")
"""The client's side, and the model it asks."""
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.fixture(scope="module")
def litellm() -> Any:
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patched.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches its prices
        import litellm

        litellm.telemetry = False
        litellm.suppress_debug_info = True
        yield litellm


def asking(stack: Stack, model: str, text: str, **more: Any) -> dict[str, Any]:
    base_url = stack.server.base_url if model.startswith("openai/") else stack.server.url
    return {
        "model": model,
        "api_base": base_url,
        "api_key": "sk-lite",
        "messages": [{"role": "user", "content": text}],
        "num_retries": 0,
        "max_retries": 0,
        **more,
    }


@pytest.mark.parametrize("model", SIDES)
def test_a_question_is_answered_and_then_hit(litellm: Any, stack: Stack, model: str) -> None:
    for cache in ("miss", "hit-exact"):
        answer = litellm.completion(**asking(stack, model, "What is a lite question?"))
        assert answer.choices[0].message.content == echo("What is a lite question?")
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.total_tokens == PROMPT_TOKENS + COMPLETION_TOKENS
        assert answer._hidden_params["additional_headers"]["llm_provider-x-lockgate-cache"] == cache


@pytest.mark.parametrize("model", SIDES)
def test_a_stream_has_its_text_and_usage(litellm: Any, stack: Stack, model: str) -> None:
    for _ in ("miss", "hit-exact"):
        chunks = list(
            litellm.completion(
                **asking(
                    stack,
                    model,
                    "What is a lite stream?",
                    stream=True,
                    stream_options={"include_usage": True},
                )
            )
        )
        told = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        assert told == echo("What is a lite stream?")
        usages = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
        assert [usage.total_tokens for usage in usages] == [PROMPT_TOKENS + COMPLETION_TOKENS]


@pytest.mark.parametrize("model", SIDES)
@pytest.mark.parametrize("stream", [False, True])
def test_parallel_tools_and_their_results(litellm: Any, stack: Stack, model: str, stream: bool) -> None:
    question = f"The weather in Paris and Seoul (streamed: {stream})?"
    asked = asking(stack, model, question, tools=[WEATHER], stream=stream)
    answer = litellm.completion(**asked)
    if stream:
        answer = litellm.stream_chunk_builder(list(answer))
    message = answer.choices[0].message
    assert [call.function.name for call in message.tool_calls] == ["weather", "weather"]
    assert [json.loads(call.function.arguments)["city"] for call in message.tool_calls] == ["Paris", "Seoul"]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in message.tool_calls]
    history = [*asked["messages"], message.model_dump(exclude_none=True), *results]
    told = litellm.completion(**{**asked, "stream": False, "messages": history})
    assert told.choices[0].message.content == "call_paris says rain; call_seoul says rain"


@pytest.mark.parametrize("model", ["openai/gpt-thinks", "anthropic/claude-thinks"])
def test_reasoning_comes_through(litellm: Any, stack: Stack, model: str) -> None:
    answer = litellm.completion(**asking(stack, model, "Why, lightly?"))
    assert answer.choices[0].message.reasoning_content == REASONING


def test_json_is_asked_for(litellm: Any, stack: Stack) -> None:
    wanted = {"type": "json_object"}
    answer = litellm.completion(**asking(stack, "openai/gpt", "JSON?", response_format=wanted))
    assert json.loads(answer.choices[0].message.content) == JSON_ANSWER


def test_embeddings(litellm: Any, stack: Stack) -> None:
    answer = litellm.embedding(
        model="openai/gpt", input=["four"], api_base=stack.server.base_url, api_key="sk-lite"
    )
    assert answer.data[0]["embedding"] == pytest.approx(vector_of("four").tolist(), rel=1e-6)


@pytest.mark.parametrize("model", ["gpt", "plain"])
def test_responses(litellm: Any, stack: Stack, model: str) -> None:
    asked = {"model": f"openai/{model}", "api_base": stack.server.base_url, "api_key": "sk-lite"}
    answer = litellm.responses(**asked, input="Respond?")
    assert answer.output[0].content[0].text == echo("Respond?")
    events = list(litellm.responses(**asked, input="Respond in a stream?", stream=True))
    told = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert told == echo("Respond in a stream?")


@pytest.mark.parametrize("side", ["openai/gpt", "openai/claude", "anthropic/claude", "anthropic/gpt"])
@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "BadRequestError"), (401, "AuthenticationError"), (404, "NotFoundError"), (429, "RateLimitError")],
)
def test_errors_are_its_own(litellm: Any, stack: Stack, side: str, status: int, kind: str) -> None:
    with pytest.raises(getattr(litellm, kind), match=f"The model says {status}"):
        litellm.completion(**asking(stack, f"{side}-fails-{status}", "Well?"))


@pytest.mark.parametrize("side", ["openai/gpt", "anthropic/claude"])
def test_a_stream_that_breaks_off_raises(litellm: Any, stack: Stack, side: str) -> None:
    with pytest.raises(litellm.exceptions.ServiceUnavailableError, match="broke off"):
        list(litellm.completion(**asking(stack, f"{side}-dies", "Cut?", stream=True)))
