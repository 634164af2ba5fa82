"""Calls to an OpenAIBackend, and what its tests read from the answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from backends.openai import OpenAIBackend
from backends.protocols import Call, Chunk

OWN_KEY = "sk-own-secret"
CLIENT_KEY = "sk-client-secret"


class Backoff:
    """Stands in for sleeping and for chance: the longest jitter, and no waiting."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []

    def uniform(self, low: float, high: float) -> float:
        assert low == 0.0
        return high

    async def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)


def make(
    base_url: str,
    *,
    api_key: str | None = OWN_KEY,
    timeout_s: float = 10.0,
    retries: int = 2,
    backoff: Backoff | None = None,
) -> OpenAIBackend:
    backoff = backoff or Backoff()
    return OpenAIBackend(
        "up", base_url, api_key, timeout_s, retries, uniform=backoff.uniform, sleep=backoff.sleep
    )


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


def text_of(chunks: list[Chunk]) -> str:
    choices = [choice for chunk in chunks for choice in chunk.body["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)
