"""The floor: a proxy of Starlette and aiohttp that reads the body as JSON, forwards it, and does nothing
else.

    UPSTREAM=http://127.0.0.1:9000 python -m uvicorn benchmarks.bare:app

Streams are forwarded in the pieces in which they arrive.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

import aiohttp
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

URL = os.environ.get("UPSTREAM", "") + "/v1/chat/completions"


async def forward(request: Request) -> Response:
    session: aiohttp.ClientSession = request.app.state.session
    body = await request.body()
    asked = orjson.loads(body)
    headers = {"content-type": "application/json", "authorization": request.headers["authorization"]}
    if asked.get("stream"):
        response = await session.post(URL, data=body, headers=headers)
        return StreamingResponse(pieces(response), response.status, media_type="text/event-stream")
    async with session.post(URL, data=body, headers=headers) as response:
        return Response(await response.read(), response.status, media_type="application/json")


async def pieces(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with response:
        async for piece in response.content.iter_any():
            yield piece


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    connector = aiohttp.TCPConnector(limit=1024)
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False, cookie_jar=jar) as session:
        app.state.session = session
        yield


app = Starlette(routes=[Route("/v1/chat/completions", forward, methods=["POST"])], lifespan=lifespan)
