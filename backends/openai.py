"""Backend over any server that speaks OpenAI's chat completions."""

from __future__ import annotations

import asyncio
import importlib.metadata
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import orjson

from backends.endpoint import parse_endpoint
from backends.errors import (
    BackendError,
    InvalidCall,
    UpstreamInvalid,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from backends.openai_errors import Redactor, rejection, secrets_of
from backends.openai_stream import CompletionStream, as_chunks, completion
from backends.protocols import Call, Chunk, Health, Load
from backends.transport import AiohttpTransport, Transport, UpstreamResponse

_FORWARDED_HEADERS = frozenset({"traceparent", "tracestate", "x-request-id"})
_RETRIED_STATUSES = frozenset({502, 503, 504})
_BACKOFF_BASE_S = 0.25
_BACKOFF_MAX_S = 4.0
_MAX_ANSWER_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BYTES = 1024 * 1024
_ERROR_BODY_TIMEOUT_S = 5.0
_HEALTH_TIMEOUT_S = 5.0
_DRAIN_TIMEOUT_S = 0.05


class OpenAIBackend:
    """vLLM, TGI, TensorRT-LLM, SGLang, llama.cpp, Ollama, or OpenAI's own API at `base_url` (with `/v1`).

    `timeout_s` bounds the time to the first byte, all attempts together, and then every silence within the
    answer. `retries` is how many further attempts a call may cost: after a lost connection and the statuses
    502, 503 and 504, never after anything was yielded. Raises ValueError for a URL or key that cannot work.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        retries: int = 2,
        transport: Transport | None = None,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._endpoint = parse_endpoint(name, base_url, api_key)
        self._timeout_s = timeout_s
        self._retries = retries
        self._transport: Transport = transport if transport is not None else AiohttpTransport()
        self._uniform = uniform
        self._sleep = sleep
        self._running = 0
        self._usage_in_streams = True  # until the server refuses `stream_options`
        self._user_agent = f"lockgate/{_version()}"

    @property
    def name(self) -> str:
        return self._name

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """One chunk holding the completion, or the chunks of a streamed one, which always ask the server
        for usage: a chunk whose `choices` are empty carries it, where the server can."""
        self._running += 1
        response: UpstreamResponse | None = None
        try:
            response = await self._open(call)
            content_type = response.headers.get("content-type", "").lower()
            redactor = self._redactor(call)
            if call.stream and not content_type.startswith(("application/json", "text/html")):
                answer = CompletionStream(self._name, choices=_choices(call.body), redactor=redactor)
                async for data in response:
                    for chunk in answer.feed(data):
                        yield chunk
                    if answer.done:
                        await _drain(response)
                        return
                for chunk in answer.end():
                    yield chunk
                return
            body = await _read(response, _MAX_ANSWER_BYTES)
            if body is None:
                raise UpstreamInvalid(f"{self._name} answered with more than {_MAX_ANSWER_BYTES} bytes")
            whole = completion(self._name, body, content_type, redactor)
            for chunk in as_chunks(whole.body) if call.stream else (whole,):
                yield chunk
        finally:
            if response is not None:
                response.close()
            self._running -= 1

    async def load(self) -> Load:
        """Counts the calls in flight through this backend; the server's own queue is not visible here."""
        return Load(queued=0, running=self._running)

    async def health(self) -> Health:
        """Asks for the list of models. A server that answers at all is ready, unless it is failing or
        refuses the backend's own key."""
        headers = {"user-agent": self._user_agent, "accept": "application/json"}
        if self._endpoint.authorization is not None:
            headers["authorization"] = self._endpoint.authorization
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                response = await self._transport.get(self._endpoint.url("models"), headers, _HEALTH_TIMEOUT_S)
                try:
                    body = await _read(response, _MAX_ERROR_BYTES)
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

    async def _open(self, call: Call) -> UpstreamResponse:
        """The response of the first attempt that was answered well."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                for attempt in range(self._retries + 1):
                    try:
                        return await self._attempt(call)
                    except (UpstreamUnreachable, UpstreamRejected) as error:
                        delay_s = self._retry_delay_s(error, attempt)
                        if delay_s is None or clock() + delay_s >= deadline:
                            raise
                    await self._sleep(delay_s)
        except TimeoutError:
            pass
        raise UpstreamTimeout(f"{self._name} did not answer within {self._timeout_s:g} s")

    def _retry_delay_s(self, error: BackendError, attempt: int) -> float | None:
        """How long to wait before the next attempt: full jitter, but not before the server's own
        `retry-after`. None when there shall be none."""
        if attempt >= self._retries:
            return None
        delay_s = self._uniform(0.0, min(_BACKOFF_MAX_S, _BACKOFF_BASE_S * 2**attempt))
        if isinstance(error, UpstreamRejected):
            if error.status not in _RETRIED_STATUSES:
                return None
            wanted_s = error.headers.get("retry-after", "0")
            if not wanted_s.isdecimal() or int(wanted_s) > _BACKOFF_MAX_S:
                return None
            delay_s = max(delay_s, int(wanted_s))
        return delay_s

    async def _attempt(self, call: Call) -> UpstreamResponse:
        """One response that is no error. A server that refuses to be asked for usage is asked again
        without; that is remembered once it has worked."""
        ask_usage = call.stream and self._usage_in_streams
        try:
            return await self._post(call, ask_usage=ask_usage)
        except UpstreamRejected as error:
            refused = error.status in (400, 422) and b"stream_options" in error.body
            if not ask_usage or not refused:
                raise
        response = await self._post(call, ask_usage=False)
        self._usage_in_streams = False
        return response

    async def _post(self, call: Call, *, ask_usage: bool) -> UpstreamResponse:
        body = _with_usage(call.body, ask_usage) if call.stream else call.body
        response = await self._transport.post(
            self._endpoint.url("chat/completions"), self._headers(call), _encoded(body), self._timeout_s
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
        except BaseException:
            response.close()
            raise
        return response

    async def _rejection(self, response: UpstreamResponse, call: Call) -> UpstreamRejected:
        body: bytes | None = None
        try:
            async with asyncio.timeout(_ERROR_BODY_TIMEOUT_S):
                body = await _read(response, _MAX_ERROR_BYTES)
        except (TimeoutError, BackendError):
            pass  # the status is known and says enough
        finally:
            response.close()
        return rejection(self._name, response.status, response.headers, body or b"", self._redactor(call))

    def _headers(self, call: Call) -> dict[str, str]:
        headers = {key: value for key, value in call.headers.items() if key.lower() in _FORWARDED_HEADERS}
        authorization = self._endpoint.authorization or call.credential
        if authorization:
            headers["authorization"] = authorization
        if not all(value.isprintable() for value in headers.values()):
            raise InvalidCall("a header of the request holds a character that cannot be sent on", param=None)
        headers["user-agent"] = self._user_agent
        headers["content-type"] = "application/json"
        headers["accept"] = "text/event-stream, application/json" if call.stream else "application/json"
        return headers

    def _redactor(self, call: Call) -> Redactor:
        return Redactor([*self._endpoint.secrets, *secrets_of(call.credential)])


def _with_usage(body: Mapping[str, Any], ask: bool) -> Mapping[str, Any]:
    """The body of a streamed call that asks for usage, or does not."""
    options = body.get("stream_options")
    if options is not None and not isinstance(options, Mapping):
        return body  # the client's mistake, for the server to name
    changed = {key: value for key, value in (options or {}).items() if key != "include_usage"}
    if ask:
        changed["include_usage"] = True
    rest = {key: value for key, value in body.items() if key != "stream_options"}
    return {**rest, "stream_options": changed} if changed else rest


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body if isinstance(body, dict) else dict(body))
    except orjson.JSONEncodeError as error:
        raise InvalidCall(f"the request cannot be written as JSON: {error}", param=None) from None


def _choices(body: Mapping[str, Any]) -> int:
    """How many choices the call asks for."""
    n = body.get("n")
    return n if isinstance(n, int) and n > 0 else 1


async def _read(response: UpstreamResponse, limit: int) -> bytes | None:
    """The whole body; None when it is larger than `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response:
        size += len(piece)
        if size > limit:
            return None
        pieces.append(piece)
    return b"".join(pieces)


async def _drain(response: UpstreamResponse) -> None:
    """Read over what follows `[DONE]`, normally only the end of the body, so that the connection can be
    used again. A server that keeps it open does not hold up the answer."""
    try:
        async with asyncio.timeout(_DRAIN_TIMEOUT_S):
            await _read(response, _MAX_ERROR_BYTES)
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


def _version() -> str:
    try:
        return importlib.metadata.version("lockgate")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # run from a source tree that is not installed
