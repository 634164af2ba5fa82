"""`POST /v1/messages/count_tokens`: by the backend that knows, else estimated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from starlette.types import Receive, Scope, Send

from backends.errors import BackendError
from backends.forwarding import client_may_see
from backends.protocols import RawAnswer, RawCall
from gateway.catalog import Catalog, Model, Route
from gateway.endpoint import JSON, Edge, Endpoint, count_request
from gateway.errors import RequestError, from_backend
from gateway.http import cancelled_when_client_leaves, read_body, send_body
from gateway.raw_endpoint import ForwardingBackend, forwarder
from gateway.request_headers import RequestHeaders, declared_length
from gateway.trace import Trace
from gateway.wire.dialect import Dialect
from gateway.wire.messages_fields import check_count
from gateway.wire.messages_tokens import estimated_input_tokens
from gateway.wire.validation import parse_object

PATH = "messages/count_tokens"
ESTIMATED = b"x-lockgate-estimated"
"""Says that the count is an estimate from the lengths of the texts."""
MAX_ANSWER_BYTES = 1_000_000
_MISSING_PATH_STATUSES = (404, 405, 501)


class CountTokensEndpoint(Endpoint):
    """Costs nothing and is not cached."""

    def __init__(self, dialect: Dialect, catalog: Catalog, edge: Edge) -> None:
        super().__init__(edge, dialect.error_body, api="messages", route="count_tokens")
        self._catalog = catalog

    async def answer(
        self, scope: Scope, headers: RequestHeaders, receive: Receive, send: Send, trace: Trace
    ) -> None:
        edge = self._edge
        client = self.identify(headers, trace)
        raw = await read_body(receive, declared=declared_length(headers), limit=edge.max_body_bytes)
        body = parse_object(raw)
        trace.asked_model = check_count(body).model
        model = _counted_for(self._catalog.find(trace.asked_model))
        trace.cache, trace.reason = "bypass", "a count is not cached"
        trace.model, trace.backend = model.upstream_name, model.backend.name
        count_request(client, trace)
        backend = forwarder(model.backend) if "messages" in model.backend.apis else None
        counted = None
        if backend is not None:
            forwarded = edge.header_policy.forwarded(headers, trace.request_id)
            call = RawCall(
                method="POST",
                path=PATH,
                query="",
                headers=[*forwarded.items(), ("content-type", "application/json")],
                body=orjson.dumps({**body, "model": model.upstream_name}),
                credential=client.credential,
            )
            async with cancelled_when_client_leaves(receive):
                counted = await _asked(backend, call)
        if counted is None:
            estimate = orjson.dumps({"input_tokens": estimated_input_tokens(body)})
            trace.status = 200
            await send_body(send, 200, [*trace.headers(), (ESTIMATED, b"true")], estimate, JSON)
            return
        trace.status = counted.status
        trace.upstream_headers = counted.headers
        await send_body(send, counted.status, trace.headers(), counted.body, JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    status: int
    headers: Mapping[str, str]
    body: bytes


async def _asked(backend: ForwardingBackend, call: RawCall) -> _Counted | None:
    """What the backend says: a count, or an error in Anthropic's shape. None when it cannot count. Raises
    RequestError."""
    try:
        answer = await backend.forward(call)
        try:
            body = await _read(answer)
        finally:
            answer.close()
    except BackendError as error:
        raise from_backend(error) from error
    if answer.status in _MISSING_PATH_STATUSES and b"model" not in body.lower():
        return None
    if not _is_object(body):
        status = answer.status if answer.status >= 400 else 502
        what = f"answered {answer.status} with something that is no count"
        raise RequestError(f"{backend.name} {what}", status=status, kind="upstream_error")
    kept = {name: value for name, value in answer.headers if client_may_see(name)}
    return _Counted(status=answer.status, headers=kept, body=body)


async def _read(answer: RawAnswer) -> bytes:
    """As much of it as a count may have."""
    body = bytearray()
    async for piece in answer:
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            break
    return bytes(body)


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(orjson.loads(body), dict)
    except orjson.JSONDecodeError:
        return False


def _counted_for(target: Route | Model) -> Model:
    """A route's large model: the one whose room matters."""
    return target.large if isinstance(target, Route) else target
