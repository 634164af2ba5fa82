"""What the quiet routes answer when a request cannot be answered, as Starlette's exception handlers."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import RequestError, openai_error_body
from gateway.models_endpoint import id_headers
from gateway.wire.messages_errors import error_body as messages_error_body


async def request_error(request: Request, error: Exception) -> Response:
    """In the shape of the API that was called."""
    assert isinstance(error, RequestError)
    path = request.scope["path"]  # the URL is made with the host header, whatever it holds
    messages = path.startswith("/v1/messages") or (
        path.startswith("/v1/") and "anthropic-version" in request.headers
    )
    shape = messages_error_body if messages else openai_error_body
    headers = {**error.headers, **id_headers(request)}
    return Response(shape(error), error.status, headers, media_type="application/json")


async def http_error(request: Request, error: Exception) -> Response:
    """404 and 405."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.scope['path']}: {error.detail}."
    shaped = RequestError(message, status=error.status_code, headers=error.headers)
    return await request_error(request, shaped)


async def part_error(request: Request, error: Exception) -> Response:
    """A store or an embedder that fails: its message says what to do."""
    return await request_error(request, RequestError(f"{error}.", status=503, kind="server_error"))


async def server_error(request: Request, _: Exception) -> Response:
    """What went wrong is in the log, not in the answer."""
    return await request_error(
        request, RequestError("The gateway failed on this request.", status=500, kind="server_error")
    )
