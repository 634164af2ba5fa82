"""Plug-points of finding. Structural: an implementation need not import these names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from policies.types import Answer, Candidate

FloatVector = npt.NDArray[np.float32]
FloatMatrix = npt.NDArray[np.float32]
IdArray = npt.NDArray[np.int64]


class EmbedderError(Exception):
    """The embedder cannot start or cannot encode; the message says what to do."""


class StoreError(Exception):
    """The answer store cannot be opened, read or written; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """`vectors`: float32 (N, D), rows of unit norm. `token_counts`: int64 (N,), the tokens of each text
    before truncation, special tokens included. `truncated`: bool (N,), texts longer than the model's
    window, whose vector does not cover their end."""

    vectors: FloatMatrix
    token_counts: IdArray
    truncated: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedText:
    """`vector`: float32 (D,), unit norm. `token_count` is before truncation, special tokens included.

    A truncated text's vector does not cover its end: two long texts that begin alike would collide, so
    such a vector may serve to route, never to search or to be stored.
    """

    vector: FloatVector
    token_count: int
    truncated: bool


class Embedder(Protocol):
    """Turns texts into unit vectors. Safe to call from one thread at a time."""

    @property
    def space(self) -> str:
        """Names model, precision and runtime. Vectors of different spaces must never be compared."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def max_tokens(self) -> int:
        """The model's whole window, special tokens included."""
        ...

    def encode(self, texts: Sequence[str]) -> Encoding:
        """Raises EmbedderError. An empty sequence gives arrays of zero rows."""
        ...

    def close(self) -> None: ...


class VectorIndex(Protocol):
    """Partitioned cosine index over unit vectors. Safe under concurrent use from many threads."""

    def add(self, ids: IdArray, vectors: FloatMatrix, partitions: Sequence[bytes]) -> None:
        """`ids` int64 (N,), `vectors` float32 (N, D), one partition per row. Adding an id again replaces
        its vector."""
        ...

    def search(self, vectors: FloatMatrix, k: int, partition: bytes) -> tuple[FloatMatrix, IdArray]:
        """Returns (similarity float32 (N, k) in [-1, 1], higher is closer; ids int64 (N, k), -1 = none,
        whose similarity is -1). A search never leaves its partition."""
        ...

    def remove(self, ids: IdArray) -> int:
        """Returns how many of `ids` (int64 (N,)) were there. Unknown ids are ignored."""
        ...

    def partition_size(self, partition: bytes) -> int:
        """How many vectors this partition has."""
        ...

    def ids(self) -> IdArray:
        """Every id that is here, int64 (N,), in any order."""
        ...

    def save(self, path: Path, label: str) -> None:
        """Write a snapshot, readable by its owner only, that replaces the one at `path` as a whole or not at
        all. `label` says what the vectors are of: who loads it must know it. Raises OSError."""
        ...

    def load(self, path: Path, label: str) -> bool:
        """Take in what `save` wrote, into an index that is still empty. False, and nothing taken in, when there
        is no snapshot, or one that is damaged, of another version, dimension or label. What it holds may be
        older than the store: the caller compares `ids`."""
        ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One stored answer. `id` is 0 before the store has given one; ids are never used again.

    `text` and `vector` (float32 (D,), unit norm) are None when the entry is served by exact match only;
    `space` names the embedding space of `vector`. Times are Unix seconds.
    """

    id: int
    exact_key: bytes
    partition: bytes
    tenant: str
    text: str | None
    space: str | None
    vector: FloatVector | None
    answer: Answer
    expires_at: float


class AnswerStore(Protocol):
    """The source of truth for entries, vectors included. A write that has returned survives a kill."""

    async def secret(self) -> bytes:
        """32 random bytes, made once with the store: the key of the identity hashes."""
        ...

    async def find(self, exact_key: bytes, now: float) -> Entry | None:
        """The unexpired entry under this key."""
        ...

    async def get(self, entry_id: int, now: float) -> Entry | None:
        """The unexpired entry of this id."""
        ...

    async def put(self, entry: Entry) -> tuple[int, IdArray]:
        """Store, replacing the entry under the same exact key. Returns (new id, ids that left: the
        replaced one and those evicted to keep within capacity). Raises StoreError."""
        ...

    def touch(self, entry_id: int, now: float) -> None:
        """Note that this entry was served: eviction spares what is used. Does no I/O and never fails; a
        kill may lose the note."""
        ...

    async def remove(self, ids: Sequence[int]) -> IdArray:
        """Returns the ids that were there."""
        ...

    async def expire(self, now: float) -> IdArray:
        """Remove what has expired; returns the ids removed."""
        ...

    def vectors(self, space: str, now: float) -> AsyncIterator[tuple[IdArray, FloatMatrix, list[bytes]]]:
        """Every unexpired entry with a vector in `space`, in batches of (ids, vectors, partitions): what
        an index is rebuilt from."""
        ...

    async def count(self) -> int: ...

    async def aclose(self) -> None: ...


class SemanticCache(Protocol):
    """Answers found by exact key or by similarity. Raises StoreError and EmbedderError only.

    Deadlines are the caller's (`asyncio.timeout`): cancelling any call leaves store and index agreeing,
    and a write that was cancelled may still happen. Times are Unix seconds.
    """

    @property
    def space(self) -> str | None:
        """The embedding space of this cache's vectors; None when it finds by exact key only."""
        ...

    def at_hand(self, exact_key: bytes, now: float) -> Entry | None:
        """As `find`, but only what is in memory: does no I/O and never fails."""
        ...

    async def find(self, exact_key: bytes, now: float) -> Entry | None:
        """The unexpired entry under this key, noted as served. Callers must not change its body."""
        ...

    async def get(self, entry_id: int, now: float) -> Entry | None:
        """The unexpired entry of this id, noted as served. Callers must not change its body."""
        ...

    async def embed(self, text: str) -> EncodedText:
        """Raises EmbedderError."""
        ...

    async def search(self, vector: FloatVector, partition: bytes, k: int, now: float) -> list[Candidate]:
        """Up to `k` unexpired entries of the partition, the most similar first. `vector`: float32 (D,),
        unit norm, of a text that was not truncated."""
        ...

    async def put(self, entry: Entry) -> int:
        """Store and, when it has a vector, index; replaces the entry under the same exact key. Returns
        the new id. Pass `vector=None` for a truncated text."""
        ...

    async def remove(self, ids: Sequence[int]) -> int:
        """Returns how many were there."""
        ...

    async def sweep(self, now: float) -> int:
        """Remove what has expired; returns how many. Call it periodically."""
        ...

    async def count(self) -> int: ...

    async def aclose(self) -> None: ...
