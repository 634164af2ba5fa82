"""`GET /openapi.json`: what the gateway serves, as an OpenAPI 3.1 document.

https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from gateway.openapi_headers import HEADERS, OF_A_HIT, OF_EVERY_ANSWER, OF_GENERATION, OF_LIMITS, PARAMETERS
from gateway.openapi_schemas import Schema, ref, schemas
from gateway.settings import Settings
from gateway.stats import DIMENSIONS, FORMATS

JSON = "application/json"
EVENTS = "text/event-stream"
DONE = "[DONE]"
"""The data of the last event, in OpenAI's older APIs."""

_DESCRIPTION = """\
OpenAI's and Anthropic's APIs, answered from a semantic cache, or by the model that fits the question.
Response headers tell what was done, and why. A request's tenant is its API key; answers never cross from one
tenant to another. Integers are written without a fraction: 1, not 1.0.
All other paths under `/v1` are passed through to the backend for unknown models."""

_OWN_ERRORS: Mapping[str, str] = {
    "400": "The request is wrong; the error names the field.",
    "401": "An API key is needed, or the one that came is not valid.",
    "404": "No such model, or no such path.",
    "413": "The body is larger than server.max_body_bytes, or than the key's tokens of a minute.",
    "429": "A limit of the key, of the upstream, or of the queue.",
    "4XX": "Another error of the upstream's own.",
    "500": "The gateway failed.",
    "502": "The upstream cannot be reached, or its answer cannot be read.",
    "503": "The backend or the engine is not available.",
    "504": "The upstream is too slow; or, with only-if-cached, there is no answer yet.",
    "5XX": "Another error of the upstream's own.",
}


