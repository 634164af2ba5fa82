"""`POST /admin/invalidate`, through the whole application."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.admin_entries import REMOVED_AT_ONCE
from tests.entries import make_entry
from tests.gateway.admin_cases import administered, cache_of, ids_of, invalidated, listed

EXACT = {"cache": {"store": "memory", "policy": {"kind": "exact"}}}


async def test_invalidation_by_each_criterion_touches_nothing_else() -> None:
    async with administered() as test:
        for key in ("k", "other"):
            for topic in ("sky", "sea", "sun"):
                headers = {"x-lockgate-tag": f"about-{topic}"}
                await test.ask(f"{topic} what is it?", key=key, headers=headers)
        await test.ask("sky what is it?", model="large")
        tenant = (await listed(test, model="auto"))[-1]["tenant"]
        left = 7
        for criteria, matched in (
            ({"tag": "about-sea", "tenant": tenant}, 1),
            ({"text": "SEA"}, 1),
            ({"model": "large"}, 1),
            ({"tenant": tenant}, 2),
            ({"api": "messages"}, 0),
            ({"api": "chat", "tag": None}, 2),
        ):
            tried = await invalidated(test, **criteria, dry_run=True)
            assert (tried["matched"], tried["removed"], tried["dry_run"]) == (matched, 0, True)
            assert len(await listed(test)) == left
            done = await invalidated(test, **criteria)
            left -= matched
            assert (done["matched"], done["removed"], done["dry_run"]) == (matched, matched, False)
            assert done["sample"] == tried["sample"]
            assert len(await listed(test)) == left
        assert left == 0


async def test_another_tenants_answers_stay() -> None:
    async with administered() as test:
        await test.ask("sky why is it blue?", key="mine")
        await test.ask("sky why is it blue?", key="theirs")
        theirs, mine = await listed(test)
        await invalidated(test, tenant=mine["tenant"])
        assert ids_of(await listed(test)) == [theirs["id"]]
        assert cache_of(await test.ask("sky why is it blue?", key="theirs")) == "hit-exact"
        assert cache_of(await test.ask("sky why is it so blue?", key="theirs")) == "hit-semantic"
        assert cache_of(await test.ask("sky why is it blue?", key="mine")) == "miss"


async def test_all_removes_everything_and_must_be_said() -> None:
    async with administered() as test:
        for topic in ("sky", "sea"):
            await test.ask(f"{topic} what is it?")
        refused = await test.http.post("/admin/invalidate", json={})
        assert refused.status_code == 400
        assert '"all": true' in refused.json()["error"]["message"]
        done = await invalidated(test, all=True)
        assert (done["matched"], done["removed"]) == (2, 2)
        assert await listed(test) == []


async def test_invalidation_by_similarity() -> None:
    async with administered() as test:
        for text in ("sky why is it blue?", "sky how high is it?", "sea why is it salty?"):
            await test.ask(text)
            await test.ask(text, key="other")
        await test.ask("sky", logprobs=True)  # without a vector
        tried = await invalidated(test, similar_to="sky why is it blue?", dry_run=True)
        assert (tried["matched"], tried["removed"]) == (4, 0)
        sample = tried["sample"]
        assert {one["text"] for one in sample[:2]} == {"sky why is it blue?"}
        assert sample[0]["similarity"] == pytest.approx(1, abs=1e-3)
        assert [one["similarity"] for one in sample] == sorted(
            (one["similarity"] for one in sample), reverse=True
        )
        tenant = (await listed(test))[0]["tenant"]
        one = await invalidated(test, similar_to="sky why is it blue?", tenant=tenant, min_similarity=0.9999)
        assert (one["matched"], one["removed"]) == (1, 1)
        assert cache_of(await test.ask("sky why is it blue?", key="other")) == "hit-exact"
        assert (await invalidated(test, similar_to="sky what is it?"))["removed"] == 3
        assert [(entry["text"], entry["semantic"]) for entry in await listed(test, text="sky")] == []
        assert (await invalidated(test, similar_to="moon", min_similarity=-1))["removed"] == 2


async def test_similarity_needs_an_embedder_that_sees_the_whole_text() -> None:
    async with administered() as test:
        for text in ("word " * 60, "x" * 50_001):
            refused = await test.http.post("/admin/invalidate", json={"similar_to": text})
            assert refused.status_code == 400
            assert refused.json()["error"]["param"] == "similar_to"
            assert "window" in refused.json()["error"]["message"]
    async with administered(**EXACT) as test:
        refused = await test.http.post("/admin/invalidate", json={"similar_to": "sky"})
        assert refused.status_code == 400
        assert "exact key only" in refused.json()["error"]["message"]


async def test_an_embedder_nothing_was_measured_for_needs_a_min_similarity() -> None:
    automatic = {"store": "memory", "policy": {"kind": "static", "min_similarity": 0.9}}
    async with administered(cache=automatic) as test:
        await test.ask()
        object.__setattr__(test.gateway.settings.cache.policy, "min_similarity", "auto")
        refused = await test.http.post("/admin/invalidate", json={"similar_to": "sky"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "min_similarity")
        assert (await invalidated(test, similar_to="sky", min_similarity=0.9))["removed"] == 1


async def test_many_entries_go_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    async with administered() as test:
        cache = test.gateway.cache
        assert cache is not None
        now = test.gateway.clock()
        for number in range(2 * REMOVED_AT_ONCE + 1):
            await cache.put(make_entry(f"question {number}", created_at=now, semantic=False))
        sizes: list[int] = []
        remove = cache.remove

        async def counted(ids: Sequence[int]) -> int:
            sizes.append(len(ids))
            return await remove(ids)

        monkeypatch.setattr(cache, "remove", counted)
        done = await invalidated(test, tenant="tenant")
        assert done["removed"] == 2 * REMOVED_AT_ONCE + 1
        assert sizes == [REMOVED_AT_ONCE, REMOVED_AT_ONCE, 1]
        assert len(done["sample"]) == 20
        assert (await cache.size()).entries == 0
