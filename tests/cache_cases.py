"""What tests of the whole cache have in common: both stores, one question in every API, vectors as told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embeddings.protocols import Encoding, FloatVector
from embeddings.semantic_cache import LocalSemanticCache
from policies.types import Api
from tests.entries import DIMENSION, unit_vector
from tests.gateways import SETTINGS, Running

EACH_STORE = pytest.mark.parametrize("store", ["memory", "sqlite"])

PATHS: Mapping[Api, str] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}


def kept_in(store: str, folder: Path, **changes: Any) -> dict[str, Any]:
    """The [cache] table of a gateway that keeps its answers in `store`."""
    return {**SETTINGS["cache"], "store": store, "path": str(folder / "cache.db"), **changes}


def serving_from(min_similarity: float) -> dict[str, Any]:
    """The [cache] table of a gateway that serves what is so similar."""
    return {"store": "memory", "policy": {"kind": "static", "min_similarity": min_similarity}}


def question(
    api: Api, text: str, *, system: str = "", before: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """`text` asked in this API, after a system prompt and the turns `before` (role, text); completions has
    neither."""
    turns = [{"role": role, "content": said} for role, said in (*before, ("user", text))]
    match api:
        case "completions":
            return {"prompt": text}
        case "responses":
            return {"input": turns, **({"instructions": system} if system else {})}
        case "messages":
            return {"messages": turns, "max_tokens": 99, **({"system": system} if system else {})}
        case _:
            return {"messages": [*([{"role": "system", "content": system}] if system else []), *turns]}


def give_vectors(test: Running, vector_of: Callable[[str], FloatVector]) -> None:
    """From now on the embedder gives these, float32 (16,)."""

    def encode(texts: Sequence[str]) -> Encoding:
        test.embedder.delay()
        return Encoding(
            vectors=np.array([vector_of(text) for text in texts], dtype=np.float32).reshape(len(texts), -1),
            token_counts=np.ones(len(texts), dtype=np.int64),
            truncated=np.zeros(len(texts), dtype=np.bool_),
        )

    test.embedder.encode = encode  # type: ignore[method-assign]


def vector_at(cosine: float) -> FloatVector:
    """A unit vector that has this cosine to `vector_at(1.0)`."""
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[:2] = cosine, np.sqrt(1 - cosine**2)
    return vector


def alike(text: str) -> FloatVector:
    """About one vector for every text (cosines above .99): similarity parts nothing. Not quite one: equal
    vectors of different texts are taken for a fault of the embedder."""
    vector = vector_at(1.0) + np.float32(0.05) * unit_vector(text)
    unit: FloatVector = vector / np.linalg.norm(vector)
    return unit


def indexed(test: Running) -> int:
    """How many vectors the index has."""
    cache = test.gateway.cache
    assert isinstance(cache, LocalSemanticCache)
    assert cache._index is not None
    return len(cache._index._index)


async def kept(test: Running) -> int:
    """How many entries the store has."""
    assert test.gateway.cache is not None
    return (await test.gateway.cache.size()).entries
