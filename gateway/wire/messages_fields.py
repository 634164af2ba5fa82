"""The fields of an Anthropic request whose type we know. Others pass unseen and are kept.

Field types and ranges: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct

from gateway.wire.dialect import Asked, Json
from gateway.wire.validation import checked, field_error

Role = Literal["user", "assistant", "system"]
ROLES = get_args(Role)

Least1 = Annotated[int, Meta(ge=1)]


class _Message(Struct):
    role: Role
    content: str | list[dict[str, Any]]


class _Text(Struct):
    text: str


class _SystemText(Struct):
    type: str
    text: str


class _Source(Struct):
    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None


class _Sourced(Struct):
    source: _Source
    title: str | None = None
    context: str | None = None


class _ToolUse(Struct):
    id: str
    name: str
    input: dict[str, Any]


class _ToolResult(Struct):
    tool_use_id: str
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None


class _Thinking(Struct):
    thinking: str
    signature: str | None = None


class _Redacted(Struct):
    data: str


class _ToolChoice(Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _ThinkingConfig(Struct):
    type: str
    budget_tokens: Least1 | None = None


class _Tool(Struct):
    name: Annotated[str, Meta(min_length=1)]
    input_schema: dict[str, Any]
    description: str | None = None


class _Metadata(Struct):
    user_id: str | None = None


class _CountFields(Struct, kw_only=True):
    model: Annotated[str, Meta(min_length=1)]
    messages: Annotated[list[_Message], Meta(min_length=1)]
    system: str | list[_SystemText] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: _ToolChoice | None = None
    thinking: _ThinkingConfig | None = None
    output_config: dict[str, Any] | None = None


class _Fields(_CountFields, kw_only=True):
    max_tokens: Least1
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    stop_sequences: list[str] | None = None
    metadata: _Metadata | None = None
    service_tier: str | None = None


_CHOICES = {"role": ROLES, "type": get_args(Literal["auto", "any", "tool", "none"])}
_BLOCKS: dict[str, type[Struct]] = {
    "text": _Text,
    "image": _Sourced,
    "document": _Sourced,
    "tool_use": _ToolUse,
    "server_tool_use": _ToolUse,
    "tool_result": _ToolResult,
    "thinking": _Thinking,
    "redacted_thinking": _Redacted,
}
_SOURCES = {"base64": ("media_type", "data"), "text": ("data",), "url": ("url",), "file": ("file_id",)}


def check_message_body(body: Json) -> Asked:
    """Raises RequestError (400) that names the field."""
    fields = checked(body, _Fields, choices=_CHOICES)
    _check_within(body, fields)
    return Asked(model=fields.model, stream=bool(fields.stream))


def check_count(body: Json) -> Asked:
    """The same for `/v1/messages/count_tokens`, which knows no `max_tokens` and no stream."""
    fields = checked(body, _CountFields, choices=_CHOICES)
    _check_within(body, fields)
    return Asked(model=fields.model)


def _check_within(body: Json, fields: _CountFields) -> None:
    for i, message in enumerate(fields.messages):
        if isinstance(message.content, list):
            _check_blocks(message.content, f"messages[{i}].content")
    for i, tool in enumerate(fields.tools or ()):
        # Anthropic's own tools have a type, and their schema with Anthropic.
        if tool.get("type") in (None, "custom"):
            checked(tool, _Tool, path=f"tools[{i}]")
    if fields.tool_choice and fields.tool_choice.type == "tool" and not fields.tool_choice.name:
        raise field_error("tool_choice.name", "expected the name of a tool; the field is missing")
    thinking = fields.thinking
    if thinking and thinking.type == "enabled" and thinking.budget_tokens is None:
        raise field_error("thinking.budget_tokens", "expected a number of tokens; the field is missing")


def _check_blocks(blocks: list[dict[str, Any]], path: str) -> None:
    for i, block in enumerate(blocks):
        at = f"{path}[{i}]"
        kind = block.get("type")
        if not isinstance(kind, str):
            raise field_error(f"{at}.type", "expected the type of a block; the field is missing")
        if (known := _BLOCKS.get(kind)) is None:
            continue
        fields = checked(block, known, path=at)
        if isinstance(fields, _Sourced):
            for name in _SOURCES.get(fields.source.type, ()):
                if getattr(fields.source, name) is None:
                    raise field_error(f"{at}.source.{name}", "the field is missing")
        elif isinstance(fields, _ToolResult) and isinstance(fields.content, list):
            _check_blocks(fields.content, f"{at}.content")
