"""CacheLLM (https://github.com/adarshcod30/CacheLLM) for `cache_peers.py`; runs in CacheLLM's environment.

The whole proxy with the settings it ships with, called as an ASGI application: its own HTTP interface without
a socket. The embedder handed to it gives MiniLM's vectors, the model that its shipped threshold is for. The
model behind it is its own `fake/` provider, told what to answer. Requests ask for temperature 0: without one
it declines them all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from cachellm.api.app import create_app  # type: ignore[import-not-found]
from cachellm.api.deps import build_state, shutdown_state  # type: ignore[import-not-found]
from cachellm.cache.keys import embedding_text  # type: ignore[import-not-found]
from cachellm.providers.fake import FakeProvider  # type: ignore[import-not-found]
from cachellm.providers.registry import ProviderRegistry  # type: ignore[import-not-found]
from cachellm.settings import Settings  # type: ignore[import-not-found]

from benchmarks import peer_job
from benchmarks.peer_job import Messages, PeerProgram, Reply, Vectors

SETTINGS = Settings(
    _env_file=None,
    backend="memory",  # what "auto" comes to where no Redis runs
    discover_models=False,
    log_level="ERROR",
)


class LookUp:
    """CacheLLM's embedding hook (its `Embedder`)."""

    name = SETTINGS.embedding_model

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self.dim = vectors.dimension

    async def embed(self, text: str) -> Any:
        return self._vectors[text]

    async def embed_batch(self, texts: Sequence[str]) -> list[Any]:
        return [self._vectors[text] for text in texts]

    async def warmup(self) -> None:
        """There is nothing to load."""


class CacheLlm:
    def __init__(self, state: Any, model: Any) -> None:
        self._state = state
        self._model = model
        self._app = create_app(SETTINGS, state)
        self._app.state.cachellm = state  # what its lifespan does

    async def ask(self, messages: Messages, answer: str) -> Reply:
        self._model.answers[messages[-1]["content"].strip()] = answer
        body = json.dumps({"model": "fake/labels", "temperature": 0, "messages": messages}).encode()
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(event: dict[str, Any]) -> None:
            sent.append(event)

        await self._app(_SCOPE.copy(), receive, send)
        start, rest = sent[0], b"".join(event.get("body", b"") for event in sent[1:])
        if start["status"] != 200:
            raise RuntimeError(f"CacheLLM answered {start['status']}: {rest[:200].decode()}")
        found = dict(start["headers"])[b"x-cache"]
        answered = json.loads(rest)["choices"][0]["message"]["content"]
        return Reply(served=answered if found == b"HIT" else None, declined=found == b"BYPASS")

    async def close(self) -> None:
        await shutdown_state(self._state)


_SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/v1/chat/completions",
    "raw_path": b"/v1/chat/completions",
    "root_path": "",
    "query_string": b"",
    "headers": [(b"content-type", b"application/json"), (b"host", b"cachellm")],
    "client": ("127.0.0.1", 1),
    "server": ("cachellm", 80),
}


async def opened(vectors: Vectors, _: int) -> CacheLlm:
    """As large as it ships: 50,000 entries."""
    model = FakeProvider()
    providers = ProviderRegistry(SETTINGS, providers={"fake": model})
    state = await build_state(SETTINGS, embedder=LookUp(vectors), providers=providers)
    if not state.caching_on:  # it would let everything by
        raise RuntimeError(f"CacheLLM's cache does not work: {state.degraded_reason}")
    return CacheLlm(state, model)


def embedded(text: str) -> str:
    return str(embedding_text(text.strip(), strip_fillers=SETTINGS.strip_filler_words))


def about() -> dict[str, Any]:
    """`threshold` is that of questions of fact; other categories move it by -0.02 to 0.06."""
    return {
        "threshold": SETTINGS.threshold_for("factual"),
        "versions": {name: version(name) for name in ("cachellm-proxy", "fastapi", "numpy")},
    }


if __name__ == "__main__":
    peer_job.main(PeerProgram(embedded=embedded, open=opened, about=about))
