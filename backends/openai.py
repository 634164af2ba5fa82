"""Backend over any server that speaks OpenAI's APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from backends.endpoint import parse_endpoint
from backends.errors import BackendError, UpstreamRejected
from backends.http_backend import HttpBackend, Timeouts
from backends.protocols import Call
from backends.transport import Transport, UpstreamResponse
from policies.types import Api

_WITH_USAGE = ("chat", "completions")  # whose streams tell usage only when asked
_OWN_ACCOUNT = ("openai-organization", "openai-project")


class OpenAIBackend(HttpBackend):
    """vLLM, TGI, TensorRT-LLM, SGLang, llama.cpp, Ollama, or OpenAI's own API at `base_url` (with `/v1`).

    `apis` are those to try; one that the server turns out not to have is given up. Raises ValueError for a
    URL or key that cannot work.
    """

    paths: ClassVar[Mapping[Api, str]] = {
        "chat": "chat/completions",
        "completions": "completions",
        "responses": "responses",
        "embeddings": "embeddings",
    }

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None = None,
        *,
        timeouts: Timeouts | None = None,
        apis: frozenset[Api] | None = None,
        transport: Transport | None = None,
    ) -> None:
        super().__init__(
            name,
            parse_endpoint(name, base_url, api_key),
            timeouts=timeouts or Timeouts(),
            apis=apis if apis is not None else frozenset(self.paths),
            transport=transport,
        )
        self._usage_in_streams = True  # until the server refuses `stream_options`

    async def _open(self, call: Call) -> UpstreamResponse:
        """A server that refuses to be asked for usage is asked again without; that is remembered once it
        has worked."""
        asked = self._usage_in_streams and call.stream and call.api in _WITH_USAGE
        try:
            return await super()._open(call)
        except UpstreamRejected as error:
            if not (asked and error.status in (400, 422) and b"stream_options" in error.body):
                raise
            self._usage_in_streams = False
            if not call.report.room():
                raise  # the next stream is asked for without
        try:
            return await super()._open(call)
        except BackendError:
            self._usage_in_streams = True
            raise

    def _authorization(self, credential: str | None) -> dict[str, str]:
        authorization = self._endpoint.authorization or credential
        return {"authorization": authorization} if authorization else {}

    def _headers(self, call: Call) -> dict[str, str]:
        headers = super()._headers(call)
        if self._endpoint.authorization is not None:
            for name in _OWN_ACCOUNT:  # which account of the key's owner pays is not the client's to say
                headers.pop(name, None)
        return headers

    def _upstream_body(self, call: Call) -> Mapping[str, Any]:
        """A streamed call always asks for usage, where the server can."""
        body = call.body
        if not call.stream or call.api not in _WITH_USAGE:
            return body
        options = body.get("stream_options")
        if options is not None and not isinstance(options, Mapping):
            return body  # the client's mistake, for the server to name
        changed = {key: value for key, value in (options or {}).items() if key != "include_usage"}
        if self._usage_in_streams:
            changed["include_usage"] = True
        rest = {key: value for key, value in body.items() if key != "stream_options"}
        return {**rest, "stream_options": changed} if changed else rest
