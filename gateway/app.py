"""The routes. Everything behind them is put together in `gateway.assembly`."""

from __future__ import annotations

import asyncio
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

from embeddings.protocols import EmbedderError, StoreError
from gateway.admin_access import AdminAccess
from gateway.admin_entries import AdminEntries
from gateway.api_endpoint import ApiEndpoint
from gateway.assembly import Gateway
from gateway.count_endpoint import CountTokensEndpoint
from gateway.error_handlers import http_error, part_error, request_error, server_error
from gateway.errors import RequestError
from gateway.metrics import CONTENT_TYPE
from gateway.models_endpoint import ModelsEndpoint
from gateway.openapi import OpenApiEndpoint
from gateway.raw_endpoint import RawEndpoint
from gateway.stats import figures, ledger_page
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
    routed = _others(gateway, RawEndpoint(catalog, edge))
    others = AdminAccess(routed, gateway.settings.server.admin_token)

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
    entries = AdminEntries(gateway)
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
            Route("/admin/entries", entries.listed, methods=["GET"]),
            Route("/admin/entries/{id}", entries.one, methods=["GET", "DELETE"]),
            Route("/admin/invalidate", entries.invalidate, methods=["POST"]),
            Route("/admin/feedback", entries.feedback, methods=["POST"]),
            Route("/openapi.json", OpenApiEndpoint(gateway.settings).get),
        ],
        exception_handlers={
            HTTPException: http_error,
            RequestError: request_error,
            StoreError: part_error,
            EmbedderError: part_error,
            500: server_error,
        },
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
        metrics.cache.show(await gateway.cache_size())
        metrics.flights.set(len(gateway.pipeline.generation.flights))
        metrics.tasks.set(len(asyncio.all_tasks()))
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    async def stats(self, request: Request) -> Response:
        if request.query_params:
            page, kind = await asyncio.to_thread(ledger_page, self._gateway.ledger, request.query_params)
            return Response(page, media_type=kind)
        body = figures(
            self._gateway.metrics,
            size=await self._gateway.cache_size(),
            degraded=self._gateway.degradation.current(),
            uptime_s=time.time() - self._started,
        )
        return json_response(body)


def json_response(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
