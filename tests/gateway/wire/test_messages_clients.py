"""The official clients read what we write: Anthropic's, from the bytes up, and OpenAI's types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from gateway.errors import RequestError
from gateway.wire.chat_to_messages import ChatToMessages
from gateway.wire.messages import MessagesDialect
from gateway.wire.messages_to_chat import MessagesToChat
from tests.gateway.wire.messages_cases import (
    HELLO,
    asking,
    chatting,
    chunked,
    completions,
    message,
    text,
    through,
    tool_inputs,
    tool_use,
)

DIALECT = MessagesDialect()
EVENTS: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
WHOLE = message(
    {"type": "thinking", "thinking": "6 by 7", "signature": "s"},
    text("It is 42."),
    tool_use("t1", "f", {"a": [1, {"b": "città"}]}),
    tool_use("t2", "g", {}),
    stop_reason="tool_use",
    usage={"input_tokens": 3, "output_tokens": 9, "cache_read_input_tokens": 4},
)


def client(status: int, body: bytes, content_type: str) -> anthropic.Anthropic:
    """Anthropic's client before a server that answers everything with this body."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, content=body, headers={"content-type": content_type})

    transport = httpx2.MockTransport(answer)
    return anthropic.Anthropic(
        api_key="k", max_retries=0, http_client=anthropic.DefaultHttpxClient(transport=transport)
    )


def stream_of(events: Iterable[Mapping[str, Any]], after: bytes = b"") -> anthropic.Anthropic:
    body = b"".join(DIALECT.frame(event) for event in events) + after + DIALECT.end
    return client(200, body, "text/event-stream")


def read(from_client: anthropic.Anthropic) -> dict[str, Any]:
    with from_client.messages.stream(model="claude-x", max_tokens=64, messages=[HELLO[0]]) as stream:  # type: ignore[list-item]
        return stream.get_final_message().to_dict(mode="json", exclude_unset=True)


def test_anthropics_client_reads_a_stored_answers_stream() -> None:
    seen = read(stream_of(DIALECT.events(WHOLE, include_usage=True)))
    assert seen["content"] == WHOLE["content"]
    assert seen["stop_reason"] == "tool_use"
    assert seen["usage"] == WHOLE["usage"]


def test_anthropics_client_raises_an_error_within_a_stream() -> None:
    first, *_ = DIALECT.events(WHOLE, include_usage=True)
    frame = DIALECT.error_frame(RequestError("The answer broke off.", status=502))
    with pytest.raises(anthropic.APIError, match="The answer broke off"):
        read(stream_of([first], frame))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, anthropic.BadRequestError),
        (401, anthropic.AuthenticationError),
        (404, anthropic.NotFoundError),
        (429, anthropic.RateLimitError),
        (529, anthropic.APIStatusError),
    ],
)
def test_anthropics_client_raises_an_error_for_each_status(status: int, kind: type[Exception]) -> None:
    body = DIALECT.error_body(RequestError("max_tokens: the field is missing.", status=status))
    with pytest.raises(kind, match="the field is missing"):
        client(status, body, "application/json").messages.create(
            model="claude-x",
            max_tokens=64,
            messages=[HELLO[0]],  # type: ignore[list-item]
        )


@given(completions(), st.data())
def test_a_translated_answer_and_stream_are_anthropics(answer: dict[str, Any], data: st.DataObject) -> None:
    translator = MessagesToChat()
    Message.model_validate(translator.answer(answer, asking()))
    for event in through(translator.events(asking(stream=True)), data.draw(chunked(answer))):
        EVENTS.validate_python(event)


def test_anthropics_client_reads_a_translated_stream() -> None:
    chunks = through(
        ChatToMessages().events(chatting(stream=True)), DIALECT.events(WHOLE, include_usage=True)
    )
    seen = read(stream_of(through(MessagesToChat().events(asking(stream=True)), chunks)))
    thinking, *rest = WHOLE["content"]
    # A signature is worth something only to the one who signed: none comes through a chat backend.
    assert seen["content"] == [{**thinking, "signature": ""}, *rest]
    assert seen["stop_reason"] == "tool_use"
    assert {name: seen["usage"][name] for name in WHOLE["usage"]} == WHOLE["usage"]


@given(st.text(), tool_inputs, st.sampled_from(["end_turn", "max_tokens", "tool_use", "refusal"]))
def test_a_translated_message_and_stream_are_openais(
    words: str, tool_input: dict[str, Any], stop_reason: str
) -> None:
    answer = message(text(words), tool_use("t", "f", tool_input), stop_reason=stop_reason)
    translator = ChatToMessages()
    ChatCompletion.model_validate(translator.answer(answer, chatting()), strict=True)
    for chunk in through(
        translator.events(chatting(stream=True)), DIALECT.events(answer, include_usage=True)
    ):
        ChatCompletionChunk.model_validate(chunk, strict=True)
