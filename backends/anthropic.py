"""Backend over a server that speaks Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from backends.endpoint import parse_endpoint
from backends.http_backend import HttpBackend, Timeouts
from backends.transport import Transport
from policies.types import Api

VERSION = "2023-06-01"
"""Sent when the client names none: https://docs.anthropic.com/en/api/versioning."""
_OAUTH_PREFIX = "sk-ant-oat"


class AnthropicBackend(HttpBackend):
    """Anthropic's API, or one like it, at `base_url` (with or without `/v1`). Raises ValueError for a URL or
    key that cannot work."""

    paths: ClassVar[Mapping[Api, str]] = {"messages": "v1/messages"}
    _models_path = "v1/models"
    _needed: ClassVar[Mapping[str, str]] = {"anthropic-version": VERSION}

    def __init__(
        self,
        name: str,
        base_url: str = "https://api.anthropic.com",
        api_key: str | None = None,
        *,
        timeouts: Timeouts | None = None,
        transport: Transport | None = None,
    ) -> None:
        super().__init__(
            name,
            parse_endpoint(name, base_url.rstrip("/").removesuffix("/v1"), api_key),
            timeouts=timeouts or Timeouts(),
            apis=frozenset(self.paths),
            transport=transport,
        )

    def _authorization(self, credential: str | None) -> dict[str, str]:
        key = self._endpoint.key
        if key is None and self._endpoint.authorization is not None:
            return {"authorization": self._endpoint.authorization}
        if key is None and credential:
            scheme, _, token = credential.partition(" ")
            if scheme.lower() != "bearer" or token.startswith(_OAUTH_PREFIX):
                return {"authorization": credential}
            key = token.strip()
        return {"x-api-key": key} if key else {}

    def _raw_url(self, path: str) -> str:
        return self._endpoint.url(f"v1/{path}")
