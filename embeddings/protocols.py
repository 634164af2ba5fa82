"""Plug-points of finding. Structural: an implementation need not import these names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from policies.types import Answer, Api, Candidate

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
        """Take in what `save` wrote, into an index that is still empty. False, and nothing taken in, when
        there is no snapshot, or one that is damaged, of another version, dimension or label. What it holds
        may be older than the store: the caller compares `ids`."""
        ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One stored answer. `id` is 0 before the store has given one; ids are never used again.

    `text` and `vector` (float32 (D,), unit norm) are None when the entry is served by exact match only;
    `space` names the embedding space of `vector`. `request` is the canonical request that `exact_key` is the
    hash of (`policies.identity.canonical`): what was asked, and what the key can be made anew from. `model`
    is the model or route that was asked for; who answered is in `answer`. Times are Unix seconds.
    """

    id: int
    exact_key: bytes
    partition: bytes
    tenant: str
    api: Api
    model: str
    tags: tuple[str, ...]
    text: str | None
    space: str | None
    vector: FloatVector | None
    answer: Answer
    expires_at: float
    request: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryUse:
    """What has become of an entry: how often it was served and when last (Unix seconds; when it was
    stored, if never), how often its answer was said to be right and wrong, and the bytes it takes in
    the store."""

    hits: int
    last_used_at: float
    judged_right: int
    judged_wrong: int
    stored_bytes: int


class EntryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries: those that fit every field that is not None. `model` is the one that was asked
    for or the one that answered; `text` is contained in the question, letter case aside."""

    tenant: str | None = None
    api: Api | None = None
    model: str | None = None
    tag: str | None = None
    text: str | None = None


EVERY_ENTRY = EntryFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSize:
    """`stored_bytes`: of all entries, as `EntryUse` counts them."""

    entries: int
    stored_bytes: int


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

    async def inspect(self, entry_id: int, now: float) -> tuple[Entry, EntryUse] | None:
        """As `get`, with what has become of it."""
        ...

    async def listed(
        self, which: EntryFilter, now: float, *, before: int | None = None, limit: int = 50
    ) -> list[tuple[Entry, EntryUse]]:
        """The unexpired entries that fit, newest (highest id) first; only ids below `before`."""
        ...

    async def matching(self, which: EntryFilter, now: float) -> IdArray:
        """The ids of all unexpired entries that fit, ascending."""
        ...

    async def put(self, entry: Entry) -> tuple[int, IdArray]:
        """Store, replacing the entry under the same exact key. Returns (new id, ids that left: the
        replaced one and those evicted to keep within the capacity in entries and in bytes). Who is evicted
        is `policies.eviction`'s to say; never the new entry, unless it alone is beyond the capacity: then
        StoreError. Raises StoreError."""
        ...

    def touch(self, entry_id: int, now: float) -> None:
        """Note that this entry was served: eviction spares what is used. Does no I/O and never fails; a
        kill may lose the note."""
        ...

    async def judged(self, entry_id: int, *, right: bool) -> bool:
        """Count a judgement of this entry's answer. False when there is no such entry."""
        ...

    async def withdraw(self, entry_id: int) -> bool:
        """From now on serve this entry by exact match only: its vector is gone, its text stays. False when
        there is no such entry."""
        ...

    async def remove(self, ids: Sequence[int]) -> IdArray:
        """Returns the ids that were there. Of many, some may be gone when it fails; so with `expire`."""
        ...

    async def expire(self, now: float) -> IdArray:
        """Remove what has expired; returns the ids removed."""
        ...

    async def vector_ids(self, space: str, now: float) -> IdArray:
        """The ids of all unexpired entries with a vector in `space`, ascending."""
        ...

    def vectors(
        self, space: str, now: float, ids: IdArray | None = None
    ) -> AsyncIterator[tuple[IdArray, FloatMatrix, list[bytes]]]:
        """Every unexpired entry with a vector in `space`, or of `ids` (ascending) alone those, in batches of
        (ids, vectors, partitions): what an index is rebuilt from."""
        ...

    async def size(self) -> StoreSize: ...

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

    async def inspect(self, entry_id: int, now: float) -> tuple[Entry, EntryUse] | None:
        """The unexpired entry of this id, not noted as served."""
        ...

    async def listed(
        self, which: EntryFilter, now: float, *, before: int | None = None, limit: int = 50
    ) -> list[tuple[Entry, EntryUse]]:
        """As `AnswerStore.listed`."""
        ...

    async def matching(self, which: EntryFilter, now: float) -> IdArray:
        """As `AnswerStore.matching`."""
        ...

    async def similar(
        self, vector: FloatVector, min_similarity: float, which: EntryFilter, now: float
    ) -> list[tuple[int, float]]:
        """(id, cosine) of the unexpired entries that fit, in whatever partition, whose cosine to `vector`
        reaches `min_similarity`; the most similar first. Reads every vector of the store: for
        administration, not for requests."""
        ...

    async def judge(self, entry_id: int, *, right: bool, by_similarity: bool) -> bool:
        """Take in that this entry's answer, as served, was right or wrong. A wrong one is not served again:
        one found by similarity is from now on served by exact match only, one found by exact match is
        removed. False when there is no such entry."""
        ...

    async def note(self, entry_id: int, *, right: bool) -> bool:
        """Count a judgement of this entry's answer for some question, and go on serving it. False when there
        is no such entry."""
        ...

    async def withdraw(self, entry_id: int) -> bool:
        """From now on serve this entry by exact match only. False when there is no such entry."""
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

    async def save_index(self) -> bool:
        """Save what a start would else have to work out again, if that is much. Whether anything was saved.
        Call it now and then."""
        ...

    async def size(self) -> StoreSize: ...

    async def aclose(self) -> None: ...
