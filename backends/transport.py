"""HTTP to upstreams: one small client over pooled, kept-alive connections."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import Protocol, Self
from urllib.parse import urlsplit

import aiohttp
import yarl
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace

from backends.errors import BackendError, UpstreamCut, UpstreamInvalid, UpstreamTimeout, UpstreamUnreachable

Headers = Mapping[str, str] | Sequence[tuple[str, str]]
Body = bytes | AsyncIterator[bytes] | None


class UpstreamResponse(Protocol):
    """An answer whose headers have arrived; iterating gives the bytes of its body as they come.

    Iterating raises UpstreamCut or UpstreamTimeout. Whoever holds a response calls `close` in a `finally`.
    """

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Looked up by names of any case; `items()` repeats a name that came more than once."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> bytes: ...

    @property
    def at_end(self) -> bool:
        """Whether the whole body has been read."""
        ...

    def allow_silence(self, idle_s: float) -> None:
        """Bounds every silence from now on."""
        ...

    def expire(self) -> None:
        """As `close`, and whoever is iterating gets UpstreamTimeout."""
        ...

    def close(self) -> None:
        """Abort the connection unless the body has been read to its end, when it is already back in the
        pool. Safe to call again."""
        ...


class Transport(Protocol):
    """Sends requests and follows no redirects.

    Raises UpstreamUnreachable (nothing was answered), UpstreamTimeout, UpstreamInvalid (the answer is not
    HTTP). `idle_s` bounds every silence within the body; the wait for the headers is the caller's to bound.
    No message holds a header's value or more of the URL than host and port.
    """

    async def request(
        self,
        method: str,
        url: str,
        headers: Headers,
        body: Body,
        idle_s: float,
        another: Callable[[], bool] = lambda: True,
    ) -> UpstreamResponse:
        """`another`: asked before a request is sent once more because a kept connection had been closed."""
        ...

    @property
    def connections(self) -> int:
        """Open ones, in use or idle."""
        ...

    async def aclose(self) -> None: ...


class AiohttpTransport:
    """Transport over aiohttp. Keeps no cookies, does not decompress, and reads proxy settings from the
    environment only when `trust_env` is set. `upstream` is what messages call the server; without it, by
    host and port."""

    def __init__(
        self,
        upstream: str | None = None,
        *,
        connect_timeout_s: float = 10.0,
        max_connections: int = 1024,
        trust_env: bool = False,
    ) -> None:
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s)
        self._max_connections = max_connections
        self._trust_env = trust_env
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None
        self._connector: _Connector | None = None
        self._closed = False

    @property
    def connections(self) -> int:
        return 0 if self._connector is None else self._connector.open_connections

    async def aclose(self) -> None:
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        url: str,
        headers: Headers,
        body: Body,
        idle_s: float,
        another: Callable[[], bool] = lambda: True,
    ) -> UpstreamResponse:
        if self._closed:
            raise UpstreamUnreachable(f"{self._where(url)}: the connection pool is closed", sent=False)
        session = self._session or self._opened()
        address = _address(url)
        _connection_is_new.set(False)
        try:
            try:
                response = await session.request(
                    method, address, headers=headers, data=body, allow_redirects=False
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError):
                # A server may close an idle connection just as it is used again: once more, at once.
                if _connection_is_new.get() or not isinstance(body, bytes | None) or not another():
                    raise
                response = await session.request(
                    method, address, headers=headers, data=body, allow_redirects=False
                )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # `from None`: aiohttp's errors carry the request's headers and whole URL.
            raise _request_error(error, self._where(url)) from None
        answer = _AiohttpResponse(response, self._where(url))
        answer.allow_silence(idle_s)
        return answer

    def _where(self, url: str) -> str:
        return self._upstream or host_and_port(url)

    def _opened(self) -> aiohttp.ClientSession:
        """The session, made on first use because it belongs to the running loop."""
        if self._session is None:
            self._connector = _Connector(limit=self._max_connections)
            self._session = aiohttp.ClientSession(
                connector=self._connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers={"accept-encoding": "identity"},
                timeout=self._timeout,
                trust_env=self._trust_env,
                # Gateways in front of models send long policy headers; aiohttp's own limit is 8 KiB.
                max_line_size=32 * 1024,
                max_field_size=32 * 1024,
            )
        return self._session


# Whether the connection of the request under way in this context was made for it.
_connection_is_new: ContextVar[bool] = ContextVar("connection_is_new", default=True)


class _Connector(aiohttp.TCPConnector):
    """Tells new connections from reused ones (aiohttp's tracing would too, for 25 µs a request), and counts
    those that are open."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(limit=limit)
        self._made: weakref.WeakSet[ResponseHandler] = weakref.WeakSet()

    @property
    def open_connections(self) -> int:
        return sum(protocol.connected for protocol in self._made)

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        _connection_is_new.set(True)
        protocol = await super()._create_connection(req, traces, timeout)
        self._made.add(protocol)
        return protocol


@lru_cache(maxsize=256)
def _address(url: str) -> yarl.URL:
    """As it is: a path is passed on as the client wrote it."""
    return yarl.URL(url, encoded=True)


class _AiohttpResponse:
    """An iterator by hand: an async generator left early would be closed at the collector's leisure."""

    __slots__ = ("_idle_s", "_overdue", "_response", "_where")

    def __init__(self, response: aiohttp.ClientResponse, where: str) -> None:
        self._response = response
        self._where = where
        self._idle_s = 0.0
        self._overdue = False

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            data = await self._response.content.readany()
        except TimeoutError:
            self.close()
            raise UpstreamTimeout(f"{self._where} sent nothing for {self._idle_s:g} s") from None
        except (aiohttp.ClientError, OSError):
            self.close()
            if self._overdue:
                raise UpstreamTimeout(f"{self._where} did not end its answer in time") from None
            raise UpstreamCut(f"{self._where} broke off its answer") from None
        if not data:
            raise StopAsyncIteration
        return data

    @property
    def at_end(self) -> bool:
        return self._response.content.at_eof()

    def allow_silence(self, idle_s: float) -> None:
        self._idle_s = idle_s
        connection = self._response.connection
        if connection is not None and connection.protocol is not None:
            connection.protocol.read_timeout = idle_s
            connection.protocol.start_timeout()

    def expire(self) -> None:
        self._overdue = True
        self.close()

    def close(self) -> None:
        # aiohttp gives the connection back by itself at the end of the body. Otherwise abort it: a plain
        # close first flushes what was not yet sent, and the upstream would go on working meanwhile.
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()


def host_and_port(url: str) -> str:
    """The part of a URL that is fit for a message: no user, password, path or query."""
    parts = urlsplit(url)
    host = parts.hostname or "?"
    return f"{host}:{parts.port}" if parts.port else host


def _request_error(error: Exception, where: str) -> BackendError:
    """What a failure before the headers means."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return UpstreamUnreachable(f"cannot connect to {where} in time", sent=False)
    if isinstance(error, TimeoutError):
        return UpstreamTimeout(f"{where} did not answer in time")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return UpstreamUnreachable(
            f"cannot connect to {where}: its TLS certificate is not trusted", sent=False
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error.strerror or str(error.os_error) or type(error.os_error).__name__
        return UpstreamUnreachable(f"cannot connect to {where}: {reason}", sent=False)
    if isinstance(error, aiohttp.ClientResponseError):
        return UpstreamInvalid(f"{where} answered something that is not HTTP")
    if isinstance(error, ValueError):
        return UpstreamInvalid(f"the request to {where} has a URL or header that cannot be sent")
    return UpstreamUnreachable(f"{where} closed the connection before answering")
