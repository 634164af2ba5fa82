"""OpenAI chat completions: the client's JSON, checked, to a Request.

Field types and ranges: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct

from gateway.wire.dialect import Asked
from gateway.wire.validation import checked, field_error, parse_object
from policies.types import CacheDirectives, Request, Tier

_Positive = Annotated[int, Meta(ge=1)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]


class _Part(Struct):
    type: str
    text: str | None = None


Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
ROLES = get_args(Role)


class _Message(Struct):
    role: Role
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    function_call: dict[str, Any] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _ChatFields(Struct):
    """The fields whose type we know. Others pass unseen and are kept."""

    model: Annotated[str, Meta(min_length=1)]
    messages: Annotated[list[_Message], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    max_tokens: _Positive | None = None
    max_completion_tokens: _Positive | None = None
    stop: str | list[str] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    seed: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None


def parse_chat(
    raw: bytes, *, tenant: str, route_pin: Tier | None = None, cache: CacheDirectives | None = None
) -> Request:
    """Raises RequestError (400), naming the field that is wrong."""
    body = parse_object(raw)
    asked = check(body)
    return Request(
        api="chat",
        model=asked.model,
        body=body,
        tenant=tenant,
        stream=asked.stream,
        include_usage=asked.include_usage,
        route_pin=route_pin,
        cache=cache or CacheDirectives(),
    )


def check(body: dict[str, Any]) -> Asked:
    """Raises RequestError (400), naming the field that is wrong."""
    fields = checked(body, _ChatFields, choices={"role": ROLES})
    for i, message in enumerate(fields.messages):
        _check_message(message, f"messages[{i}]")
    return Asked(
        model=fields.model,
        stream=bool(fields.stream),
        include_usage=bool(fields.stream_options and fields.stream_options.include_usage),
    )


def _check_message(message: _Message, path: str) -> None:
    if isinstance(message.content, list):
        for i, part in enumerate(message.content):
            if part.type == "text" and part.text is None:
                raise field_error(f"{path}.content[{i}].text", "expected text; the field is missing")
    calls = message.tool_calls or message.function_call or message.refusal
    if message.content is None and not (message.role == "assistant" or calls):
        raise field_error(f"{path}.content", "expected text or a list of parts; the field is missing")
    if message.role == "tool" and message.tool_call_id is None:
        raise field_error(f"{path}.tool_call_id", "expected the id of a tool call; the field is missing")
