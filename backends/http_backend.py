"""What all backends over HTTP share: one attempt at an answer, from a request's bytes to chunks."""

from __future__ import annotations

import asyncio
import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson

from backends.alarm import Alarm
from backends.answer_stream import AnswerStream, whole_answer
from backends.endpoint import Endpoint
from backends.errors import (
    ApiMissing,
    BackendError,
    InvalidCall,
    UpstreamInvalid,
    UpstreamTimeout,
)
from backends.forwarding import shown_to_client
from backends.protocols import Call, Chunk, Health, Load, RawAnswer, RawCall
from backends.raw_answer import HttpRawAnswer
from backends.rejection import Redactor, rejection, secrets_of
from backends.transport import AiohttpTransport, Transport, UpstreamResponse
from policies.types import Api

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 1024 * 1024
_ERROR_BODY_TIMEOUT_S = 5.0
_HEALTH_TIMEOUT_S = 5.0
_DRAIN_TIMEOUT_S = 0.05
_MISSING_API_STATUSES = (404, 405, 501)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """In seconds. `total_s` bounds a call as a whole, `first_token_s` the wait for the first part of a
    streamed answer, `idle_s` each silence after it, `connect_s` the TCP handshake."""

    total_s: float = 600.0
    connect_s: float = 10.0
    first_token_s: float | None = None
    idle_s: float | None = None


class HttpBackend(ABC):
    """Base of the backends over HTTP. Subclasses say where each API lives and which headers it needs."""

    paths: ClassVar[Mapping[Api, str]]
    """Below the base URL, by API."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        *,
        timeouts: Timeouts,
        apis: frozenset[Api],
        transport: Transport | None = None,
    ) -> None:
        self._name = name
        self._endpoint = endpoint
        self._timeouts = timeouts
        self._apis = apis
        self._transport = transport or AiohttpTransport(name, connect_timeout_s=timeouts.connect_s)
        self._urls = {api: endpoint.url(path) for api, path in self.paths.items()}
        self._running = 0

    @property
    def name(self) -> str:
        return self._name

    @property
    def apis(self) -> frozenset[Api]:
        return self._apis

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """One attempt: the whole answer in one chunk, or the chunks of a streamed one."""
        self._running += 1
        response: UpstreamResponse | None = None
        loop = asyncio.get_running_loop()
        deadline = call.deadline if call.deadline is not None else loop.time() + self._timeouts.total_s
        first_by = deadline
        if call.stream and self._timeouts.first_token_s is not None:
            first_by = min(deadline, loop.time() + self._timeouts.first_token_s)
        alarm = Alarm(loop, first_by)
        try:
            try:
                response = await self._open(call)
                data = await anext(response, b"")
            except asyncio.CancelledError:
                alarm.raise_if_rung(self._name)
                raise
            alarm.watch(response, deadline)
            if self._timeouts.idle_s is not None:
                response.allow_silence(self._timeouts.idle_s)
            content_type = response.headers.get("content-type", "").lower()
            if call.stream and not content_type.startswith(("application/json", "text/html")):
                answer = AnswerStream(
                    self._name,
                    call.api,
                    redactor=self._redactor(call.credential),
                    choices=_choices(call.body),
                )
                while data and not answer.done:
                    for chunk in answer.feed(data):
                        yield chunk
                    if not answer.done:
                        data = await anext(response, b"")
                if answer.done:
                    await _drain(response)
                else:
                    for chunk in answer.end():
                        yield chunk
                return
            body = await _read(response, MAX_ANSWER_BYTES, data)
            if body is None:
                raise UpstreamInvalid(f"{self._name} answered with more than {MAX_ANSWER_BYTES} bytes")
            yield whole_answer(self._name, call.api, body, content_type, self._redactor(call.credential))
        finally:
            alarm.stop()
            if response is not None:
                response.close()
            self._running -= 1

    async def forward(self, call: RawCall) -> RawAnswer:
        """Passes a request through byte for byte: one attempt, whatever the status."""
        own = self._authorization(call.credential)
        said = {name for name, _ in call.headers}
        headers = [
            *((name, value) for name, value in self._defaults().items() if name not in said),
            *((name, value) for name, value in call.headers if name not in own),
            *own.items(),
        ]
        try:
            "".join(value for _, value in headers).encode()
        except UnicodeEncodeError:
            raise InvalidCall("a header of the request is not UTF-8", param=None) from None
        url = self._raw_url(call.path)
        if call.query:
            url += f"{'&' if '?' in url else '?'}{call.query}"
        try:
            async with asyncio.timeout(self._timeouts.total_s):
                response = await self._transport.request(
                    call.method, url, headers, call.body, self._timeouts.idle_s or self._timeouts.total_s
                )
        except TimeoutError:
            raise UpstreamTimeout(f"{self._name} did not answer in time") from None
        return await HttpRawAnswer.of(response, self._redactor(call.credential))

    async def load(self) -> Load:
        """Counts the calls in flight through this backend; the server's own queue is not visible here."""
        return Load(queued=0, running=self._running, connections=self._transport.connections)

    async def health(self) -> Health:
        """Asks for the list of models. A server that answers at all is ready, unless it is failing or
        refuses the backend's own key."""
        headers = {**self._defaults(), "accept": "application/json", **self._authorization(None)}
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                response = await self._transport.request(
                    "GET", self._endpoint.url(self._models_path), headers, None, _HEALTH_TIMEOUT_S
                )
                try:
                    body = await _read(response, MAX_ERROR_BYTES)
                finally:
                    response.close()
        except TimeoutError:
            return Health(ready=False, detail=f"no answer within {_HEALTH_TIMEOUT_S:g} s")
        except BackendError as error:
            return Health(ready=False, detail=str(error))
        status = response.status
        if status in (401, 403) and self._endpoint.authorization is not None:
            return Health(ready=False, detail=f"refuses the api_key ({status})")
        if status >= 500:
            return Health(ready=False, detail=f"answers {status}")
        if status >= 300:
            return Health(ready=True, detail=f"answers; its list of models does not ({status})")
        models = _model_names(body or b"")
        detail = f"serves {models}" if models else "answers"
        return Health(ready=True, detail=Redactor(self._endpoint.secrets).text(detail))

    async def aclose(self) -> None:
        await self._transport.aclose()

    # What an API's backend says of itself.

    _models_path = "models"
    _needed: ClassVar[Mapping[str, str]] = {}
    """Headers that the API needs, where the client does not say."""

    def _defaults(self) -> dict[str, str]:
        return {"user-agent": USER_AGENT, **self._needed}

    @abstractmethod
    def _authorization(self, credential: str | None) -> dict[str, str]:
        """The headers that prove who asks: the backend's own key, else the client's credential."""

    def _raw_url(self, path: str) -> str:
        """Where a request of the path after `/v1/` is passed through to."""
        return self._endpoint.url(path)

    def _upstream_body(self, call: Call) -> Mapping[str, Any]:
        """The body to send for a call."""
        return call.body

    # One attempt.

    async def _open(self, call: Call) -> UpstreamResponse:
        """A response that is no error."""
        headers = self._headers(call)
        body = _encoded(self._upstream_body(call))
        call.report.requests += 1
        # Until the first part is there the caller's bound holds: a model may think for longer than it may
        # fall silent.
        wait_s = self._timeouts.total_s
        response = await self._transport.request(
            "POST", self._urls[call.api], headers, body, wait_s, call.report.another
        )
        try:
            if response.status >= 400:
                raise await self._rejection(response, call)
            if response.status >= 300:
                raise UpstreamInvalid(
                    f"{self._name} answered {response.status}, a redirect: set base_url to the final address"
                )
            encoding = response.headers.get("content-encoding", "identity")
            if encoding != "identity":
                raise UpstreamInvalid(f"{self._name} answered in {encoding} although it was not asked to")
            call.report.headers = {
                shown: value
                for header, value in response.headers.items()
                if (shown := shown_to_client(header))
            }
        except BaseException:
            response.close()
            raise
        return response

    async def _rejection(self, response: UpstreamResponse, call: Call) -> BackendError:
        body: bytes | None = None
        try:
            async with asyncio.timeout(_ERROR_BODY_TIMEOUT_S):
                body = await _read(response, MAX_ERROR_BYTES)
        except (TimeoutError, BackendError):
            pass  # the status is known and says enough
        finally:
            response.close()
        if self._lacks_api(call.api, response.status, body or b""):
            self._apis -= {call.api}
            return ApiMissing(f"{self._name} has no {self.paths[call.api]} ({response.status})")
        redactor = self._redactor(call.credential)
        return rejection(self._name, response.status, response.headers, body or b"", redactor, call.api)

    def _lacks_api(self, api: Api, status: int, body: bytes) -> bool:
        """A server without an API answers 404 or the like; but so does one that lacks the model."""
        return api != "chat" and status in _MISSING_API_STATUSES and b"model" not in body.lower()

    def _headers(self, call: Call) -> dict[str, str]:
        headers = {**self._defaults(), **call.headers, **self._authorization(call.credential)}
        headers["content-type"] = "application/json"
        headers["accept"] = "text/event-stream, application/json" if call.stream else "application/json"
        if not "".join(headers.values()).isprintable():
            raise InvalidCall("a header of the request holds a character that cannot be sent on", param=None)
        return headers

    def _redactor(self, credential: str | None) -> Redactor:
        return Redactor([*self._endpoint.secrets, *secrets_of(credential)])


