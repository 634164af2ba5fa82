"""`POST` of one API: from the request's bytes to the reply's."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from gateway.auth import Client
from gateway.endpoint import JSON, Edge, Endpoint
from gateway.generating import ClientContext
from gateway.http import cancelled_when_client_leaves, read_body, send_body, send_events
from gateway.pipeline import Pipeline, Reply
from gateway.repeated import RepeatedRequests
from gateway.request_headers import (
    RequestHeaders,
    cache_directives,
    declared_length,
    max_error_rate,
    route_pin,
    tags,
    ttl_s,
)
from gateway.trace import Trace
from gateway.wire.dialect import Dialect
from gateway.wire.validation import parse_object
from policies.requirements import estimated_tokens
from policies.types import Request


class ApiEndpoint(Endpoint):
    """No layer stands between the server and the pipeline."""

    def __init__(self, dialect: Dialect, pipeline: Pipeline, edge: Edge) -> None:
        super().__init__(edge, dialect.error_body, api=dialect.api)
        self._dialect = dialect
        self._pipeline = pipeline
        self._repeated = RepeatedRequests()

    async def answer(
        self, scope: Scope, headers: RequestHeaders, receive: Receive, send: Send, trace: Trace
    ) -> None:
        edge = self._edge
        client = self.identify(headers, trace)
        raw = await read_body(receive, declared=declared_length(headers), limit=edge.max_body_bytes)
        marks = (client.tenant, *edge.header_policy.marks(headers))
        known = self._repeated.get(raw, marks)
        request, key = known or (self._request(raw, client, headers), None)
        trace.asked_model, trace.stream = request.model, request.stream
        charge = self._admit(client, request, trace)
        try:
            reply, key = await self._pipeline.answer_exactly(request, trace, key)
            if reply is not None:
                if known is None and key is not None:
                    self._repeated.add(raw, marks, request, key)
                if reply.frames is not None and reply.paced:
                    async with cancelled_when_client_leaves(receive):
                        await send_reply(reply, send, trace)
                else:
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
            tags=tags(headers),
            ttl_s=ttl_s(headers),
            max_error_rate=max_error_rate(headers),
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
