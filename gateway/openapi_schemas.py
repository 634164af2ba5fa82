"""The schemas of `/openapi.json`: of requests, from the types that check them; of answers.

Rules that a type cannot say, and that the dialects check in code, are added here: what a schema accepts, the
gateway accepts, as far as JSON Schema goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway import admin_forms
from gateway.openapi_answers import ANSWERS
from gateway.wire import chat, completions, embeddings, messages_fields, responses

Schema = dict[str, Any]

REF = "#/components/schemas/"
LEAST_INT, GREATEST_INT = -(2**63), 2**64 - 1
"""What a number without a fraction may be; beyond, the parser reads it as one with a fraction."""


def schemas() -> dict[str, Schema]:
    """All of them, by name, as `components.schemas` has them."""
    blocks = messages_fields._BLOCKS
    found = {
        **_named("", [*ANSWERS, *admin_forms.FORMS]),
        **_named("Chat", [chat._ChatFields], _ChatFields="Request"),
        **_named("Completions", [completions._Fields], _Fields="Request"),
        **_named("Embeddings", [embeddings._Fields], _Fields="Request"),
        **_named(
            "Messages",
            [messages_fields._Fields, messages_fields._CountFields, messages_fields._Tool, *blocks.values()],
            _Fields="Request",
            _CountFields="CountRequest",
        ),
        **_named("Responses", [responses._Fields, *responses._ITEMS.values()], _Fields="Request"),
    }
    _add_chat_rules(found)
    _add_prompt_rules(found)
    _add_messages_rules(found, blocks)
    _add_responses_rules(found)
    _add_admin_rules(found)
    return found


def ref(name: str) -> Schema:
    return {"$ref": REF + name}


def _named(prefix: str, types: Sequence[type[msgspec.Struct]], **renamed: str) -> dict[str, Schema]:
    """The schemas of the types and of all they refer to, with `prefix` before their names."""
    _, found = msgspec.json.schema_components(types, ref_template=REF + "{name}")
    names = {name: prefix + renamed.get(name, name.lstrip("_")) for name in found}
    tidied = {names[name]: _tidied(schema, names) for name, schema in found.items()}
    if prefix:
        for name in renamed.values():
            tidied[prefix + name]["description"] = "Fields that are not named here are kept as they are."
    return tidied


def _tidied(schema: Any, names: dict[str, str]) -> Any:
    """Without the names of our types, nor a default that says what being optional says already; integers
    with their bounds."""
    if isinstance(schema, list):
        return [_tidied(one, names) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return ref(names[schema["$ref"].removeprefix(REF)])
    tidied: Schema = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            tidied[key] = {name: _tidied(one, names) for name, one in value.items()}
        elif not (key == "title" or (key == "default" and value is None)):
            tidied[key] = _tidied(value, names)
    if tidied.get("type") == "integer":
        tidied = {"minimum": LEAST_INT, "maximum": GREATEST_INT, **tidied}
    return tidied


def _has(**properties: Schema) -> Schema:
    """Objects that have these, each as its schema says."""
    return {"properties": properties, "required": list(properties)}


def _not_one_of(*values: Any) -> Schema:
    return {"not": {"enum": list(values)}}


def _unless(name: str, *values: Any) -> Schema:
    """Objects in which a field is none of these."""
    return {"properties": {name: _not_one_of(*values)}}


_TEXT: Schema = {"type": "string"}
_GIVEN_TEXT: Schema = {"type": "string", "minLength": 1}
_GIVEN: Schema = {"not": {"type": "null"}}
_ABSENT: Schema = {"type": "null"}


def _text_parts(kinds: Sequence[str]) -> list[Schema]:
    """A part of one of these kinds has a text."""
    return [_has(type={"enum": list(kinds)}, text=_TEXT), _unless("type", *kinds)]


def _add_chat_rules(found: dict[str, Schema]) -> None:
    found["ChatPart"]["anyOf"] = _text_parts(["text"])
    said = [
        _has(content=_GIVEN),
        _has(role={"const": "assistant"}),
        _has(tool_calls={"type": "array", "minItems": 1}),
        _has(function_call={"type": "object", "minProperties": 1}),
        _has(refusal=_GIVEN_TEXT),
    ]
    answers_a_call = [_has(tool_call_id=_TEXT), _unless("role", "tool")]
    found["ChatMessage"]["allOf"] = [{"anyOf": said}, {"anyOf": answers_a_call}]


def _add_prompt_rules(found: dict[str, Schema]) -> None:
    """All texts, all tokens or all lists of tokens. That `best_of` is at least `n` is beyond JSON Schema."""
    token = {"type": "integer", "minimum": LEAST_INT, "maximum": GREATEST_INT}
    kinds: list[Schema] = [_TEXT, token, {"type": "array", "items": token}]
    given = [_TEXT, *({"type": "array", "minItems": 1, "items": kind} for kind in kinds)]
    found["CompletionsRequest"]["properties"]["prompt"] = {"anyOf": [*given, {"type": "null"}]}
    found["EmbeddingsRequest"]["properties"]["input"] = {"anyOf": given}
    found["EmbeddingsRequest"]["properties"]["stream"] = {"enum": [False, None]}


def _add_messages_rules(found: dict[str, Schema], blocks: dict[str, type[msgspec.Struct]]) -> None:
    kinds: list[Schema] = [
        {"allOf": [ref(f"Messages{fields.__name__.lstrip('_')}"), _has(type={"const": kind})]}
        for kind, fields in blocks.items()
    ]
    other = {"type": "object", **_has(type={**_TEXT, **_not_one_of(*blocks)})}
    found["MessagesBlock"] = {"anyOf": [*kinds, other]}
    listed = {"type": "array", "items": ref("MessagesBlock")}
    found["MessagesMessage"]["properties"]["content"] = {"anyOf": [_TEXT, listed]}
    found["MessagesToolResult"]["properties"]["content"] = {"anyOf": [_TEXT, listed, {"type": "null"}]}
    sources = messages_fields._SOURCES
    found["MessagesSource"]["anyOf"] = [
        *(_has(type={"const": kind}, **dict.fromkeys(names, _TEXT)) for kind, names in sources.items()),
        _unless("type", *sources),
    ]
    found["MessagesToolChoice"]["anyOf"] = [_has(name=_GIVEN_TEXT), _unless("type", "tool")]
    found["MessagesThinkingConfig"]["anyOf"] = [
        _has(budget_tokens={"type": "integer"}),
        _unless("type", "enabled"),
    ]
    tool = {"allOf": [ref("MessagesTool"), {"properties": {"type": {"enum": [None, "custom"]}}}]}
    anthropics = {"type": "object", **_has(type=_not_one_of(None, "custom"))}
    listed = {"type": "array", "items": {"anyOf": [tool, anthropics]}}
    for name in ("MessagesRequest", "MessagesCountRequest"):
        found[name]["properties"]["tools"] = {"anyOf": [listed, {"type": "null"}]}


def _add_responses_rules(found: dict[str, Schema]) -> None:
    found["ResponsesPart"]["anyOf"] = _text_parts(["input_text", "output_text"])
    kinds = {
        kind: f"Responses{fields.__name__.lstrip('_')}"
        for kind, fields in responses._ITEMS.items()
        if kind != "message"
    }
    untyped: Schema = {"properties": {"type": {"enum": [None, ""]}}}
    message = {"allOf": [ref("ResponsesMessage"), {"properties": {"type": {"enum": ["message", None, ""]}}}]}
    calls = [{"allOf": [ref(name), _has(type={"const": kind})]} for kind, name in kinds.items()]
    reference = {"type": "object", **untyped, "not": {"required": ["role"]}}
    other = {"type": "object", **_has(type={**_TEXT, **_not_one_of("message", *kinds, "")})}
    found["ResponsesItem"] = {"anyOf": [message, *calls, reference, other]}

    request = found["ResponsesRequest"]
    listed = {"type": "array", "items": ref("ResponsesItem")}
    request["properties"]["input"] = {"anyOf": [_TEXT, listed, {"type": "null"}]}
    elsewhere = ("previous_response_id", "conversation", "prompt")
    request["allOf"] = [
        {"anyOf": [_has(**{name: _GIVEN}) for name in ("input", *elsewhere)]},
        {"anyOf": [{"properties": {name: _ABSENT}} for name in ("previous_response_id", "conversation")]},
    ]
    found["ResponsesTool"]["anyOf"] = [_has(name=_GIVEN_TEXT), _unless("type", "function")]
    found["ResponsesFormat"]["anyOf"] = [
        _has(name=_TEXT, schema={"type": "object"}),
        _unless("type", "json_schema"),
    ]


def _add_admin_rules(found: dict[str, Schema]) -> None:
    some: Schema = {"anyOf": [_has(**{name: _GIVEN}) for name in admin_forms.CRITERIA]}
    alone: Schema = {"properties": {"min_similarity": _ABSENT}}
    found["InvalidateRequest"]["allOf"] = [
        {"oneOf": [some, _has(all={"const": True})]},
        {"anyOf": [_has(similar_to=_GIVEN), alone]},
    ]
    found["FeedbackRequest"]["oneOf"] = [_has(entry=_GIVEN), _has(request_id=_GIVEN)]
