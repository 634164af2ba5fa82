"""`GET /openapi.json`: what the gateway serves, as an OpenAPI 3.1 document.

https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from gateway.openapi_admin import admin_paths
from gateway.openapi_headers import HEADERS, OF_A_HIT, OF_EVERY_ANSWER, OF_GENERATION, OF_LIMITS, PARAMETERS
from gateway.openapi_operations import FAILED, IDS, JSON, errors_of, headers_of, operation
from gateway.openapi_schemas import Schema, ref, schemas
from gateway.settings import Settings

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
    "500": FAILED,
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
            {"name": "Operation", "description": "Health, metrics, and this document."},
            {"name": "Administration", "description": "Figures, and the cache's entries, for operators."},
        ],
        "security": keys,
        "paths": {**_api_paths(), **_model_paths(), **_operation_paths(), **admin_paths(admin)},
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
        parameters += [
            "cache-control",
            "x-lockgate-route",
            "x-lockgate-tag",
            "x-lockgate-ttl-s",
            "x-lockgate-max-error-rate",
        ]
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
                "200": {"description": summary, "headers": headers_of(names), "content": content},
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
    list_models = operation(
        "listModels",
        "The models that may be asked for",
        listed,
        "Models",
        parameters=[version],
        errors=refused,
    )
    get_model = operation("getModel", "One model", one, "Models", parameters=[name, version], errors=unknown)
    for found in (list_models, get_model):
        found["responses"]["200"]["headers"] = headers_of(IDS)
    return {"/v1/models": {"get": list_models}, "/v1/models/{id}": {"get": get_model}}


def _operation_paths() -> dict[str, Any]:
    ready = _open("getReadiness", "Can anything answer?", ref("Ready"))
    ready["get"]["responses"]["503"] = {
        **ready["get"]["responses"]["200"],
        "description": "No backend is ready.",
    }
    return {
        "/health/live": _open("getLiveness", "Is the process there?", ref("Live")),
        "/health/ready": ready,
        "/metrics": _open(
            "getMetrics",
            "Figures for Prometheus",
            {"type": "string"},
            media_type="text/plain",
            errors={"503": "The store cannot be read."},
        ),
        "/openapi.json": _open("getOpenApi", "This document", {"type": "object"}),
    }


def _open(name: str, summary: str, schema: Schema, **further: Any) -> dict[str, Any]:
    """A path with a GET that needs no key."""
    return {"get": operation(name, summary, schema, security=[{}], **further)}


def _api_errors(schema: str, *headers: str) -> dict[str, Any]:
    """The errors that all operations of an API share, by names for `components.responses`."""
    names = [*OF_EVERY_ANSWER, *OF_GENERATION, *OF_LIMITS, "x-should-retry", *headers]
    further = {"401": ["www-authenticate"], "429": ["retry-after"], "503": ["retry-after"]}
    errors = errors_of(schema, _OWN_ERRORS)
    return {
        f"{schema}{status}": {**error, "headers": headers_of([*names, *further.get(status, ())])}
        for status, error in errors.items()
    }
