"""`GET /v1/models` and `/v1/models/{id}`, in the form of the client's API."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from backends.errors import BackendError
from backends.protocols import RawCall
from gateway.api_endpoint import Edge
from gateway.catalog import Catalog
from gateway.errors import RequestError
from gateway.raw_endpoint import forwarder
from gateway.request_headers import request_id

UPSTREAM_TIMEOUT_S = 5.0
MAX_LIST_BYTES = 4_000_000


class ModelsEndpoint:
    """The names of the config first, then those that the backend for unknown models lists itself."""

    def __init__(self, catalog: Catalog, edge: Edge) -> None:
        self._catalog = catalog
        self._edge = edge
        self._started = int(time.time())

    async def listed(self, request: Request) -> Response:
        rows = await self._rows(request)
        if not _from_anthropic(request):
            return _json({"object": "list", "data": list(rows.values())})
        data = [_in_anthropics_form(row) for row in rows.values()]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
        return _json({"data": data, "has_more": False, "first_id": None, "last_id": None, **ends})

    async def one(self, request: Request) -> Response:
        name = request.path_params["name"]
        row = (await self._rows(request)).get(name)
        if row is None:
            raise RequestError(f"The model '{name}' does not exist.", status=404, code="model_not_found")
        return _json(_in_anthropics_form(row) if _from_anthropic(request) else row)

    async def _rows(self, request: Request) -> dict[str, dict[str, Any]]:
        headers = dict(request.scope["headers"])
        client = self._edge.authenticator.identify(headers)
        own = {
            name: {"id": name, "object": "model", "created": self._started, "owned_by": "lockgate"}
            for name in self._catalog.names()
        }
        backend = forwarder(self._catalog.unknown)
        if backend is None:
            return own
        call = RawCall(
            method="GET",
            path="models",
            query=request.url.query,
            headers=[*self._edge.header_policy.forwarded(headers, request_id(headers)).items()],
            body=None,
            credential=client.credential,
        )
        listed: list[Any] = []
        try:
            async with asyncio.timeout(UPSTREAM_TIMEOUT_S):
                answer = await backend.forward(call)
                try:
                    raw = bytearray()
                    async for piece in answer:
                        raw += piece
                        if len(raw) > MAX_LIST_BYTES:
                            break
                finally:
                    answer.close()
            parsed = orjson.loads(raw) if answer.status == 200 else {}
            listed = parsed.get("data") or []
        except (TimeoutError, BackendError, orjson.JSONDecodeError, AttributeError):
            pass  # what is configured can be asked for all the same
        return {**{row["id"]: row for row in listed if isinstance(row, dict) and "id" in row}, **own}


def _from_anthropic(request: Request) -> bool:
    return "anthropic-version" in request.headers


def _in_anthropics_form(row: Mapping[str, Any]) -> dict[str, Any]:
    """https://docs.anthropic.com/en/api/models-list"""
    if row.get("type") == "model":
        return dict(row)
    created = datetime.datetime.fromtimestamp(int(row.get("created") or 0), datetime.UTC)
    return {
        "type": "model",
        "id": row["id"],
        "display_name": row["id"],
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _json(body: object) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")
