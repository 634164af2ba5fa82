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
from gateway.catalog import Catalog
from gateway.endpoint import Edge
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
            return _json(
                {"object": "list", "data": [_in_openais_form(row) for row in rows.values()]}, request
            )
        data = [_in_anthropics_form(row) for row in rows.values()]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
        return _json({"data": data, "has_more": False, "first_id": None, "last_id": None, **ends}, request)

    async def one(self, request: Request) -> Response:
        name = request.path_params["name"]
        row = (await self._rows(request)).get(name)
        if row is None:
            raise RequestError(f"The model '{name}' does not exist.", status=404, code="model_not_found")
        return _json(_in_anthropics_form(row) if _from_anthropic(request) else _in_openais_form(row), request)

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
            headers=[*self._edge.header_policy.forwarded(headers, id_of(request)).items()],
            body=None,
            credential=client.credential,
        )
        listed: list[dict[str, Any]] = []
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
            listed = _rows_in(bytes(raw)) if answer.status == 200 else []
        except (TimeoutError, BackendError):
            pass  # what is configured can be asked for all the same
        return {**own, **{row["id"]: row for row in listed if row["id"] not in own}}


def _rows_in(body: bytes) -> list[dict[str, Any]]:
    """Those of a list in either API's form; what is none is left out."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return []
    listed = parsed.get("data") if isinstance(parsed, dict) else None
    rows = listed if isinstance(listed, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]


def _from_anthropic(request: Request) -> bool:
    return "anthropic-version" in request.headers


def _in_anthropics_form(row: Mapping[str, Any]) -> dict[str, Any]:
    """https://docs.anthropic.com/en/api/models-list"""
    if row.get("type") == "model":
        return dict(row)
    created = row.get("created")
    try:
        moment = datetime.datetime.fromtimestamp(
            created if isinstance(created, int | float) else 0, datetime.UTC
        )
    except (ValueError, OverflowError, OSError):
        moment = datetime.datetime.fromtimestamp(0, datetime.UTC)
    return {
        "type": "model",
        "id": row["id"],
        "display_name": row["id"],
        "created_at": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _in_openais_form(row: Mapping[str, Any]) -> dict[str, Any]:
    """https://platform.openai.com/docs/api-reference/models/object"""
    if row.get("object") == "model":
        return dict(row)
    try:
        created = int(datetime.datetime.fromisoformat(str(row.get("created_at"))).timestamp())
    except (ValueError, OverflowError):
        created = 0
    owner = "anthropic" if row.get("type") == "model" else "unknown"
    return {"created": created, "owned_by": owner, **row, "object": "model"}


def id_of(request: Request) -> str:
    """The request's id: made once, where the client gave none."""
    name: str = request.scope.setdefault("lockgate.request_id", request_id(dict(request.scope["headers"])))
    return name


def id_headers(request: Request) -> dict[str, str]:
    """The request's id, in the headers where each API's clients look for it."""
    name = id_of(request)
    return {"x-request-id": name, "request-id": name} if _from_anthropic(request) else {"x-request-id": name}


def _json(body: object, request: Request) -> Response:
    return Response(orjson.dumps(body), media_type="application/json", headers=id_headers(request))
