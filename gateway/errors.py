"""Errors of the HTTP edge: the one exception that a client's request can end in."""

from __future__ import annotations

import math
from collections.abc import Mapping

import orjson

from backends.errors import (
    BackendError,
    BackendResting,
    EngineUnavailable,
    InvalidCall,
    Overloaded,
    UpstreamCut,
    UpstreamInvalid,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from policies.types import Api


class RequestError(Exception):
    """Ends a request with an HTTP error, which the API's dialect writes in its own shape.

    `kind` and `code` are OpenAI's error `type` and `code`; `param` names the field. `upstream_body` is what
    an upstream wrote itself, in the shape of `upstream_api`, with every secret taken out; else b"".
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        upstream_body: bytes = b"",
        upstream_api: Api = "chat",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param
        self.headers = dict(headers or {})
        self.upstream_body = upstream_body
        self.upstream_api = upstream_api


def openai_error_body(error: RequestError) -> bytes:
    """The shape all of OpenAI's APIs share; an upstream's own body, where it has that shape, as it is."""
    if _in_openai_shape(error.upstream_body):
        return error.upstream_body
    fields = {"message": str(error), "type": error.kind, "param": error.param, "code": error.code}
    return orjson.dumps({"error": fields})


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
                message,
                status=error.status,
                kind=kind,
                headers=error.headers,
                upstream_body=error.body,
                upstream_api=error.api,
            )
        case BackendResting():
            wait_s = str(max(1, math.ceil(error.retry_after_s)))
            return RequestError(
                message,
                status=503,
                kind="upstream_error",
                code="backend_resting",
                headers={"retry-after": wait_s},
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


def _in_openai_shape(body: bytes) -> bool:
    if not body:
        return False
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return (
        isinstance(parsed, dict) and isinstance(parsed.get("error"), dict) and parsed.get("type") != "error"
    )
