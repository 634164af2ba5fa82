"""OpenAI chat completions: the client's JSON, checked, to a Request.

Field types and ranges: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

import msgspec
import orjson
from msgspec import Meta, Struct

from gateway.errors import RequestError
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


_PATH = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]+)`$")


def parse_chat(
    raw: bytes, *, tenant: str, route_pin: Tier | None = None, cache: CacheDirectives | None = None
) -> Request:
    """Raises RequestError (400), naming the field that is wrong."""
    body = parse_object(raw)
    try:
        fields = msgspec.convert(body, _ChatFields)
    except msgspec.ValidationError as error:
        raise _named(str(error)) from None
    for i, message in enumerate(fields.messages):
        _check_message(message, f"messages[{i}]")
    return Request(
        api="chat",
        model=fields.model,
        body=body,
        tenant=tenant,
        stream=bool(fields.stream),
        include_usage=bool(fields.stream_options and fields.stream_options.include_usage),
        route_pin=route_pin,
        cache=cache or CacheDirectives(),
    )


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object a body must be. Raises RequestError (400)."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RequestError(
            f"The body is not valid JSON ({error.msg}; {where}).", code="invalid_json"
        ) from None
    if not isinstance(body, dict):
        raise RequestError("The body must be a JSON object.", code="invalid_json")
    return body


def _check_message(message: _Message, path: str) -> None:
    if isinstance(message.content, list):
        for i, part in enumerate(message.content):
            if part.type == "text" and part.text is None:
                raise _field_error(f"{path}.content[{i}].text", "expected text; the field is missing")
    calls = message.tool_calls or message.function_call or message.refusal
    if message.content is None and not (message.role == "assistant" or calls):
        raise _field_error(f"{path}.content", "expected text or a list of parts; the field is missing")
    if message.role == "tool" and message.tool_call_id is None:
        raise _field_error(f"{path}.tool_call_id", "expected the id of a tool call; the field is missing")


def _named(error: str) -> RequestError:
    """msgspec's message in the client's terms: the field's path first, then what was expected."""
    match = _PATH.match(error)
    what, path = (match["what"], match["path"] or "") if match else (error, "")
    field = path.removeprefix("$").removeprefix(".").replace("[...]", "")
    if missing := _MISSING.match(what):
        field = f"{field}.{missing['name']}" if field else missing["name"]
        return _field_error(field, "the field is missing")
    if what.startswith("Invalid enum value"):
        what = f"expected one of {', '.join(ROLES)}, got{what.removeprefix('Invalid enum value')}"
    return _field_error(field or None, what[:1].lower() + what[1:])


def _field_error(field: str | None, problem: str) -> RequestError:
    code = "missing_required_parameter" if problem.endswith("missing") else "invalid_value"
    return RequestError(f"{field or 'body'}: {problem}.", param=field, code=code)
