"""Errors in the shape of Anthropic's API.

Types and statuses: https://platform.claude.com/docs/en/api/errors
"""

from __future__ import annotations

from typing import Any

import orjson

from gateway.errors import RequestError
from gateway.wire.messages_stream import frame

_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_type(status: int) -> str:
    """Anthropic's type for a status; it uses `invalid_request_error` for every other 4xx."""
    return _TYPES.get(status) or ("invalid_request_error" if 400 <= status < 500 else "api_error")


def error_body(error: RequestError) -> bytes:
    """An upstream's own body, where it has Anthropic's shape, byte for byte."""
    upstream = _parsed(error.upstream_body)
    if _in_anthropics_shape(upstream):
        return error.upstream_body
    message = _message(upstream) or str(error)
    return orjson.dumps({"type": "error", "error": {"type": error_type(error.status), "message": message}})


def error_frame(error: RequestError) -> bytes:
    """`event: error`, which Anthropic's clients raise. Written anew: a body may have line breaks."""
    return frame(orjson.loads(error_body(error)))


def upstream_message(body: bytes) -> str | None:
    """What an error body of Anthropic's (or OpenAI's) shape says; None for any other. With it an OpenAI
    client can be told what an Anthropic backend refused."""
    return _message(_parsed(body))


def _parsed(body: bytes) -> Any:
    if not body:
        return None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _in_anthropics_shape(body: Any) -> bool:
    return isinstance(body, dict) and body.get("type") == "error" and isinstance(body.get("error"), dict)


def _message(body: Any) -> str | None:
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) and message else None
