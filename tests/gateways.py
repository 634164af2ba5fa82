"""A whole gateway in one process, with a backend and an embedder that do as a test tells them."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np

from backends.errors import BackendError
from backends.protocols import Call, Chunk, Health, Load
from embeddings.protocols import Encoding
from gateway.app import build_app
from gateway.assembly import Gateway, assemble
from gateway.config import parse
from gateway.request_log import ConsoleRequestLog
from policies.types import Api
from tests.entries import unit_vector

SETTINGS: dict[str, Any] = {
    "cache": {"store": "memory", "policy": {"kind": "static", "min_similarity": 0.9}},
    "ledger": {"enabled": False},  # counted in memory
    "backends": {"fake": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"}},
    "models": {
        "small": {"backend": "fake", "name": "fake-small", "input_usd_per_mtok": 1.0},
        "large": {"backend": "fake", "name": "fake-large", "input_usd_per_mtok": 10.0},
    },
    "routes": {"auto": {"small": "small", "large": "large"}},
}


def chunk(body: dict[str, Any]) -> Chunk:
    """One event of a stream."""
    data = b"data: " + json.dumps(body).encode() + b"\n\n"
    return Chunk(data=data, events=(body,), tells_usage="usage" in body)


def whole(body: dict[str, Any]) -> Chunk:
    """A whole answer."""
    return Chunk(data=json.dumps(body).encode(), events=(body,), whole=True)


class FakeBackend:
    """Answers "answer N" to its Nth call, in the form the call asks for.

    `gate`, when set, is awaited before each chunk. `error` is raised after `error_after` chunks, by the next
    `failing` calls.
    `rewrite` may change each object before it goes out.
    """

    name = "fake"
    apis: frozenset[Api] = frozenset({"chat"})

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.cancelled = 0
        self.gate: asyncio.Event | None = None
        self.error: BackendError | None = None
        self.error_after = 0
        self.failing = math.inf
        self.rewrite: Callable[[dict[str, Any]], dict[str, Any]] = lambda body: body
        self.ready = True

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        self.calls.append(call)
        call.report.requests += 1
        form = chunk if call.stream else whole
        try:
            for sent, body in enumerate(self._objects(call, f"answer {len(self.calls)}")):
                if self.gate is not None:
                    await self.gate.wait()
                if self.error is not None and sent >= self.error_after and self.failing:
                    self.failing -= 1
                    raise self.error
                yield form(self.rewrite(body))
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise

    def _objects(self, call: Call, text: str) -> list[dict[str, Any]]:
        head = {"id": f"up-{len(self.calls)}", "created": 1, "model": call.body["model"], "vendor": "v"}
        usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
        if not call.stream:
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return [{**head, "object": "chat.completion", "choices": [choice], "usage": usage}]

        def delta(value: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
            choice = {"index": 0, "delta": value, "finish_reason": reason}
            return {**head, "object": "chat.completion.chunk", "choices": [choice]}

        words = [delta({"content": word}) for word in (text[:3], text[3:])]
        last = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
        return [delta({"role": "assistant", "content": ""}), *words, delta({}, "stop"), last]

    async def load(self) -> Load:
        return Load(queued=0, running=0)

    async def health(self) -> Health:
        return Health(ready=self.ready, detail="as told")

    async def aclose(self) -> None:
        raise AssertionError("the backend is its owner's to close")


class FakeTopicEmbedder:
    """Texts with the same first word are near (cosine above .99), others are not."""

    space = "fake-topics"
    dimension = 16
    max_tokens = 50

    def __init__(self) -> None:
        self.delay: Callable[[], None] = lambda: None

    def encode(self, texts: Sequence[str]) -> Encoding:
        self.delay()
        rows = [unit_vector((text.split() or [""])[0]) + 0.03 * unit_vector(text) for text in texts]
        vectors = np.array(rows, dtype=np.float32).reshape(len(texts), self.dimension)
        counts = np.array([len(text.split()) for text in texts], dtype=np.int64)
        return Encoding(
            vectors=vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
            token_counts=counts,
            truncated=counts > self.max_tokens,
        )

    def close(self) -> None:
        pass


class Running:
    """A gateway under test: its parts, and a client that speaks to its ASGI application."""

    def __init__(self, gateway: Gateway, backend: FakeBackend, embedder: FakeTopicEmbedder) -> None:
        self.gateway = gateway
        self.backend = backend
        self.embedder = embedder
        self.app = build_app(gateway)
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    @property
    def followers(self) -> int:
        """Requests that wait for an upstream call right now."""
        return self.gateway.pipeline.generation.flights.followers

    async def ask(
        self, text: str = "sky why is it blue?", /, *, key: str = "k", **fields: Any
    ) -> httpx.Response:
        """A chat completion. `headers` are the request's further headers."""
        headers = {"authorization": f"Bearer {key}", **fields.pop("headers", {})}
        body = {"model": "auto", "messages": [{"role": "user", "content": text}], **fields}
        return await self.http.post("/v1/chat/completions", json=body, headers=headers)


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Running]:
    """`settings` replace whole tables of SETTINGS."""
    backend, embedder = FakeBackend(), FakeTopicEmbedder()
    read = parse({**SETTINGS, **settings}, {}, source="test")
    gateway = await assemble(
        read, lambda part, state: None, backends={"fake": backend}, embedder=embedder, log=ConsoleRequestLog()
    )
    test = Running(gateway, backend, embedder)
    try:
        yield test
    finally:
        await test.http.aclose()
        await gateway.aclose()


async def until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Waits for something the gateway has no event for."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def told(response: httpx.Response) -> str:
    """The text of a completion, or of a stream put together."""
    if response.headers["content-type"].startswith("application/json"):
        content: str = response.json()["choices"][0]["message"]["content"]
        return content
    return "".join(
        choice["delta"].get("content") or "" for event in events(response) for choice in event["choices"]
    )


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The JSON events of a stream, without [DONE]."""
    frames = [frame for frame in response.text.split("\n\n") if frame]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames if frame != "data: [DONE]"]
