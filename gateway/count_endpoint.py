"""`POST /v1/messages/count_tokens`: by the backend that knows, else estimated."""

from __future__ import annotations

import time
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from backends.errors import BackendError
from backends.protocols import RawCall
from gateway.api_endpoint import CLIENT_LEFT_STATUS, JSON, Edge, error_headers
from gateway.catalog import Catalog, Model, Route
from gateway.errors import RequestError, from_backend
from gateway.http import ClientLeft, cancelled_when_client_leaves, read_body, send_body, send_pieces
from gateway.raw_endpoint import forwarder
from gateway.request_headers import RequestHeaders, declared_length, request_id
from gateway.trace import Trace
from gateway.wire.dialect import Dialect
from gateway.wire.messages_fields import check_count
from gateway.wire.messages_tokens import estimated_input_tokens
from gateway.wire.validation import parse_object

PATH = "messages/count_tokens"
ESTIMATED = b"x-lockgate-estimated"
"""Says that the count is an estimate from the lengths of the texts."""


class CountTokensEndpoint:
    """Costs nothing and is not cached."""

    def __init__(self, dialect: Dialect, catalog: Catalog, edge: Edge) -> None:
        self._dialect = dialect
        self._catalog = catalog
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        trace = Trace(request_id=request_id(headers), api="messages", route="count_tokens")
        try:
            await self._count(headers, receive, send, trace)
        except ClientLeft:
            trace.status = CLIENT_LEFT_STATUS
        except RequestError as error:
            trace.status, trace.error = error.status, str(error)
            sent = [*trace.headers(), *error_headers(error, trace)]
            await send_body(send, error.status, sent, self._dialect.error_body(error), JSON)
        finally:
            trace.ended = time.perf_counter()
            self._edge.recorder.record(trace)

    async def _count(self, headers: RequestHeaders, receive: Receive, send: Send, trace: Trace) -> None:
        edge = self._edge
        client = edge.authenticator.identify(headers)
        trace.tenant, trace.key = client.tenant, client.key
        raw = await read_body(receive, declared=declared_length(headers), limit=edge.max_body_bytes)
        body = parse_object(raw)
        trace.asked_model = check_count(body).model
        model = _counted_for(self._catalog.find(trace.asked_model))
        trace.cache, trace.reason = "bypass", "a count is not cached"
        trace.model, trace.backend = model.upstream_name, model.backend.name
        if client.limits is not None and client.key is not None:
            trace.limits = client.limits.admit(client.key, 0).headers()
        backend = forwarder(model.backend) if "messages" in model.backend.apis else None
        if backend is None:
            trace.status = 200
            counted = orjson.dumps({"input_tokens": estimated_input_tokens(body)})
            await send_body(send, 200, [*trace.headers(), (ESTIMATED, b"true")], counted, JSON)
            return
        forwarded = edge.header_policy.forwarded(headers, trace.request_id)
        call = RawCall(
            method="POST",
            path=PATH,
            query="",
            headers=[*forwarded.items(), ("content-type", "application/json")],
            body=_renamed(body, model),
            credential=client.credential,
        )
        async with cancelled_when_client_leaves(receive):
            try:
                answer = await backend.forward(call)
            except BackendError as error:
                raise from_backend(error) from error
            try:
                trace.status = answer.status
                kept = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers]
                start = [*kept, *trace.headers()]
                await send({"type": "http.response.start", "status": answer.status, "headers": start})
                await send_pieces(send, aiter(answer))
            finally:
                answer.close()


def _counted_for(target: Route | Model) -> Model:
    """A route's large model: the one whose room matters."""
    return target.large if isinstance(target, Route) else target


def _renamed(body: dict[str, Any], model: Model) -> bytes:
    return orjson.dumps({**body, "model": model.upstream_name})
