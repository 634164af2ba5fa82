"""Calls to an OpenAIBackend, and what its tests read from the answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

from backends.http_backend import Timeouts
from backends.openai import OpenAIBackend
from backends.protocols import Call, Chunk

OWN_KEY = "sk-own-secret"
CLIENT_KEY = "sk-client-secret"


def make(base_url: str, *, api_key: str | None = OWN_KEY, timeouts: Timeouts | None = None) -> OpenAIBackend:
    return OpenAIBackend("up", base_url, api_key, timeouts=timeouts or Timeouts(total_s=10.0))


def call(stream: bool = False, headers: Mapping[str, str] | None = None, **body: Any) -> Call:
    full = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}
    if stream:
        full["stream"] = True
    return Call(body=full, credential=f"Bearer {CLIENT_KEY}", headers=headers or {})


async def collect(backend: OpenAIBackend, asked: Call) -> list[Chunk]:
    return [chunk async for chunk in backend.stream(asked)]


def begin(backend: OpenAIBackend, asked: Call) -> AsyncGenerator[Chunk, None]:
    answer = backend.stream(asked)
    assert isinstance(answer, AsyncGenerator)
    return answer


def events_of(chunks: Iterable[Chunk]) -> list[Mapping[str, Any]]:
    return [event for chunk in chunks for event in chunk.events]


def text_of(chunks: list[Chunk]) -> str:
    choices = [choice for event in events_of(chunks) for choice in event["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)
