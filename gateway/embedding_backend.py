"""The gateway's own embedder as a backend of the embeddings API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import numpy as np
import orjson

from backends.errors import EngineUnavailable, InvalidCall
from backends.protocols import Call, Chunk, Health, Load
from embeddings.protocols import EmbedderError, EncodedText
from gateway.errors import RequestError
from gateway.wire.embeddings import embedding_answer, texts_of
from policies.types import Api


class EmbeddingBackend:
    """Answers with the vectors that the cache compares: of unit norm, so that a dot product is a cosine."""

    name = "embedder"
    apis: frozenset[Api] = frozenset({"embeddings"})

    def __init__(self, encode: Callable[[str], Awaitable[EncodedText]], dimension: int) -> None:
        self._encode = encode
        self._dimension = dimension
        self._running = 0

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        try:
            texts = texts_of(call.body)
        except RequestError as error:
            raise InvalidCall(str(error), param=error.param) from None
        wanted = call.body.get("dimensions")
        if wanted not in (None, self._dimension):
            raise InvalidCall(
                f"dimensions: this model gives {self._dimension}, got {wanted}.", param="dimensions"
            )
        self._running += 1
        call.report.requests += 1
        try:
            encoded = await asyncio.gather(*(self._encode(text) for text in texts))
        except EmbedderError as error:
            raise EngineUnavailable(str(error)) from None
        finally:
            self._running -= 1
        for i, one in enumerate(encoded):
            if one.truncated:
                raise InvalidCall(
                    f"input[{i}]: {one.token_count} tokens are more than this model reads.", param="input"
                )
        answer = embedding_answer(
            np.stack([one.vector for one in encoded]),
            [one.token_count for one in encoded],
            model=str(call.body["model"]),
            encoding_format=call.body.get("encoding_format") or "float",
        )
        yield Chunk(data=orjson.dumps(answer), events=(answer,), whole=True)

    async def load(self) -> Load:
        return Load(queued=0, running=self._running)

    async def health(self) -> Health:
        return Health(ready=True, detail=f"{self._dimension} dimensions")

    async def aclose(self) -> None:
        pass  # the embedder is the gateway's
