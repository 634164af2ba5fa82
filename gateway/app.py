"""The routes. Everything behind them is put together in `gateway.assembly`."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api_endpoint import ApiEndpoint
from gateway.assembly import Gateway
from gateway.count_endpoint import CountTokensEndpoint
from gateway.errors import RequestError, openai_error_body
from gateway.metrics import CONTENT_TYPE
from gateway.models_endpoint import ModelsEndpoint, id_headers
from gateway.openapi import OpenApiEndpoint
from gateway.raw_endpoint import RawEndpoint
from gateway.stats import figures, ledger_page
from gateway.wire.messages_errors import error_body as messages_error_body
from policies.types import Api

API_PATHS: Mapping[str, Api] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/embeddings": "embeddings",
    "/v1/messages": "messages",
}
COUNT_TOKENS_PATH = "/v1/messages/count_tokens"


def build_app(gateway: Gateway) -> ASGIApp:
    """The ASGI application of a gateway that has started; its shutdown closes the gateway.

    The APIs are called with nothing in between; Starlette routes the rest.
    """
    edge, catalog, pipeline = gateway.edge, gateway.catalog, gateway.pipeline
    dialects = pipeline.generation.dialects
    apis: dict[str, ASGIApp] = {
        path: ApiEndpoint(dialects.of(api), pipeline, edge) for path, api in API_PATHS.items()
    }
    apis[COUNT_TOKENS_PATH] = CountTokensEndpoint(dialects.of("messages"), catalog, edge)
    others = _others(gateway, RawEndpoint(catalog, edge))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            endpoint = apis.get(scope["path"])
            if endpoint is not None and scope["method"] == "POST":
                await endpoint(scope, receive, send)
                return
        await others(scope, receive, send)

    return app


def _others(gateway: Gateway, raw: RawEndpoint) -> Starlette:
    endpoints = Endpoints(gateway)
    models = ModelsEndpoint(gateway.catalog, gateway.edge)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await gateway.aclose()

    return Starlette(
        routes=[
            *(Route(path, OnlyPost()) for path in (*API_PATHS, COUNT_TOKENS_PATH)),
            Route("/v1/models", models.listed, methods=["GET"]),
            Route("/v1/models/{name:path}", models.one, methods=["GET"]),
            Route("/v1/{path:path}", raw),
            Route("/health/live", endpoints.live),
            Route("/health/ready", endpoints.ready),
            Route("/metrics", endpoints.metrics),
            Route("/admin/stats", endpoints.stats),
            Route("/openapi.json", OpenApiEndpoint(gateway.settings).get),
        ],
        exception_handlers={HTTPException: http_error, RequestError: request_error, 500: server_error},
        lifespan=lifespan,
    )


class OnlyPost:
    """Refuses every method that gets this far: else it would be passed through as one of other paths is."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise HTTPException(405, headers={"allow": "POST"})


class Endpoints:
    """The quiet routes: none is on the path of a request for an answer."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._started = int(time.time())

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
        gateway, metrics = self._gateway, self._gateway.metrics
        await gateway.health.backends()
        await gateway.health.note_loads()
        metrics.entries.set(await gateway.entries())
        metrics.flights.set(len(gateway.pipeline.generation.flights))
        metrics.tasks.set(len(asyncio.all_tasks()))
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    async def stats(self, request: Request) -> Response:
        self._require_admin(request)
        if request.query_params:
            page, kind = await asyncio.to_thread(ledger_page, self._gateway.ledger, request.query_params)
            return Response(page, media_type=kind)
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


async def request_error(request: Request, error: Exception) -> Response:
    """In the shape of the API that was called."""
    assert isinstance(error, RequestError)
    messages = request.url.path.startswith("/v1/messages") or "anthropic-version" in request.headers
    shape = messages_error_body if messages else openai_error_body
    headers = {**error.headers, **id_headers(request)}
    return Response(shape(error), error.status, headers, media_type="application/json")


async def http_error(request: Request, error: Exception) -> Response:
    """404 and 405."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}."
    shaped = RequestError(message, status=error.status_code, headers=error.headers)
    return await request_error(request, shaped)


async def server_error(request: Request, _: Exception) -> Response:
    """What went wrong is in the log, not in the answer."""
    return await request_error(
        request, RequestError("The gateway failed on this request.", status=500, kind="server_error")
    )
