"""An operation of `/openapi.json` that is not one of the APIs: what it takes, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.openapi_schemas import Schema, ref

JSON = "application/json"
IDS = ("x-request-id", "request-id")
FAILED = "The gateway failed."
Security = Sequence[dict[str, list[str]]]


def operation(
    name: str,
    summary: str,
    schema: Schema,
    tag: str = "Operation",
    *,
    body: Schema | None = None,
    parameters: Sequence[Schema] = (),
    errors: Mapping[str, str] | None = None,
    media_type: str = JSON,
    security: Security | None = None,
) -> dict[str, Any]:
    """`schema` is of a 200's body, `body` of the request's. `security` is the document's when None."""
    found: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "tags": [tag],
        "parameters": list(parameters),
        "responses": {
            "200": {"description": summary, "content": {media_type: {"schema": schema}}},
            **errors_of("OpenAIError", {**(errors or {}), "500": FAILED}, IDS),
        },
    }
    if body is not None:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    if security is not None:
        found["security"] = list(security)
    return found


def query(name: str, schema: Schema, said: str) -> Schema:
    """A query parameter."""
    return {"name": name, "in": "query", "schema": schema, "description": said}


def errors_of(schema: str, statuses: Mapping[str, str], headers: Sequence[str] = ()) -> dict[str, Any]:
    """The responses of these statuses. `headers` is () where the caller adds them."""
    errors: dict[str, dict[str, Any]] = {
        status: {"description": said, "content": {JSON: {"schema": ref(schema)}}}
        for status, said in statuses.items()
    }
    for status, error in errors.items() if headers else ():
        error["headers"] = headers_of([*headers, *(["www-authenticate"] if status == "401" else [])])
    return errors


def headers_of(names: Sequence[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
