"""Whatever happens at once, an answer is one to who asks: by the same tenant, of the same model, under the
same system prompt, tools, format and API.

To the embedder all texts are alike and the policy serves any similarity, so nothing but identity parts the
requests. The backend answers with the fingerprint of what it was asked.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from policies import identity
from tests.cache_cases import EACH_STORE, indexed, kept, kept_in
from tests.fingerprints import MODEL_TABLES, TEXTS, Asker, ask, everybody, fingerprint, tell_fingerprints
from tests.gateway.admin_cases import administered, cache_of, invalidated, judged, listed
from tests.gateways import Running, told, until

WORKERS = 48
ANY_SIMILARITY = {"policy": {"kind": "static", "min_similarity": -1.0}}


@asynccontextmanager
async def serving_anything(store: str, folder: Path, **changes: Any) -> AsyncIterator[Running]:
    cache = kept_in(store, folder, **ANY_SIMILARITY, **changes)
    patient = {"deadline_ms": 10_000}  # lest a busy machine pass the cache by
    async with administered(**MODEL_TABLES, cache=cache, embeddings=patient) as test:
        tell_fingerprints(test)
        yield test


class FakeDelays(asyncio.Event):
    """Chunks come after none, a short or a longer while."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def wait(self) -> Any:
        await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.001, 0.004)))


@dataclass(slots=True)
class Load:
    """Many ask at once. `kinds` counts the replies: by header, and by whether similarity was in it."""

    test: Running
    chance: random.Random
    askers: list[Asker]
    headers: list[Mapping[str, str]] = field(default_factory=lambda: [{}])
    churn: bool = False
    kinds: Counter[str] = field(default_factory=Counter)
    replies: list[httpx.Response] = field(default_factory=list)

    async def run(self, requests: int) -> Counter[str]:
        turns = iter(range(requests))

        async def work() -> None:
            for _ in turns:
                if self.churn and self.chance.random() < 0.2:
                    await self._disturb()
                await self._ask()

        self.test.backend.gate = FakeDelays(self.chance)
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(work())
        self.test.backend.gate = None
        return self.kinds

    async def _ask(self) -> None:
        chance = self.chance
        asker, text = chance.choice(self.askers), chance.choice(TEXTS)
        headers = chance.choice(self.headers)
        reply = await ask(self.test, asker, text, stream=chance.random() < 0.5, headers=headers)
        if reply.status_code == 504:
            self.kinds["refused"] += 1
            return
        by_similarity = cache_of(reply) == "coalesced" and "x-lockgate-similarity" in reply.headers
        self.kinds[cache_of(reply) + " by similarity" * by_similarity] += 1
        self.replies.append(reply)

    async def _disturb(self) -> None:
        """Entries are invalidated, deleted, judged and swept."""
        test, chance = self.test, self.chance
        reply = chance.choice(self.replies) if self.replies else None
        match chance.randrange(6):
            case 0:
                await invalidated(test, text=chance.choice(TEXTS)[:8])
            case 1:
                await invalidated(
                    test, **chance.choice([{"tag": "t"}, {"model": "one"}, {"api": "messages"}])
                )
            case 2 if reply is not None:
                await judged(test, request_id=reply.headers["x-request-id"], correct=False)
            case 3 if reply is not None and "x-lockgate-entry" in reply.headers:
                await test.http.delete(f"/admin/entries/{reply.headers['x-lockgate-entry']}")
            case 4:
                assert test.gateway.cache is not None
                await test.gateway.cache.sweep(test.gateway.clock())
            case 5 if chance.random() < 0.2:
                await invalidated(test, all=True)


@EACH_STORE
async def test_every_reply_is_the_askers_own(store: str, tmp_path: Path) -> None:
    async with serving_anything(store, tmp_path) as test:
        kinds = await Load(test, random.Random(11), everybody()).run(1000)
        assert kinds.keys() == {"miss", "hit-exact", "hit-semantic", "coalesced", "coalesced by similarity"}
        assert min(kinds["hit-exact"], kinds["hit-semantic"]) > 50, kinds
        assert min(kinds["coalesced"], kinds["coalesced by similarity"]) > 0, kinds
        assert {fingerprint(call) for call in test.backend.calls} == {one.fingerprint for one in everybody()}
        assert await kept(test) == indexed(test) == kinds["miss"]


CHURNING: list[Mapping[str, str]] = [
    {},
    {},
    {"x-lockgate-ttl-s": "0.004"},
    {"x-lockgate-ttl-s": "0.03", "x-lockgate-tag": "t"},
    {"x-lockgate-tag": "t"},
    {"cache-control": "no-cache"},
    {"cache-control": "no-store"},
    {"cache-control": "only-if-cached"},
    {"cache-control": "max-age=0"},
]


