"""Errors of the HTTP edge: one exception that a client's request can end in, and its OpenAI form."""

from __future__ import annotations

import math
from collections.abc import Mapping

import orjson

from backends.errors import (
    BackendError,
    EngineUnavailable,
    InvalidCall,
    Overloaded,
    UpstreamCut,
    UpstreamInvalid,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)


class RequestError(Exception):
    """Ends a request with an HTTP error. `kind` and `code` are OpenAI's error `type` and `code`; `param`
    names the field. `body` replaces the whole error body when an upstream has already written one."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param
        self.headers = dict(headers or {})
        self.body = body or orjson.dumps(
            {"error": {"message": message, "type": kind, "param": param, "code": code}}
        )


_SERVER_FAULTS: dict[type[BackendError], tuple[int, str]] = {
    UpstreamUnreachable: (502, "upstream_unreachable"),
    UpstreamTimeout: (504, "upstream_timeout"),
    UpstreamInvalid: (502, "upstream_invalid"),
    UpstreamCut: (502, "upstream_cut"),
    EngineUnavailable: (503, "engine_unavailable"),
}


def from_backend(error: BackendError) -> RequestError:
    """The one place where a backend's error becomes an HTTP status."""
    message = str(error)
    match error:
        case UpstreamRejected():
            kind = "invalid_request_error" if error.status < 500 else "upstream_error"
            return RequestError(
                message, status=error.status, kind=kind, headers=error.headers, body=_error_body(error.body)
            )
        case InvalidCall():
            return RequestError(message, param=error.param)
        case Overloaded():
            wait_s = str(max(1, math.ceil(error.retry_after_s)))
            return RequestError(
                message,
                status=429,
                kind="rate_limit_exceeded",
                code="queue_full",
                headers={"retry-after": wait_s},
            )
        case _:
            status, code = _SERVER_FAULTS.get(type(error), (502, "backend_error"))
            return RequestError(message, status=status, kind="upstream_error", code=code)


def _error_body(body: bytes) -> bytes:
    """The upstream's body if it is an error in OpenAI's shape, else b"" (ours is written instead)."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return b""
    return body if isinstance(parsed, dict) and isinstance(parsed.get("error"), dict) else b""
