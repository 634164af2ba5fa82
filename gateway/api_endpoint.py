"""`POST` of one API: from the request's bytes to the reply's."""

from __future__ import annotations

import time
from dataclasses import dataclass

import structlog
from starlette.types import Receive, Scope, Send

from gateway.auth import Authenticator, Client
from gateway.errors import RequestError
from gateway.generation import ClientContext
from gateway.http import ClientLeft, cancelled_when_client_leaves, read_body, send_body, send_events
from gateway.pipeline import Pipeline, Reply
from gateway.recorder import Recorder
from gateway.repeated import RepeatedRequests
from gateway.request_headers import (
    HeaderPolicy,
    RequestHeaders,
    cache_directives,
    declared_length,
    request_id,
    route_pin,
)
from gateway.trace import Trace, visible
from gateway.wire.dialect import Dialect
from gateway.wire.validation import parse_object
from policies.requirements import estimated_tokens
from policies.types import Request

JSON = b"application/json"
GATEWAY_FAILED = RequestError("The gateway failed on this request.", status=500, kind="server_error")
CLIENT_LEFT_STATUS = 499
"""What a request that its client gave up is counted as (nginx's number for it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """What all endpoints have in common."""

    authenticator: Authenticator
    recorder: Recorder
    header_policy: HeaderPolicy
    max_body_bytes: int


class ApiEndpoint:
    """An ASGI application, with no layer between the server and the pipeline."""

    def __init__(self, dialect: Dialect, pipeline: Pipeline, edge: Edge) -> None:
        self._dialect = dialect
        self._pipeline = pipeline
        self._edge = edge
        self._repeated = RepeatedRequests()
        self._log = structlog.get_logger("lockgate")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        trace = Trace(request_id=request_id(headers), api=self._dialect.api)
        try:
            await self._answer(headers, receive, send, trace)
        except ClientLeft:
            trace.status = CLIENT_LEFT_STATUS
        except RequestError as error:
            trace.status, trace.error = error.status, str(error)
            sent = [*trace.headers(), *error_headers(error, trace)]
            await send_body(send, error.status, sent, self._dialect.error_body(error), JSON)
        except Exception as error:  # noqa: BLE001 - the edge: told in the log, not to the client
            begun, trace.status, trace.error = trace.status, 500, type(error).__name__
            self._log.exception("failed", request_id=trace.request_id)
            if not begun:
                await send_body(send, 500, trace.headers(), self._dialect.error_body(GATEWAY_FAILED), JSON)
        finally:
            trace.ended = time.perf_counter()
            self._edge.recorder.record(trace)

    async def _answer(self, headers: RequestHeaders, receive: Receive, send: Send, trace: Trace) -> None:
        edge = self._edge
        client = edge.authenticator.identify(headers)
        trace.tenant, trace.key = client.tenant, client.key
        raw = await read_body(receive, declared=declared_length(headers), limit=edge.max_body_bytes)
        marks = (raw, client.tenant, *edge.header_policy.marks(headers))
        known = self._repeated.get(marks)
        request, key = known or (self._request(raw, client, headers), None)
        trace.asked_model, trace.stream = request.model, request.stream
        charge = self._admit(client, request, trace)
        try:
            reply, key = await self._pipeline.answer_exactly(request, trace, key)
            if reply is not None:
                if known is None and key is not None:
                    self._repeated.add(marks, len(raw), request, key)
                await send_reply(reply, send, trace)
                return
            context = ClientContext(
                credential=client.credential,
                headers=edge.header_policy.forwarded(headers, trace.request_id),
                charge=charge,
            )
            async with cancelled_when_client_leaves(receive):
                reply = await self._pipeline.answer_otherwise(request, key, context, trace)
                await send_reply(reply, send, trace)
        finally:
            if not trace.led:  # who leads a generation is charged when that ends
                charge(0, 0.0)

    def _request(self, raw: bytes, client: Client, headers: RequestHeaders) -> Request:
        """Raises RequestError (400)."""
        body = parse_object(raw)
        asked = self._dialect.check(body)
        return Request(
            api=self._dialect.api,
            model=asked.model,
            body=body,
            tenant=client.tenant,
            stream=asked.stream,
            include_usage=asked.include_usage,
            route_pin=route_pin(headers),
            cache=cache_directives(headers),
            variant=self._edge.header_policy.variant(headers),
        )

    def _admit(self, client: Client, request: Request, trace: Trace) -> Charge:
        """Counts the request against the limits of its key. Raises RequestError (429)."""
        if client.limits is None or client.key is None:
            return Charge(client, 0)
        tokens = estimated_tokens(self._dialect.chat_view(request.body))
        admission = client.limits.admit(client.key, tokens)
        trace.limits = admission.headers()
        return Charge(client, admission.reserved_tokens)


class Charge:
    """Settles with a key's limits what a request has used, once."""

    __slots__ = ("_client", "_reserved_tokens")

    def __init__(self, client: Client, reserved_tokens: int) -> None:
        self._client: Client | None = client
        self._reserved_tokens = reserved_tokens

    def __call__(self, tokens: int, cost_usd: float) -> None:
        client, self._client = self._client, None
        if client is not None and client.limits is not None and client.key is not None:
            client.limits.settle(client.key, self._reserved_tokens, tokens, cost_usd)


async def send_reply(reply: Reply, send: Send, trace: Trace) -> None:
    trace.status = 200  # from here on it is sent
    if reply.frames is None:
        await send_body(send, 200, trace.headers(), reply.body or b"", JSON)
        return
    try:
        await send_events(send, trace.headers(), reply.frames)
    finally:
        await reply.frames.aclose()


def error_headers(error: RequestError, trace: Trace) -> list[tuple[bytes, bytes]]:
    """What an upstream, or a limit, wants its client to know of an error."""
    headers = error.headers
    if trace.limits:  # the client has Lockgate's limits, not those of the upstream's account
        headers = {name: value for name, value in headers.items() if not name.startswith("x-ratelimit-")}
    if len(trace.attempts) > 1 and "x-should-retry" not in headers:
        # The official clients would multiply our attempts by theirs.
        headers = {**headers, "x-should-retry": "false"}
    return [(name.encode(), visible(value)) for name, value in headers.items()]
