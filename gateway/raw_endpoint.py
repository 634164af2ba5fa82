"""All other paths under `/v1`: passed through byte for byte to the backend for unknown models."""

from __future__ import annotations

import time

from starlette.types import Receive, Scope, Send

from backends.errors import BackendError
from backends.forwarding import raw_upstream_headers
from backends.protocols import Backend, RawAnswer, RawBackend, RawCall
from gateway.api_endpoint import CLIENT_LEFT_STATUS, JSON, Edge, error_headers
from gateway.catalog import Catalog
from gateway.errors import RequestError, from_backend, openai_error_body
from gateway.http import ClientLeft, StreamedBody, cancelled_when_client_leaves, send_body, send_pieces
from gateway.request_headers import request_id
from gateway.trace import Trace

ROUTE = "raw"
"""The route that such requests are counted under."""
_BODILESS = ("GET", "HEAD", "DELETE", "OPTIONS")


class RawEndpoint:
    """Files, audio, images, batches, fine-tuning, multipart or binary: nothing is read, changed or kept."""

    def __init__(self, catalog: Catalog, edge: Edge) -> None:
        self._catalog = catalog
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        trace = Trace(request_id=request_id(headers), api="raw", route=ROUTE)
        try:
            await self._pass(scope, headers, receive, send, trace)
        except ClientLeft:
            trace.status = CLIENT_LEFT_STATUS
        except RequestError as error:
            trace.status, trace.error = error.status, str(error)
            sent = [*trace.headers(), *error_headers(error, trace)]
            await send_body(send, error.status, sent, openai_error_body(error), JSON)
        except BaseException as error:
            trace.status, trace.error = 500, type(error).__name__
            raise
        finally:
            trace.ended = time.perf_counter()
            self._edge.recorder.record(trace)

    async def _pass(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send, trace: Trace
    ) -> None:
        client = self._edge.authenticator.identify(headers)
        trace.tenant, trace.key = client.tenant, client.key
        backend = forwarder(self._catalog.unknown)
        if backend is None:
            raise RequestError(
                f"{scope['method']} {scope['path']}: not an API of this gateway, and server.unknown_models "
                "names no backend to pass it to.",
                status=404,
                code="unknown_path",
            )
        if client.limits is not None and client.key is not None:
            admission = client.limits.admit(client.key, 0)
            trace.limits = admission.headers()
        trace.cache, trace.reason, trace.backend = "bypass", "passed through as it is", backend.name
        body = None if _has_no_body(scope["method"], headers) else StreamedBody(receive)
        raw_path = scope.get("raw_path") or scope["path"].encode()
        listed = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        call = RawCall(
            method=scope["method"],
            path=raw_path.decode("latin-1").removeprefix("/v1/"),
            query=scope["query_string"].decode("latin-1"),
            headers=[
                *raw_upstream_headers(listed, self._edge.header_policy.also),
                ("x-request-id", trace.request_id),
            ],
            body=None if body is None else aiter(body),
            credential=client.credential,
        )
        async with cancelled_when_client_leaves(receive, body):
            began = time.perf_counter()
            try:
                answer = await backend.forward(call)
            except BackendError as error:
                raise from_backend(error) from error
            trace.stages["upstream"] = time.perf_counter() - began
            await _send_answer(answer, send, trace)


class ForwardingBackend(Backend, RawBackend):
    """A backend that can do both."""


def forwarder(backend: Backend | None) -> ForwardingBackend | None:
    """The backend if it passes requests through, else None."""
    return backend if hasattr(backend, "forward") else None  # type: ignore[return-value]


async def _send_answer(answer: RawAnswer, send: Send, trace: Trace) -> None:
    try:
        trace.status = answer.status
        started = [
            *((name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers),
            *trace.headers(),
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": started})
        try:
            await send_pieces(send, aiter(answer))
        except BackendError as error:
            # The status is long sent: the server breaks the connection off when a body is left unfinished.
            trace.error = str(error)
    finally:
        answer.close()


def _has_no_body(method: str, headers: dict[bytes, bytes]) -> bool:
    if b"transfer-encoding" in headers:
        return False
    length = headers.get(b"content-length")
    return length in (b"", b"0") if length is not None else method in _BODILESS
