"""GPTCache (https://github.com/zilliztech/GPTCache) for `cache_peers.py`; runs in GPTCache's environment.

As `init_similar_cache` sets it up: SQLite and FAISS, SearchDistanceEvaluation, similarity threshold 0.8. Its
embedding hook is given MiniLM's vectors, its pre-processing is `Cache.init`'s default, the last message, and
the capacity is raised so that nothing is evicted. A miss is a `get` and a `put` of its `adapter.api`.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from typing import Any

from gptcache import Cache, Config  # type: ignore[import-not-found]
from gptcache.adapter.api import get, init_similar_cache, put  # type: ignore[import-not-found]
from gptcache.manager import manager_factory  # type: ignore[import-not-found]
from gptcache.processor.pre import last_content  # type: ignore[import-not-found]
from gptcache.similarity_evaluation import SearchDistanceEvaluation  # type: ignore[import-not-found]

from benchmarks import peer_job
from benchmarks.peer_job import Messages, PeerProgram, Reply, Vectors


class LookUp:
    """GPTCache's embedding hook."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self.dimension = vectors.dimension

    def to_embeddings(self, data: str, **_: Any) -> Any:
        return self._vectors[data]


class GptCache:
    def __init__(self, vectors: Vectors, capacity: int) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._cache = Cache()
        init_similar_cache(
            cache_obj=self._cache,
            pre_func=last_content,
            embedding=LookUp(vectors),
            data_manager=manager_factory(
                "sqlite,faiss",
                data_dir=self._folder.name,
                vector_params={"dimension": vectors.dimension},
                eviction_params={"max_size": capacity + 1},
            ),
        )

    async def ask(self, messages: Messages, answer: str) -> Reply:
        served = get("", messages=messages, cache_obj=self._cache)
        if served is None:
            put("", answer, messages=messages, cache_obj=self._cache)
        return Reply(served=served)

    async def close(self) -> None:
        self._folder.cleanup()


async def opened(vectors: Vectors, capacity: int) -> GptCache:
    return GptCache(vectors, capacity)


def about() -> dict[str, Any]:
    """Its score is 4 less the squared distance of unit vectors, 2 - 2 cos."""
    least, most = SearchDistanceEvaluation().range()
    distance = most - (most - least) * Config().similarity_threshold
    return {
        "threshold": round(1 - distance / 2, 6),
        "versions": {name: version(name) for name in ("gptcache", "sqlalchemy", "faiss-cpu", "numpy")},
    }


if __name__ == "__main__":
    peer_job.main(PeerProgram(embedded=str, open=opened, about=about))
