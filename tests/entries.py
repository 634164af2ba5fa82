"""Entries, unit vectors and an embedder for tests of the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from embeddings.protocols import Encoding, Entry, FloatVector
from policies.types import Answer, Api

SPACE = "fake-16"
DIMENSION = 16
PARTITION = b"p" * 16


def unit_vector(text: str, dimension: int = DIMENSION) -> FloatVector:
    """The same text always gives the same direction; different texts are near orthogonal."""
    seed = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "little")
    vector = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    unit: FloatVector = vector / np.linalg.norm(vector)
    return unit


class FakeEmbedder:
    """`unit_vector` of each text; one token a word; more than `max_tokens` words are truncated."""

    space = SPACE
    dimension = DIMENSION
    max_tokens = 8

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.closed = False

    def encode(self, texts: Sequence[str]) -> Encoding:
        self.calls.append(list(texts))
        words = [text.split() for text in texts]
        vectors = [unit_vector(" ".join(w[: self.max_tokens])) for w in words]
        counts = np.array([len(w) for w in words], dtype=np.int64)
        return Encoding(
            vectors=np.array(vectors, dtype=np.float32).reshape(len(texts), DIMENSION),
            token_counts=counts,
            truncated=counts > self.max_tokens,
        )

    def close(self) -> None:
        self.closed = True


def exact_key(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def make_body(content: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        ],
    }


def make_entry(
    name: str = "a question",
    *,
    created_at: float = 1000.0,
    ttl_s: float = 3600.0,
    partition: bytes = PARTITION,
    semantic: bool = True,
    space: str = SPACE,
    content: str | None = None,
    tenant: str = "tenant",
    api: Api = "chat",
    model: str = "auto",
    tags: tuple[str, ...] = (),
    cost_usd: float = 0.25,
) -> Entry:
    return Entry(
        id=0,
        exact_key=exact_key(name),
        partition=partition,
        tenant=tenant,
        api=api,
        model=model,
        tags=tags,
        text=name if semantic else None,
        space=space if semantic else None,
        vector=unit_vector(name) if semantic else None,
        answer=Answer(
            body=make_body(f"answer to {name}" if content is None else content),
            model="upstream-model",
            created_at=created_at,
            prompt_tokens=3,
            completion_tokens=4,
            cost_usd=cost_usd,
        ),
        expires_at=created_at + ttl_s,
        request=orjson.dumps(
            [api, tenant, model, None, {}, {"messages": [{"role": "user", "content": name}]}]
        ),
    )