class OpenApiEndpoint:
    """Needs no key. The document is made once, when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _body(self) -> bytes:
        return orjson.dumps(document(self._settings))

    async def get(self, _: Request) -> Response:
        return Response(self._body, media_type=JSON)


def document(settings: Settings) -> dict[str, Any]:
    """The document of a gateway with these settings: they say which paths need a key."""
    keys: list[dict[str, list[str]]] = [{"bearer": []}, {"x-api-key": []}, {"api-key": []}]
    if settings.auth.mode != "keys":
        keys.insert(0, {})
    admin: list[dict[str, list[str]]] = [{"admin": []}] if settings.server.admin_token else [{}]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lockgate",
            "version": importlib.metadata.version("lockgate"),
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "OpenAI", "description": "For OpenAI's clients: base_url ends in `/v1`."},
            {"name": "Anthropic", "description": "For Anthropic's clients: base_url has no `/v1`."},
            {"name": "Models"},
            {"name": "Operation", "description": "Health, figures, and this document."},
        ],
        "security": keys,
        "paths": {**_api_paths(), **_model_paths(), **_operation_paths(admin)},
        "components": {
            "schemas": schemas(),
            "headers": {
                name: {"schema": schema, "description": said} for name, (schema, said) in HEADERS.items()
            },
            "parameters": {
                name: {"name": name, "in": "header", "schema": schema, "description": said}
                for name, (schema, said) in PARAMETERS.items()
            },
            "responses": {**_api_errors("OpenAIError"), **_api_errors("AnthropicError", "request-id")},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "api-key": {"type": "apiKey", "in": "header", "name": "api-key"},
                "admin": {"type": "http", "scheme": "bearer", "description": "server.admin_token"},
            },
        },
    }


_IDS = ("x-request-id", "request-id")


def _api_paths() -> dict[str, Any]:
    return {
        "/v1/chat/completions": _api(
            "createChatCompletion",
            "A chat completion",
            "ChatRequest",
            "ChatCompletion",
            "ChatCompletionChunk",
        ),
        "/v1/completions": _api(
            "createCompletion", "A (legacy) completion", "CompletionsRequest", "Completion", "Completion"
        ),
        "/v1/responses": _api(
            "createResponse", "A response", "ResponsesRequest", "Response", "ResponseEvent"
        ),
        "/v1/embeddings": _api("createEmbedding", "Embeddings", "EmbeddingsRequest", "EmbeddingList"),
        "/v1/messages": _api(
            "createMessage", "A message", "MessagesRequest", "Message", "MessageEvent", tag="Anthropic"
        ),
        "/v1/messages/count_tokens": _api(
            "countMessageTokens",
            "How many input tokens a message has",
            "MessagesCountRequest",
            "TokenCount",
            tag="Anthropic",
        ),
    }


def _api(
    operation: str, summary: str, request: str, answer: str, event: str | None = None, *, tag: str = "OpenAI"
) -> dict[str, Any]:
    """The path item of one API; `event` is what its streams hold."""
    content: dict[str, Any] = {JSON: {"schema": ref(answer)}}
    if event is not None:
        content[EVENTS] = {"schema": _event(event)}
    parameters = ["x-request-id", "traceparent"]
    names = [*OF_EVERY_ANSWER, *OF_GENERATION, *OF_LIMITS]
    if operation == "countMessageTokens":
        names.append("x-lockgate-estimated")
    else:
        parameters += ["cache-control", "x-lockgate-route"]
        names += OF_A_HIT
    if tag == "Anthropic":
        parameters.append("anthropic-version")
        names.append("request-id")
    error = "AnthropicError" if tag == "Anthropic" else "OpenAIError"
    return {
        "post": {
            "operationId": operation,
            "summary": summary,
            "tags": [tag],
            "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in parameters],
            "requestBody": {"required": True, "content": {JSON: {"schema": ref(request)}}},
            "responses": {
                "200": {"description": summary, "headers": _headers(names), "content": content},
                **{status: {"$ref": f"#/components/responses/{error}{status}"} for status in _OWN_ERRORS},
            },
        }
    }


def _event(name: str) -> Schema:
    """Of each event of a stream: before 3.2, OpenAPI has no other place to say what a stream holds."""
    data: list[Schema] = [{"contentMediaType": JSON, "contentSchema": ref(name)}]
    if name in ("ChatCompletionChunk", "Completion"):
        data.insert(0, {"const": DONE})
    return {
        "type": "object",
        "description": "Each server-sent event, where `stream` is true.",
        "properties": {"event": {"type": "string"}, "data": {"type": "string", "anyOf": data}},
        "required": ["data"],
    }


def _model_paths() -> dict[str, Any]:
    listed = {"anyOf": [ref("ModelList"), ref("AnthropicModelList")]}
    one = {"anyOf": [ref("Model"), ref("AnthropicModel")]}
    version = {"$ref": "#/components/parameters/anthropic-version"}
    name = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    refused = {"401": _OWN_ERRORS["401"]}
    unknown = {**refused, "404": "No such model."}
    return {
        "/v1/models": _get(
            "listModels", "The models that may be asked for", listed, "Models", parameters=[version],
            errors=refused,
        ),
        "/v1/models/{id}": _get(
            "getModel", "One model", one, "Models", parameters=[name, version], errors=unknown
        ),
    }  # fmt: skip


def _operation_paths(admin: Sequence[dict[str, list[str]]]) -> dict[str, Any]:
    day: Schema = {"type": "string", "format": "date"}
    asked = {
        "by": ({"enum": list(DIMENSIONS)}, "Money and tokens by this, from the ledger; the others need it."),
        "since": (day, "From this UTC day on."),
        "until": (day, "Up to and including this UTC day."),
        "format": ({"enum": list(FORMATS), "default": "json"}, "CSV (RFC 4180) comes without the total."),
    }
    stats = _get(
        "getStats",
        "What was done, spent and saved",
        {"anyOf": [ref("Stats"), ref("LedgerStats")]},
        security=admin,
        parameters=[
            {"name": name, "in": "query", "schema": schema, "description": said}
            for name, (schema, said) in asked.items()
        ],
        errors={
            "400": "A query parameter is wrong; the error names it.",
            "401": "The admin token is needed.",
            "403": "Without server.admin_token, loopback peers only.",
            "503": "The ledger cannot be read.",
        },
    )
    stats["get"]["responses"]["200"]["content"]["text/csv"] = {"schema": {"type": "string"}}
    ready = _get("getReadiness", "Can anything answer?", ref("Ready"))
    ready["get"]["responses"]["503"] = {
        **ready["get"]["responses"]["200"],
        "description": "No backend is ready.",
    }
    metrics = _get("getMetrics", "Figures for Prometheus", {"type": "string"}, media_type="text/plain")
    return {
        "/health/live": _get("getLiveness", "Is the process there?", ref("Live")),
        "/health/ready": ready,
        "/metrics": metrics,
        "/admin/stats": stats,
        "/openapi.json": _get("getOpenApi", "This document", {"type": "object"}),
    }


def _get(
    operation: str,
    summary: str,
    schema: Schema,
    tag: str = "Operation",
    *,
    parameters: Sequence[Schema] = (),
    errors: Mapping[str, str] | None = None,
    media_type: str = JSON,
    security: Sequence[dict[str, list[str]]] | None = None,
) -> dict[str, Any]:
    got: dict[str, Any] = {
        "operationId": operation,
        "summary": summary,
        "tags": [tag],
        "parameters": list(parameters),
        "responses": {
            "200": {"description": summary, "content": {media_type: {"schema": schema}}},
            **_errors("OpenAIError", {**(errors or {}), "500": _OWN_ERRORS["500"]}, _IDS),
        },
    }
    if tag == "Models":
        got["responses"]["200"]["headers"] = _headers(_IDS)
    if tag == "Operation":
        got["security"] = list(security or [{}])
    return {"get": got}


def _api_errors(schema: str, *headers: str) -> dict[str, Any]:
    """The errors that all operations of an API share, by names for `components.responses`."""
    names = [*OF_EVERY_ANSWER, *OF_GENERATION, *OF_LIMITS, "x-should-retry", *headers]
    further = {"401": ["www-authenticate"], "429": ["retry-after"], "503": ["retry-after"]}
    errors = _errors(schema, _OWN_ERRORS)
    return {
        f"{schema}{status}": {**error, "headers": _headers([*names, *further.get(status, ())])}
        for status, error in errors.items()
    }


def _errors(schema: str, statuses: Mapping[str, str], headers: Sequence[str] = ()) -> dict[str, Any]:
    errors: dict[str, dict[str, Any]] = {
        status: {"description": said, "content": {JSON: {"schema": ref(schema)}}}
        for status, said in statuses.items()
    }
    for error in errors.values() if headers else ():
        error["headers"] = _headers(headers)
    return errors


def _headers(names: Sequence[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
