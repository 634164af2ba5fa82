"""An HTTP server that reads bodies of any framing and keeps every byte, for what is passed through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """One request as it arrived: `target` is the path and query as written, `headers` in order. `complete`:
    its body came to its end."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    complete: bool

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


async def plain(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=b"ok", content_type="text/plain")


@dataclass(slots=True, kw_only=True)
class RawUpstream:
    """Serves at `base_url` (ends in /v1). `answer` is called once the body has been read, whatever became of
    it; `arrived` is set at each request's headers, `ended` at each end of one."""

    base_url: str = ""
    answer: Answer = plain
    received: list[Passed] = field(default_factory=list)
    cancelled: int = 0
    connections: set[object] = field(default_factory=set)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.connections.add(request.transport)
        self.arrived.set()
        body, complete = bytearray(), False
        try:
            async for piece in request.content.iter_any():
                body += piece
            complete = True
        except (asyncio.CancelledError, OSError, aiohttp.ClientError, aiohttp.http.HttpProcessingError):
            self.cancelled += 1
            raise
        finally:
            headers = [
                (name.decode().lower(), value.decode("utf-8", "surrogateescape"))
                for name, value in request.raw_headers
            ]
            self.received.append(
                Passed(
                    method=request.method,
                    target=request.raw_path,
                    headers=headers,
                    body=bytes(body),
                    complete=complete,
                )
            )
            self.ended.set()
        try:
            return await self.answer(request)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@asynccontextmanager
async def raw_upstream(answer: Answer = plain) -> AsyncIterator[RawUpstream]:
    upstream = RawUpstream(answer=answer)
    server = web.Server(upstream._handle, auto_decompress=False, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    upstream.base_url = f"http://{host}:{port}/v1"
    try:
        yield upstream
    finally:
        await runner.cleanup()
