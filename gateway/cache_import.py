"""Taking entries into a store: what is there and newer stays, what lacks a vector gets one."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from embeddings.engine_thread import EngineThread
from embeddings.protocols import EmbedderError, Entry, FloatVector, IdArray, StoreError
from gateway.auth import ANONYMOUS_TENANT, OPEN_TENANT
from gateway.cache_transfer import Incoming, Left, TransferError
from gateway.lookup import MAX_EMBEDDED_CHARACTERS
from gateway.rekeying import Rekeyed, Rekeying
from gateway.settings import Auth
from policies.conversation import searched_by

BATCH = 128
"""Entries that are embedded, and stored in one transaction."""
_PASSED_THROUGH = re.compile(r"[0-9a-f]{24}")

Find = Callable[[bytes, float], Awaitable[Entry | None]]
Put = Callable[[Entry], Awaitable[tuple[int, IdArray]]]


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """How many entries were taken in, and how many not. Of those taken in: `replaced` an older answer, have
    been `embedded` anew, are served by exact match only, belong to tenants that no client here is
    (`unreachable`). `kept`: there was an answer as new. `evicted`: left the store to make room. `left`: by
    the reason."""

    imported: int
    replaced: int
    embedded: int
    exact_only: int
    unreachable: int
    kept: int
    evicted: int
    left: Mapping[str, int]


class Importer:
    """Use it once. `put` None: nothing is stored or embedded, but counted as if. `engine` None: entries are
    served by exact match only; `embed` False: so are those that bring no vector of its space. `ttl_s`: what
    entries that have expired get; None: they are left."""

    def __init__(
        self,
        *,
        rekeying: Rekeying,
        find: Find,
        put: Put | None,
        engine: EngineThread | None,
        embed: bool,
        is_reachable: Callable[[str], bool],
        ttl_s: float | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._rekeying = rekeying
        self._find = find
        self._put = put
        self._engine = engine
        self._embed = embed
        self._is_reachable = is_reachable
        self._ttl_s = ttl_s
        self._clock = clock
        self._counts = Counter[str]()
        self._left = Counter[str]()

    async def run(self, incoming: Iterable[Incoming | Left], advance: Callable[[int], object]) -> Imported:
        """`advance` is told of each entry that is done with. Raises TransferError, which says how many had
        been taken in before."""
        batch: dict[bytes, Rekeyed] = {}
        try:
            for one in incoming:
                self._add(one, batch)
                if len(batch) == BATCH:
                    await self._take(batch.values())
                    batch.clear()
                advance(1)
            await self._take(batch.values())
        except (TransferError, StoreError, EmbedderError) as error:
            before = (
                "" if self._put is None else f" ({self._counts['imported']} entries were imported before)"
            )
            raise TransferError(f"{error}{before}") from error
        counts = self._counts
        return Imported(
            imported=counts["imported"],
            replaced=counts["replaced"],
            embedded=counts["embedded"],
            exact_only=counts["exact_only"],
            unreachable=counts["unreachable"],
            kept=counts["kept"],
            evicted=max(0, counts["gone"] - counts["replaced"]),
            left=dict(self._left),
        )

    def _add(self, one: Incoming | Left, batch: dict[bytes, Rekeyed]) -> None:
        rekeyed = one if isinstance(one, Left) else self._rekeying.rekeyed(one, self._clock(), self._ttl_s)
        if isinstance(rekeyed, Left):
            self._left[rekeyed.reason] += 1
            return
        key = rekeyed.entry.exact_key
        twin = batch.get(key)
        if twin is not None:
            self._counts["kept"] += 1
        if twin is None or twin.entry.answer.created_at < rekeyed.entry.answer.created_at:
            batch[key] = rekeyed

    async def _take(self, batch: Iterable[Rekeyed]) -> None:
        now = self._clock()
        taken = []
        for one in batch:
            there = await self._find(one.entry.exact_key, now)
            if there is not None and there.answer.created_at >= one.entry.answer.created_at:
                self._counts["kept"] += 1
                continue
            self._counts["replaced"] += there is not None
            taken.append(one)
        # at once: the engine encodes, and the store writes, together what waits together
        entries = await asyncio.gather(*map(self._with_vector, taken))
        results = await asyncio.gather(*map(self._store, entries), return_exceptions=True)
        for one, result in zip(taken, results, strict=True):
            if isinstance(result, StoreError):
                raise TransferError(f"{one.incoming.where}: {result}") from result
            if isinstance(result, BaseException):
                raise result
            self._counts["unreachable"] += not (one.shared or self._is_reachable(one.entry.tenant))

    async def _with_vector(self, one: Rekeyed) -> Entry:
        entry, engine = one.entry, self._engine
        if engine is None or entry.text is None:
            self._counts["exact_only"] += 1
            return entry
        vector = _brought(one, engine)
        if vector is None and self._embed and len(searched_by(entry.text)) <= MAX_EMBEDDED_CHARACTERS:
            self._counts["embedded"] += 1
            if self._put is None:
                return entry
            encoded = await engine.encode(searched_by(entry.text))
            vector = None if encoded.truncated else encoded.vector
        if vector is None:
            self._counts["exact_only"] += 1
            return entry
        return dataclasses.replace(entry, space=engine.space, vector=vector)

    async def _store(self, entry: Entry) -> None:
        if self._put is not None:
            _, gone = await self._put(entry)
            self._counts["gone"] += len(gone)
        self._counts["imported"] += 1


def _brought(one: Rekeyed, engine: EngineThread) -> FloatVector | None:
    """The vector that came with the entry, if it is of the text that is compared here, in this space."""
    incoming = one.incoming
    if incoming.vector is None or incoming.space != engine.space or incoming.text != one.entry.text:
        return None
    if incoming.vector.shape != (engine.dimension,):
        raise TransferError(
            f"{incoming.where}: vector: expected {engine.dimension} dimensions, as {engine.space} has, got "
            f"{incoming.vector.shape[0]}"
        )
    return incoming.vector


def reachable_tenants(auth: Auth, *, same_secret: bool) -> Callable[[str], bool]:
    """Whether a client can be of that tenant. `same_secret`: tenants that are hashes of credentials were made
    under the secret of this store."""
    if auth.mode == "open":
        return lambda tenant: tenant == OPEN_TENANT
    if auth.mode == "keys":
        return {key.tenant or name for name, key in auth.keys.items()}.__contains__
    return lambda tenant: (
        tenant == ANONYMOUS_TENANT or (same_secret and _PASSED_THROUGH.fullmatch(tenant) is not None)
    )
