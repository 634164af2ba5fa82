"""What all endpoints share: a request that fails, or whose client leaves, ends well and is recorded."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import structlog
from starlette.types import Receive, Scope, Send

from gateway.auth import Authenticator, Client
from gateway.errors import RequestError
from gateway.http import ClientLeft, send_body
from gateway.recorder import Recorder
from gateway.request_headers import HeaderPolicy, RequestHeaders, request_id
from gateway.trace import Trace, visible
from policies.types import Api

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


class Endpoint(ABC):
    """An ASGI application. Subclasses answer; `error_body` writes an error in the shape of their API."""

    def __init__(
        self,
        edge: Edge,
        error_body: Callable[[RequestError], bytes],
        *,
        api: Api | Literal["raw"],
        route: str = "",
    ) -> None:
        self._edge = edge
        self._error_body = error_body
        self._api = api
        self._route = route
        self._log = structlog.get_logger("lockgate")

    @abstractmethod
    async def answer(
        self, scope: Scope, headers: RequestHeaders, receive: Receive, send: Send, trace: Trace
    ) -> None:
        """Sets `trace.status` when it begins to send. Raises RequestError and ClientLeft."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        trace = Trace(request_id=request_id(headers), api=self._api, route=self._route)
        try:
            await self.answer(scope, headers, receive, send, trace)
        except ClientLeft:
            trace.status = CLIENT_LEFT_STATUS
        except RequestError as error:
            trace.status, trace.error = error.status, str(error)
            sent = [*trace.headers(), *error_headers(error, trace)]
            await send_body(send, error.status, sent, self._error_body(error), JSON)
        except Exception as error:  # noqa: BLE001 - the edge: told in the log, not to the client
            begun, trace.status, trace.error = trace.status, 500, type(error).__name__
            self._log.exception("failed", request_id=trace.request_id)
            if not begun:
                await send_body(send, 500, trace.headers(), self._error_body(GATEWAY_FAILED), JSON)
        finally:
            trace.ended = time.perf_counter()
            self._edge.recorder.record(trace)

    def identify(self, headers: RequestHeaders, trace: Trace) -> Client:
        """Raises RequestError (401)."""
        client = self._edge.authenticator.identify(headers)
        trace.tenant, trace.key = client.tenant, client.key
        return client


def count_request(client: Client, trace: Trace) -> None:
    """Counts a request that uses no tokens against the limits of its key. Raises RequestError (429)."""
    if client.limits is not None and client.key is not None:
        trace.limits = client.limits.admit(client.key, 0).headers()


def error_headers(error: RequestError, trace: Trace) -> list[tuple[bytes, bytes]]:
    """What an upstream, or a limit, wants its client to know of an error."""
    headers = error.headers
    if trace.limits:  # the client has Lockgate's limits, not those of the upstream's account
        headers = {name: value for name, value in headers.items() if not name.startswith("x-ratelimit-")}
    if len(trace.attempts) > 1 and "x-should-retry" not in headers:
        # The official clients would multiply our attempts by theirs.
        headers = {**headers, "x-should-retry": "false"}
    return [(name.encode(), visible(value)) for name, value in headers.items()]
