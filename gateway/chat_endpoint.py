"""`POST /v1/chat/completions`."""

from __future__ import annotations

import re
import time
import uuid
from typing import cast

from starlette.types import Receive, Scope, Send

from gateway.auth import Authenticator
from gateway.errors import RequestError, openai_error_body
from gateway.generation import ClientContext
from gateway.http import ClientLeft, cancelled_when_client_leaves, read_body, send_body, send_events
from gateway.pipeline import Pipeline, Reply
from gateway.recorder import Recorder
from gateway.trace import Trace
from gateway.wire.chat import parse_chat
from policies.types import CacheDirectives, Tier

JSON = b"application/json"
CLIENT_LEFT_STATUS = 499
"""What a request that its client gave up is counted as (nginx's number for it)."""

NO_DIRECTIVES = CacheDirectives()

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,128}")


class ChatEndpoint:
    """An ASGI application, with no layer between the server and the pipeline."""

    def __init__(
        self, pipeline: Pipeline, authenticator: Authenticator, recorder: Recorder, max_body_bytes: int
    ) -> None:
        self._pipeline = pipeline
        self._authenticator = authenticator
        self._recorder = recorder
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        trace = Trace(request_id=request_id(headers))
        try:
            await self._answer(headers, receive, send, trace)
        except ClientLeft:
            trace.status = CLIENT_LEFT_STATUS
        except RequestError as error:
            trace.status, trace.error = error.status, str(error)
            kept = [(name.encode(), value.encode("latin-1")) for name, value in error.headers.items()]
            await send_body(send, error.status, [*trace.headers(), *kept], openai_error_body(error), JSON)
        except BaseException as error:
            trace.status, trace.error = 500, type(error).__name__
            raise
        finally:
            trace.ended = time.perf_counter()
            self._recorder.record(trace)

    async def _answer(self, headers: dict[bytes, bytes], receive: Receive, send: Send, trace: Trace) -> None:
        client = self._authenticator.identify(headers)
        trace.tenant = client.tenant
        raw = await read_body(receive, declared=declared_length(headers), limit=self._max_body_bytes)
        request = parse_chat(
            raw, tenant=client.tenant, route_pin=route_pin(headers), cache=cache_directives(headers)
        )
        trace.asked_model, trace.stream = request.model, request.stream
        forwarded = {"x-request-id": trace.request_id}
        if b"traceparent" in headers:
            forwarded["traceparent"] = headers[b"traceparent"].decode("latin-1")
        context = ClientContext(credential=client.credential, headers=forwarded)
        async with cancelled_when_client_leaves(receive):
            reply = await self._pipeline.answer(request, context, trace)
            await self._send(reply, send, trace)

    async def _send(self, reply: Reply, send: Send, trace: Trace) -> None:
        trace.status = 200
        if reply.frames is None:
            await send_body(send, 200, trace.headers(), reply.body or b"", JSON)
            return
        try:
            await send_events(send, trace.headers(), reply.frames)
        finally:
            await reply.frames.aclose()


def request_id(headers: dict[bytes, bytes]) -> str:
    """The client's own id when it is harmless, so that its logs and ours meet; else a new one."""
    given = headers.get(b"x-request-id", b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"


def declared_length(headers: dict[bytes, bytes]) -> int | None:
    """The Content-Length a client announced, None when it announced none or nonsense."""
    value = headers.get(b"content-length", b"")
    return int(value) if value.isdigit() else None


def route_pin(headers: dict[bytes, bytes]) -> Tier | None:
    """The tier asked for in `x-lockgate-route`. Raises RequestError (400)."""
    value = headers.get(b"x-lockgate-route", b"").decode("latin-1").strip().lower()
    if value in ("", "small", "large"):
        return cast(Tier, value) if value else None
    raise RequestError(f"x-lockgate-route: expected small or large, got '{value}'.", param="x-lockgate-route")


def cache_directives(headers: dict[bytes, bytes]) -> CacheDirectives:
    """The request's `Cache-Control` (RFC 9111, section 5.2.1); directives we do not know are ignored, as
    the RFC asks. Raises RequestError (400) for a max-age that is no number."""
    if b"cache-control" not in headers:
        return NO_DIRECTIVES
    value = headers[b"cache-control"].decode("latin-1").lower()
    directives = [part.strip().partition("=") for part in value.split(",")]
    names = {name for name, _, _ in directives}
    ages = [argument.strip('" ') for name, _, argument in directives if name == "max-age"]
    if ages and not ages[0].isdigit():
        raise RequestError(
            f"cache-control: expected max-age=SECONDS, got '{ages[0]}'.", param="cache-control"
        )
    return CacheDirectives(
        no_cache="no-cache" in names,
        no_store="no-store" in names,
        only_if_cached="only-if-cached" in names,
        max_age_s=float(ages[0]) if ages else None,
    )
