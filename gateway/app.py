"""The routes. Everything behind them is put together in `gateway.assembly`."""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.assembly import Gateway
from gateway.chat_endpoint import ChatEndpoint
from gateway.errors import RequestError, openai_error_body
from gateway.metrics import CONTENT_TYPE
from gateway.stats import figures


def build_app(gateway: Gateway) -> Starlette:
    """The ASGI application of a gateway that has started; its shutdown closes the gateway."""
    endpoints = Endpoints(gateway)
    chat = ChatEndpoint(
        gateway.pipeline, gateway.authenticator, gateway.recorder, gateway.settings.server.max_body_bytes
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await gateway.aclose()

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", endpoints.models),
            Route("/health/live", endpoints.live),
            Route("/health/ready", endpoints.ready),
            Route("/metrics", endpoints.metrics),
            Route("/admin/stats", endpoints.stats),
        ],
        exception_handlers={HTTPException: http_error, RequestError: request_error, 500: server_error},
        lifespan=lifespan,
    )


class Endpoints:
    """The quiet routes: none is on the path of a chat request."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._started = int(time.time())

    async def models(self, _: Request) -> Response:
        rows = [
            {"id": name, "object": "model", "created": self._started, "owned_by": "lockgate"}
            for name in self._gateway.catalog.names()
        ]
        return json_response({"object": "list", "data": rows})

    async def live(self, _: Request) -> Response:
        return json_response({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        """200 while anything can answer; `degraded` names what requests go on without."""
        backends = await self._gateway.health.backends()
        degraded = self._gateway.degradation.current()
        some_ready = any(health.ready for health in backends.values())
        all_ready = all(health.ready for health in backends.values())
        status = "ok" if all_ready and not degraded else "degraded" if some_ready else "unavailable"
        body = {
            "status": status,
            "degraded": degraded,
            "backends": {name: asdict(health) for name, health in backends.items()},
        }
        return json_response(body, 200 if some_ready else 503)

    async def metrics(self, _: Request) -> Response:
        await self._gateway.health.backends()
        self._gateway.metrics.entries.set(await self._gateway.entries())
        return Response(self._gateway.metrics.render(), media_type=CONTENT_TYPE)

    async def stats(self, request: Request) -> Response:
        self._require_admin(request)
        body = figures(
            self._gateway.metrics,
            entries=await self._gateway.entries(),
            degraded=self._gateway.degradation.current(),
            uptime_s=time.time() - self._started,
        )
        return json_response(body)

    def _require_admin(self, request: Request) -> None:
        token = self._gateway.settings.server.admin_token
        if token is not None:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if hmac.compare_digest(given.encode(), token.encode()):
                return
            raise RequestError(
                "Send the admin token: Authorization: Bearer TOKEN.", status=401, kind="authentication_error"
            )
        if not (request.client and _is_loopback(request.client.host)):
            raise RequestError(
                "Without server.admin_token, admin pages answer loopback peers only.",
                status=403,
                kind="permission_error",
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def json_response(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")


async def request_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return Response(openai_error_body(error), error.status, error.headers, media_type="application/json")


async def http_error(request: Request, error: Exception) -> Response:
    """404 and 405 in the shape of the API that was called."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}."
    shaped = RequestError(message, status=error.status_code, headers=error.headers)
    return await request_error(request, shaped)


async def server_error(request: Request, _: Exception) -> Response:
    """What went wrong is in the log, not in the answer."""
    return await request_error(
        request, RequestError("The gateway failed on this request.", status=500, kind="server_error")
    )
