"""OpenAI's Responses API.

Field types and ranges: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

import orjson
from msgspec import Meta, Struct

from gateway.errors import RequestError, openai_error_body
from gateway.ids import random_hex
from gateway.wire import responses_input, responses_stream
from gateway.wire.chat_stream import tokens
from gateway.wire.dialect import Asked, Json
from gateway.wire.openai_wire import without_last_text
from gateway.wire.validation import checked, field_error
from policies.types import Api, Usage

_Positive = Annotated[int, Meta(ge=1)]

Truncation = Literal["auto", "disabled"]
Role = Literal["user", "assistant", "system", "developer"]

TIMELESS_ITEMS = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
"""Output items that the model alone has made. All others are of tools that the provider runs (web and file
search, code, MCP ...), whose results change with time, or of kinds we do not know."""


_OF_ONE_REQUEST: dict[str, Any] = {
    "metadata": {},
    "prompt_cache_key": None,
    "safety_identifier": None,
    "user": None,
}


class _Part(Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    file_id: str | None = None
    file_data: str | None = None


class _Message(Struct):
    role: Role
    content: str | list[_Part]


class _Call(Struct):
    call_id: str
    name: str
    arguments: str


class _Output(Struct):
    call_id: str
    output: str | list[_Part]


_ITEMS: dict[str, type[Struct]] = {
    "message": _Message,
    "function_call": _Call,
    "function_call_output": _Output,
}


class _Format(Struct):
    type: str
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class _Text(Struct):
    format: _Format | None = None
    verbosity: str | None = None


class _Reasoning(Struct):
    effort: str | None = None
    summary: str | None = None


class _Tool(Struct):
    type: str
    name: str | None = None
    parameters: dict[str, Any] | None = None


class _ToolChoice(Struct):
    type: str
    name: str | None = None
    mode: str | None = None
    tools: list[dict[str, Any]] | None = None


class _Fields(Struct):
    """The fields whose type we know. Others pass unseen and are kept."""

    model: Annotated[str, Meta(min_length=1)]
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    background: bool | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: _Positive | None = None
    text: _Text | None = None
    reasoning: _Reasoning | None = None
    max_output_tokens: _Positive | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    truncation: Truncation | None = None
    include: list[str] | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None


class ResponsesDialect:
    """`POST /v1/responses`; an answer is a `response` object."""

    api: Api = "responses"
    end = b""

    def check(self, body: dict[str, Any]) -> Asked:
        fields = checked(body, _Fields, choices={"truncation": get_args(Truncation)})
        if fields.previous_response_id is not None and fields.conversation is not None:
            raise field_error("conversation", "expected none beside previous_response_id")
        if fields.input is None and not any(responses_input.context_elsewhere(body)):
            raise field_error("input", "the field is missing")
        for i, item in enumerate(fields.input if isinstance(fields.input, list) else ()):
            _check_item(item, f"input[{i}]")
        for i, tool in enumerate(fields.tools or ()):
            if tool.type == "function" and not tool.name:
                raise field_error(f"tools[{i}].name", "the field is missing")
        wanted = fields.text.format if fields.text else None
        if wanted and wanted.type == "json_schema":
            for name in ("name", "schema"):
                if getattr(wanted, name) is None:
                    raise field_error(f"text.format.{name}", "the field is missing")
        return Asked(model=fields.model, stream=bool(fields.stream), include_usage=True)

    def chat_view(self, body: Json) -> Json:
        """Instructions are the system message, items are messages and tool calls.

        Context that is not in the body (a previous response, a conversation, a prompt template, a referenced
        item) is a part that is not text: such a request is not answered by similarity, for the same words
        can mean something else there.
        """
        messages = responses_input.messages_of(body)
        elsewhere = [{"type": name} for name in responses_input.context_elsewhere(body)]
        if elsewhere:
            messages.insert(0, {"role": "system", "content": elsewhere})
        view: dict[str, Any] = {"model": body.get("model"), "messages": messages}
        if body.get("tools"):
            view["tools"] = responses_input.chat_tools(body)
        if (wanted := responses_input.chat_response_format(body)) is not None:
            view["response_format"] = wanted
        if body.get("max_output_tokens") is not None:
            view["max_completion_tokens"] = body["max_output_tokens"]
        if responses_input.wants_logprobs(body):
            view["logprobs"] = True
        return view

    def without_question(self, body: Json) -> Json:
        given = body.get("input")
        if not isinstance(given, list):
            return {name: value for name, value in body.items() if name != "input"}
        items = list(given)
        # Reasoning is no message of the chat view, and so not its last one.
        spoken = [i for i, item in enumerate(items) if responses_input.kind_of(item) != "reasoning"]
        if spoken and responses_input.kind_of(items[spoken[-1]]) == "message":
            items[spoken[-1]] = without_last_text(items[spoken[-1]])
        return {**body, "input": items}

    def assembler(self) -> responses_stream.ResponseAssembler:
        return responses_stream.ResponseAssembler()

    def usage(self, answer: Json) -> Usage | None:
        """OpenAI counts the tokens read from its prompt cache into `input_tokens`."""
        response = answer.get("response")
        usage = (response if isinstance(response, Mapping) else answer).get("usage")
        if not isinstance(usage, Mapping):
            return None
        details = usage.get("input_tokens_details")
        details = details if isinstance(details, Mapping) else {}
        return Usage(
            prompt_tokens=tokens(usage.get("input_tokens")),
            completion_tokens=tokens(usage.get("output_tokens")),
            cached_tokens=tokens(details.get("cached_tokens")),
            cache_write_tokens=tokens(details.get("cache_write_tokens")),
        )

    def why_not_stored(self, answer: Json) -> str:
        status = answer.get("status")
        if status != "completed":
            reason = (answer.get("incomplete_details") or {}).get("reason")
            return f"the answer ended with {reason or status or 'no status'}"
        if answer.get("background"):
            return "the answer was made in the background"
        if answer.get("conversation") is not None:
            return "the answer is part of a conversation that the upstream keeps"
        output = answer.get("output") or ()
        for item in output:
            if item.get("type") not in TIMELESS_ITEMS:
                return f"the answer holds {item.get('type')}, whose result changes with time"
        return "" if any(_says_something(item) for item in output) else "the answer is empty"

    def renewed(self, answer: Json, *, model: str, now: float) -> dict[str, Any]:
        """An answer that its upstream has stored keeps its id, for clients go on from it with
        `previous_response_id`. What it repeats of the request that made it, and requests that share it need
        not have, is taken out."""
        fresh = {**answer, "created_at": int(now), "model": model}
        fresh |= {name: blank for name, blank in _OF_ONE_REQUEST.items() if name in answer}
        if answer.get("completed_at") is not None:
            fresh["completed_at"] = int(now)
        if answer.get("store") is False:
            fresh["id"] = f"resp_{random_hex()}"
        return fresh

    def events(self, answer: Json, *, include_usage: bool) -> Iterator[dict[str, Any]]:
        return responses_stream.events_of(answer)

    def frame(self, event: Json) -> bytes:
        return responses_stream.frame(event)

    def error_body(self, error: RequestError) -> bytes:
        return openai_error_body(error)

    def error_frame(self, error: RequestError) -> bytes:
        """The event `error`. Its sequence number is 0: how many came before is not known here."""
        said = orjson.loads(openai_error_body(error))["error"]
        event = {"type": "error", "code": said.get("code"), "message": said.get("message") or str(error)}
        return responses_stream.frame({**event, "param": said.get("param"), "sequence_number": 0})


def _check_item(item: dict[str, Any], path: str) -> None:
    if not isinstance(item.get("type"), str | None):
        raise field_error(f"{path}.type", "expected text")
    fields = _ITEMS.get(responses_input.kind_of(item))
    if fields is None:
        return
    checked(item, fields, path=path, choices={"role": get_args(Role)})
    name = "output" if fields is _Output else "content"
    parts = item.get(name)
    for i, part in enumerate(parts if isinstance(parts, list) else ()):
        if part["type"] in ("input_text", "output_text") and part.get("text") is None:
            raise field_error(f"{path}.{name}[{i}].text", "expected text; the field is missing")


def _says_something(item: Json) -> bool:
    if item.get("type") == "message":
        return any(
            (part.get("text") or part.get("refusal") or "").strip() for part in item.get("content") or ()
        )
    return item.get("type") in ("function_call", "custom_tool_call")
