"""All other paths under `/v1`: passed through byte for byte to the backend for unknown models."""

from __future__ import annotations

import time
from urllib.parse import unquote

from starlette.types import Receive, Scope, Send

from backends.errors import BackendError
from backends.forwarding import raw_upstream_headers
from backends.protocols import Backend, RawAnswer, RawBackend, RawCall
from gateway.catalog import Catalog
from gateway.endpoint import Edge, Endpoint, count_request
from gateway.errors import RequestError, from_backend, openai_error_body
from gateway.http import StreamedBody, cancelled_when_client_leaves, send_pieces
from gateway.request_headers import RequestHeaders
from gateway.trace import Trace

ROUTE = "raw"
"""The route that such requests are counted under."""
_BODILESS = ("GET", "HEAD", "DELETE", "OPTIONS")


class RawEndpoint(Endpoint):
    """Files, audio, images, batches, fine-tuning, multipart or binary: nothing is read, changed or kept."""

    def __init__(self, catalog: Catalog, edge: Edge) -> None:
        super().__init__(edge, openai_error_body, api="raw", route=ROUTE)
        self._catalog = catalog

    async def answer(
        self, scope: Scope, headers: RequestHeaders, receive: Receive, send: Send, trace: Trace
    ) -> None:
        client = self.identify(headers, trace)
        backend = forwarder(self._catalog.unknown)
        path = _path_below_v1(scope)
        if backend is None or path is None:
            raise RequestError(
                f"{scope['method']} {scope['path']}: not an API of this gateway"
                + (", and server.unknown_models names no backend to pass it to." if backend is None else "."),
                status=404,
                code="unknown_path",
            )
        count_request(client, trace)
        trace.cache, trace.reason, trace.backend = "bypass", "passed through as it is", backend.name
        body = None if _has_no_body(scope["method"], headers) else StreamedBody(receive)
        listed = [(name.decode("latin-1"), _text(value)) for name, value in scope["headers"]]
        sent = raw_upstream_headers(listed, self._edge.header_policy.also)
        if body is not None and b"transfer-encoding" not in headers and b"content-length" in headers:
            sent.append(("content-length", _text(headers[b"content-length"])))
        call = RawCall(
            method=scope["method"],
            path=path,
            query=scope["query_string"].decode("latin-1"),
            headers=[*sent, ("x-request-id", trace.request_id)],
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
            await send_answer(answer, send, trace)


class ForwardingBackend(Backend, RawBackend):
    """A backend that can do both."""


def forwarder(backend: Backend | None) -> ForwardingBackend | None:
    """The backend if it passes requests through, else None."""
    return backend if hasattr(backend, "forward") else None  # type: ignore[return-value]


async def send_answer(answer: RawAnswer, send: Send, trace: Trace) -> None:
    """An upstream's answer as it is, with the headers that tell what was done."""
    try:
        trace.status = answer.status
        kept = [
            (name.encode("latin-1"), value.encode("utf-8", "surrogateescape"))
            for name, value in answer.headers
            if not (trace.limits and name.startswith("x-ratelimit-"))  # the client has limits of ours
        ]
        started = [*kept, *trace.headers()]
        await send({"type": "http.response.start", "status": answer.status, "headers": started})
        try:
            await send_pieces(send, aiter(answer))
        except BackendError as error:
            # The status is long sent: the server breaks the connection off when a body is left unfinished.
            trace.error = str(error)
    finally:
        answer.close()


def _path_below_v1(scope: Scope) -> str | None:
    """What follows `/v1/`, as the client wrote it; None for a path that climbs out of it: our credential
    must not reach what lies beside the upstream's API."""
    raw: str = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    if not raw.startswith("/v1/") or not {".", ".."}.isdisjoint(unquote(raw).split("/")):
        return None
    return raw.removeprefix("/v1/")


def _text(value: bytes) -> str:
    """A header's value as the HTTP client takes it, whatever its bytes."""
    return value.decode("utf-8", "surrogateescape")


def _has_no_body(method: str, headers: RequestHeaders) -> bool:
    if b"transfer-encoding" in headers:
        return False
    length = headers.get(b"content-length")
    return length in (b"", b"0") if length is not None else method in _BODILESS