@EACH_STORE
async def test_every_reply_is_the_askers_own_while_entries_come_and_go(store: str, tmp_path: Path) -> None:
    """Invalidated, deleted, judged wrong, expired, replaced and evicted, all at once."""
    async with serving_anything(store, tmp_path, max_entries=16) as test:
        askers = [
            asker
            for asker in everybody()
            if asker.model != "auto" and (asker.tenant == "ann" or not (asker.tool or asker.format))
        ]
        kinds = await Load(test, random.Random(12), askers, headers=CHURNING, churn=True).run(1000)
        served = (
            "hit-exact",
            "hit-semantic",
            "coalesced",
            "coalesced by similarity",
            "refused",
            "bypass",
            "miss",
        )
        assert min(kinds[kind] for kind in served) > 0, kinds
        assert test.gateway.cache is not None
        await test.gateway.cache.sweep(test.gateway.clock() + 60)  # none expires between here and there
        left = await listed(test, limit=500)
        assert len(left) <= 16
        assert indexed(test) == sum(entry["semantic"] for entry in left)


def collide(monkeypatch: pytest.MonkeyPatch, *purposes: bytes) -> None:
    """From now on these hashes are one for all requests."""
    keyed = identity._keyed

    def constant(canonical: bytes, secret: bytes, size: int, purpose: bytes) -> bytes:
        return bytes(size) if purpose in purposes else keyed(canonical, secret, size, purpose)

    monkeypatch.setattr(identity, "_keyed", constant)


PARTITION, EXACT_KEY = b"lockgate-near", b"lockgate-exact"
ANN = Asker(tenant="ann", api="chat", model="one")
OTHERS = {
    "tenant": replace(ANN, tenant="bob"),
    "api": replace(ANN, api="messages"),
    "model": replace(ANN, model="two"),
}
EACH_OTHER = pytest.mark.parametrize("other", OTHERS)


@EACH_STORE
async def test_with_one_partition_for_all_equal_requests_get_their_own_answers(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exact key parts what the partition no longer does."""
    collide(monkeypatch, PARTITION)
    async with serving_anything(store, tmp_path) as test:
        for asker in everybody():
            await ask(test, asker, TEXTS[0], headers={"cache-control": "no-cache"})
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(test, asker, TEXTS[0], stream=True)) for asker in everybody()]
        assert {cache_of(task.result()) for task in asked} == {"hit-exact"}


@EACH_STORE
@EACH_OTHER
async def test_with_one_partition_for_all_no_answer_crosses_tenant_api_or_model(
    store: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collide(monkeypatch, PARTITION)
    async with serving_anything(store, tmp_path) as test:
        await ask(test, ANN, TEXTS[0])
        assert cache_of(await ask(test, ANN, TEXTS[1])) == "hit-semantic", "else this shows nothing"
        assert cache_of(await ask(test, OTHERS[other], TEXTS[2])) == "miss"


@EACH_STORE
@EACH_OTHER
async def test_with_one_key_for_all_no_answer_crosses_tenant_api_or_model(
    store: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collide(monkeypatch, PARTITION, EXACT_KEY)
    async with serving_anything(store, tmp_path) as test:
        await ask(test, ANN, TEXTS[0])
        assert cache_of(await ask(test, ANN, TEXTS[1])) == "hit-exact", "else this shows nothing"
        assert cache_of(await ask(test, OTHERS[other], TEXTS[2])) == "miss"


@EACH_OTHER
@pytest.mark.parametrize(
    "hashes", [(PARTITION,), (PARTITION, EXACT_KEY)], ids=["partition", "partition and key"]
)
async def test_with_one_hash_for_all_no_call_in_flight_crosses_tenant_api_or_model(
    hashes: tuple[bytes, ...], other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collide(monkeypatch, *hashes)
    async with serving_anything("memory", tmp_path) as test:
        test.backend.gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            askers = (ANN, ANN, OTHERS[other])
            asked = [
                group.create_task(ask(test, asker, text)) for asker, text in zip(askers, TEXTS, strict=False)
            ]
            await until(lambda: test.followers == 3)
            test.backend.gate.set()
        assert [cache_of(task.result()) for task in asked] == ["miss", "coalesced", "miss"]


async def test_with_one_key_for_all_personal_data_stays_with_its_tenant_where_everyone_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collide(monkeypatch, EXACT_KEY)
    mine = "write to jane.doe@example.com about it"
    async with serving_anything("memory", tmp_path, share="everyone") as test:
        await ask(test, ANN, mine)
        assert cache_of(await ask(test, ANN, mine)) == "hit-exact", "else this shows nothing"
        assert cache_of(await ask(test, OTHERS["tenant"], mine)) == "miss"


async def test_where_everyone_shares_the_tenant_of_an_entry_does_not_matter(tmp_path: Path) -> None:
    async with serving_anything("memory", tmp_path, share="everyone") as test:
        await ask(test, ANN, TEXTS[0])
        for text, kind in zip(TEXTS, ("hit-exact", "hit-semantic"), strict=False):
            hit = await test.ask(key="bob", **ANN.body(text, stream=False))
            assert (cache_of(hit), told(hit)) == (kind, ANN.fingerprint)
