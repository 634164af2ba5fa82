"""What schemathesis is told besides the document: whom requests go to, and one more check of answers.

Loaded by `schemathesis run` (SCHEMATHESIS_HOOKS). MODEL is who answers.
"""

from __future__ import annotations

import os
from typing import Any

import schemathesis

MODEL = os.environ.get("MODEL", "gpt")
NATIVE = {"/v1/messages": "claude", "/v1/messages/count_tokens": "claude"}
"""Who answers an API without a translation; of the others the model gpt does."""
TRANSPORT_HEADERS = frozenset(
    {"allow", "content-length", "content-type", "cache-control", "date", "transfer-encoding"}
)


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: Any, kwargs: dict[str, Any]) -> None:
    """Mends what JSON Schema allows and the gateway does not: `best_of` below `n`, since, until and format
    without `by`. An empty x-lockgate-route, which is as good as none, becomes one that is not. No entries are
    removed by the many at once: later requests would find none."""
    if isinstance(case.body, dict):
        case.body = _mended(case.body, NATIVE.get(case.path, "gpt") if MODEL == "gpt" else MODEL)
        if case.path == "/admin/invalidate" and case.body.get("dry_run", False) is False:
            case.body["dry_run"] = True
    if case.path == "/admin/stats" and case.query:
        case.query.setdefault("by", "day")
    if case.headers and case.headers.get("x-lockgate-route") == "":
        case.headers["x-lockgate-route"] = "neither"


def _mended(body: dict[str, Any], model: str) -> dict[str, Any]:
    body = _with_whole_integers(body)
    if isinstance(body.get("model"), str) and body["model"]:
        body["model"] = model
    best_of, n = body.get("best_of"), body.get("n")
    if type(best_of) is int and type(n) is int and 1 <= best_of < n <= 128:
        body["best_of"] = n
    return body


def _with_whole_integers(value: Any) -> Any:
    """JSON Schema takes 1.0 for an integer; the gateway does not."""
    if isinstance(value, dict):
        return {name: _with_whole_integers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_whole_integers(one) for one in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return value


@schemathesis.check
def every_header_is_documented(
    context: schemathesis.CheckContext, response: schemathesis.Response, case: Any
) -> None:
    """And so is the status, by its number: statuses of an upstream's own do not occur here."""
    published = case.operation.schema.raw_schema
    operation = published["paths"][case.path].get(case.method.lower())
    if operation is None or response.status_code == 405:
        return
    said = operation["responses"][str(response.status_code)]
    if "$ref" in said:
        said = published["components"]["responses"][said["$ref"].rpartition("/")[2]]
    unknown = response.headers.keys() - said.get("headers", {}).keys() - TRANSPORT_HEADERS
    assert not unknown, f"not in the document: {', '.join(sorted(unknown))}"