def _version() -> str:
    try:
        return importlib.metadata.version("lockgate")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # run from a source tree that is not installed


USER_AGENT = f"lockgate/{_version()}"


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body if isinstance(body, dict) else dict(body))
    except orjson.JSONEncodeError as error:
        raise InvalidCall(f"the request cannot be written as JSON: {error}", param=None) from None


def _choices(body: Mapping[str, Any]) -> int:
    """How many choices the call asks for."""
    n = body.get("n")
    return n if isinstance(n, int) and n > 0 else 1


async def _read(response: UpstreamResponse, limit: int, begun: bytes = b"") -> bytes | None:
    """The whole body, after `begun` of it; None when it is larger than `limit` bytes."""
    pieces = [begun]
    size = len(begun)
    while size <= limit:
        piece = await anext(response, b"")
        if not piece:
            return b"".join(pieces)
        size += len(piece)
        pieces.append(piece)
    return None


async def _drain(response: UpstreamResponse) -> None:
    """Read over what follows the end of the answer, normally only the end of the body, so that the
    connection can be used again. A server that keeps it open does not hold up the answer."""
    if response.at_end:
        return
    try:
        async with asyncio.timeout(_DRAIN_TIMEOUT_S):
            await _read(response, MAX_ERROR_BYTES)
    except (TimeoutError, BackendError):
        pass  # the answer is complete; only the connection is lost


def _model_names(body: bytes) -> str:
    """The first few names in an answer to `GET /models`."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    models = parsed.get("data") if isinstance(parsed, dict) else None
    names = (
        [str(m["id"]) for m in models if isinstance(m, dict) and "id" in m]
        if isinstance(models, list)
        else []
    )
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
