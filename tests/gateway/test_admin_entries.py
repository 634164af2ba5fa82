"""The admin API over the cache's entries, through the whole application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from embeddings.protocols import EmbedderError, StoreError
from gateway.admin_entries import REMOVED_AT_ONCE
from tests.entries import make_entry
from tests.gateways import Running, running, told

EXACT = {"cache": {"store": "memory", "policy": {"kind": "exact"}}}
OFF = {"cache": {"enabled": False}}


@asynccontextmanager
async def administered(**settings: Any) -> AsyncIterator[Running]:
    async with running(**settings) as test:
        test.http.base_url = httpx.URL("http://localhost")
        yield test


async def listed(test: Running, **query: Any) -> list[dict[str, Any]]:
    answer = await test.http.get("/admin/entries", params=query)
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["entries"]
    return entries


async def invalidated(test: Running, **body: Any) -> dict[str, Any]:
    answer = await test.http.post("/admin/invalidate", json=body)
    assert answer.status_code == 200, answer.text
    done: dict[str, Any] = answer.json()
    return done


async def judged(test: Running, **body: Any) -> httpx.Response:
    return await test.http.post("/admin/feedback", json=body)


def cache_of(response: httpx.Response) -> str:
    status: str = response.headers["x-lockgate-cache"]
    return status


def texts(entries: Sequence[dict[str, Any]]) -> list[str]:
    return [entry["text"] for entry in entries]


async def test_pages_have_every_entry_once_while_others_are_added() -> None:
    async with administered() as test:
        for number in range(120):
            await test.ask(f"topic{number} what is it?")
        seen: list[dict[str, Any]] = []
        before: int | None = None
        pages = 0
        while True:
            query = {"limit": 25} if before is None else {"limit": 25, "before": before}
            page = (await test.http.get("/admin/entries", params=query)).json()
            seen += page["entries"]
            pages += 1
            before = page["next"]
            if before is None:
                break
            await test.ask(f"later{pages} what is it?")
        assert texts(seen) == [f"topic{number} what is it?" for number in reversed(range(120))]
        ids = [entry["id"] for entry in seen]
        assert ids == sorted(set(ids), reverse=True)
        assert pages == 5
        assert len(await listed(test)) == 50
        assert len(await listed(test, limit=500)) == 124


async def test_a_last_page_that_is_full_has_no_next_one() -> None:
    async with administered() as test:
        for number in range(4):
            await test.ask(f"topic{number} what is it?")
        page = (await test.http.get("/admin/entries", params={"limit": 4})).json()
        assert (len(page["entries"]), page["next"]) == (4, None)


async def test_an_entry_tells_what_it_is_and_what_became_of_it() -> None:
    async with administered() as test:
        asked = await test.ask("sky why is it blue?", headers={"x-lockgate-tag": "faq, v2"}, seed=7)
        for _ in range(2):
            assert cache_of(await test.ask("sky why is it blue?", seed=7)) == "hit-exact"
        (entry,) = await listed(test)
        now = test.gateway.clock()
        assert entry["created_at"] == pytest.approx(now, abs=30)
        assert entry["expires_at"] == pytest.approx(entry["created_at"] + 86_400)
        assert 0 <= entry["age_s"] < 30
        assert entry["last_used_at"] >= entry["created_at"]
        assert entry["stored_bytes"] > 300
        assert entry["tenant"]
        assert {name: entry[name] for name in entry if name not in _VARYING} == {
            "api": "chat",
            "model": "auto",
            "answered_by": asked.headers["x-lockgate-model"],
            "tags": ["faq", "v2"],
            "text": "sky why is it blue?",
            "semantic": True,
            "hits": 2,
            "judged_right": 0,
            "judged_wrong": 0,
            "prompt_tokens": 11,
            "completion_tokens": 3,
        }
        one = (await test.http.get(f"/admin/entries/{entry['id']}")).json()
        assert {name: one[name] for name in entry if name != "age_s"} == {
            name: entry[name] for name in entry if name != "age_s"
        }
        assert one.keys() - entry.keys() == {"request", "answer"}
        assert one["answer"]["choices"][0]["message"]["content"] == "answer 1"
        request = one["request"]
        assert (request["api"], request["model"], request["route_pin"]) == ("chat", "auto", None)
        assert request["body"]["messages"] == [{"role": "user", "content": "sky why is it blue?"}]
        assert request["body"]["seed"] == 7
        assert (await listed(test))[0]["hits"] == 2, "to look at an entry is not to serve it"


_VARYING = ("id", "tenant", "created_at", "expires_at", "age_s", "last_used_at", "stored_bytes", "cost_usd")


async def test_an_entry_without_what_was_asked_is_shown_all_the_same() -> None:
    async with administered() as test:
        assert test.gateway.cache is not None
        entry = make_entry("old", created_at=test.gateway.clock(), semantic=False)
        entry_id = await test.gateway.cache.put(replace(entry, request=b""))
        one = (await test.http.get(f"/admin/entries/{entry_id}")).json()
        assert (one["request"], one["text"], one["semantic"]) == (None, None, False)


async def test_filters() -> None:
    async with administered() as test:
        await test.ask("sky why is it blue?", headers={"x-lockgate-tag": "faq"})
        await test.ask("Sea why is it salty?", key="other", model="large")
        await test.http.post("/v1/embeddings", json={"model": "lockgate-embedding", "input": "x"})
        embeddings, sea, sky = await listed(test)
        for query, found in (
            ({"tenant": sky["tenant"]}, [sky]),
            ({"tenant": "nobody"}, []),
            ({"api": "embeddings"}, [embeddings]),
            ({"model": "auto"}, [sky]),
            (
                {"model": "fake-large"},
                [entry for entry in (sea, sky) if entry["answered_by"] == "fake-large"],
            ),
            ({"tag": "faq"}, [sky]),
            ({"tag": "fa"}, []),
            ({"text": "sEa WHY"}, [sea]),
            ({"text": "%"}, []),
            ({"text": "why", "api": "chat"}, [sea, sky]),
            ({"text": "why", "tag": "faq"}, [sky]),
            ({"before": sky["id"]}, []),
        ):
            assert ids_of(await listed(test, **query)) == ids_of(found), query


def ids_of(entries: Sequence[dict[str, Any]]) -> list[int]:
    return [entry["id"] for entry in entries]


async def test_an_entry_that_is_removed_is_not_served_again() -> None:
    async with administered() as test:
        await test.ask()
        (entry,) = await listed(test)
        path = f"/admin/entries/{entry['id']}"
        assert (await test.http.delete(path)).json() == {"removed": 1}
        for method in ("GET", "DELETE"):
            gone = await test.http.request(method, path)
            assert gone.status_code == 404
            assert str(entry["id"]) in gone.json()["error"]["message"]
        assert cache_of(await test.ask()) == "miss"


@pytest.mark.parametrize("name", ["0", "-1", "x", "1.0", "٣", str(2**63), "9" * 400])
async def test_what_is_no_id_is_no_entry(name: str) -> None:
    async with administered() as test:
        for method in ("GET", "DELETE"):
            assert (await test.http.request(method, f"/admin/entries/{name}")).status_code == 404


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
    automatic = {"store": "memory", "policy": {"min_similarity": 0.9}}
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


async def test_a_wrong_answer_by_similarity_is_served_by_exact_match_only() -> None:
    async with administered() as test:
        await test.ask("sky why is it blue?")
        near = await test.ask("sky why is it so blue?")
        assert cache_of(near) == "hit-semantic"
        assert cache_of(await test.ask("sky why is it blue?", key="other")) == "miss"
        answer = await judged(test, request_id=near.headers["x-request-id"], correct=False)
        entry_id = int(near.headers["x-lockgate-entry"])
        assert answer.json() == {"entry": entry_id, "action": "withdrawn"}
        again = await test.ask("sky why is it so blue?")
        assert cache_of(again) == "miss"
        assert told(again) != told(near)
        assert cache_of(await test.ask("sky why is it blue?")) == "hit-exact"
        other = await test.ask("sky why is it so blue?", key="other")
        assert cache_of(other) == "hit-semantic", "another tenant's entry is untouched"
        entry = (await test.http.get(f"/admin/entries/{entry_id}")).json()
        assert (entry["semantic"], entry["judged_wrong"], entry["judged_right"]) == (False, 1, 0)
        text = (await test.http.get("/metrics")).text
        assert "lockgate_cache_verified_total 1.0" in text
        assert "lockgate_cache_wrong_total 1.0" in text


async def test_a_wrong_answer_by_exact_match_is_removed() -> None:
    async with administered() as test:
        first = await test.ask()
        hit = await test.ask()
        assert cache_of(hit) == "hit-exact"
        answer = await judged(test, request_id=hit.headers["x-request-id"], correct=False)
        assert answer.json()["action"] == "removed"
        assert await listed(test) == []
        assert cache_of(await test.ask()) == "miss"
        gone = await judged(test, request_id=first.headers["x-request-id"], correct=True)
        assert gone.status_code == 404
        text = (await test.http.get("/metrics")).text
        assert "lockgate_cache_verified_total 1.0" in text, "what is not there is not judged"


async def test_the_request_that_stored_an_answer_can_be_judged() -> None:
    async with administered() as test:
        first = await test.ask()
        answer = await judged(test, request_id=first.headers["x-request-id"], correct=False)
        assert answer.json()["action"] == "removed"
        assert cache_of(await test.ask()) == "miss"


async def test_a_right_answer_is_noted_and_stays() -> None:
    async with administered() as test:
        await test.ask()
        (entry,) = await listed(test)
        answer = await judged(test, entry=entry["id"], correct=True)
        assert answer.json() == {"entry": entry["id"], "action": "noted"}
        assert (await listed(test))[0]["judged_right"] == 1
        assert cache_of(await test.ask()) == "hit-exact"
        assert "lockgate_cache_wrong_total 0.0" in (await test.http.get("/metrics")).text


async def test_an_entry_that_is_wrong_is_removed() -> None:
    async with administered() as test:
        await test.ask()
        (entry,) = await listed(test)
        assert (await judged(test, entry=entry["id"], correct=False)).json()["action"] == "removed"
        assert await listed(test) == []


async def test_feedback_on_what_is_not_known() -> None:
    async with administered() as test:
        for body in ({"entry": 9}, {"request_id": "req_nope"}):
            answer = await judged(test, **body, correct=True)
            assert answer.status_code == 404
            assert str(next(iter(body.values()))) in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("query", "param", "words"),
    [
        ("limit=0", "limit", "from 1 to 500, got '0'"),
        ("limit=501", "limit", "got '501'"),
        ("limit=ten", "limit", "got 'ten'"),
        ("limit=1e2", "limit", "got '1e2'"),
        ("limit=", "limit", "got ''"),
        ("before=-1", "before", "got '-1'"),
        ("before=9999999999999999999", "before", "got '9999999999999999999'"),
        ("api=chats", "api", "one of chat, completions, responses, messages, embeddings, got 'chats'"),
        ("tenant=", "tenant", "not empty"),
        ("text=", "text", "not empty"),
        ("page=2", "page", "one of the parameters tenant, api, model, tag, text, before, limit"),
        ("tag=a&tag=b", "tag", "got several"),
    ],
)
async def test_a_bad_query_is_named(query: str, param: str, words: str) -> None:
    async with administered() as test:
        answer = await test.http.get(f"/admin/entries?{query}")
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param)
        assert param in error["message"]
        assert words in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "param", "words"),
    [
        ("invalidate", b"", None, "JSON"),
        ("invalidate", b"[]", None, "object"),
        ("invalidate", b"{}", None, "at least one of tenant, api, model, tag, text, similar_to"),
        ("invalidate", b'{"dry_run":true}', None, "at least one"),
        ("invalidate", b'{"all":false,"tag":null}', None, "at least one"),
        ("invalidate", b'{"all":true,"tag":"x"}', "all", "no other criterion"),
        ("invalidate", b'{"all":"yes"}', "all", "`bool`"),
        ("invalidate", b'{"tags":"x"}', "tags", "one of the fields tenant"),
        ("invalidate", b'{"tag":""}', "tag", "length"),
        ("invalidate", b'{"tag":5}', "tag", "`str"),
        ("invalidate", b'{"api":"chats"}', "api", "one of chat, completions"),
        ("invalidate", b'{"similar_to":"  "}', "similar_to", "matching"),
        ("invalidate", b'{"similar_to":"x","min_similarity":1.5}', "min_similarity", "<= 1.0"),
        ("invalidate", b'{"similar_to":"x","min_similarity":"0.9"}', "min_similarity", "`float"),
        ("invalidate", b'{"tag":"x","min_similarity":0.9}', "min_similarity", "similar_to beside it"),
        ("invalidate", b'{"tag":"x","dry_run":1}', "dry_run", "`bool`"),
        ("feedback", b'{"entry":1}', "correct", "missing"),
        ("feedback", b'{"entry":1,"correct":"no"}', "correct", "`bool`"),
        ("feedback", b'{"correct":true}', "entry", "got neither"),
        ("feedback", b'{"entry":1,"request_id":"x","correct":true}', "entry", "got both"),
        ("feedback", b'{"entry":0,"correct":true}', "entry", ">= 1"),
        ("feedback", b'{"entry":"1","correct":true}', "entry", "`int"),
        ("feedback", b'{"request_id":"","correct":true}', "request_id", "length"),
        ("feedback", b'{"entry":1,"correct":true,"note":"x"}', "note", "one of the fields correct"),
    ],
)
async def test_a_bad_body_is_named(path: str, body: bytes, param: str | None, words: str) -> None:
    async with administered() as test:
        await test.ask()
        headers = {"content-type": "application/json; charset=utf-8"}
        answer = await test.http.post(f"/admin/{path}", content=body, headers=headers)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param)
        assert words in error["message"]
        assert len(await listed(test)) == 1


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with administered(server={"max_body_bytes": 1000}) as test:
        answer = await test.http.post("/admin/invalidate", json={"text": "x" * 2000})
        assert answer.status_code == 413


async def test_without_a_cache_there_is_nothing_to_administer() -> None:
    async with administered(**OFF) as test:
        for method, path, body in (
            ("GET", "entries", None),
            ("GET", "entries/1", None),
            ("DELETE", "entries/1", None),
            ("POST", "invalidate", {"all": True}),
            ("POST", "feedback", {"entry": 1, "correct": True}),
        ):
            answer = await test.http.request(method, f"/admin/{path}", json=body)
            assert answer.status_code == 409
            assert "cache.enabled" in answer.json()["error"]["message"]


async def test_a_store_or_an_embedder_that_fails_is_503_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: Any, **__: Any) -> Any:
        raise StoreError("the disk is full: make room")

    async def closed(_: str) -> Any:
        raise EmbedderError("the embedder is closed")

    async with administered() as test:
        monkeypatch.setattr(test.gateway.cache, "listed", full)
        monkeypatch.setattr(test.gateway.cache, "matching", full)
        monkeypatch.setattr(test.gateway.cache, "embed", closed)
        for answer, words in (
            (await test.http.get("/admin/entries"), "the disk is full: make room"),
            (await test.http.post("/admin/invalidate", json={"tag": "x"}), "the disk is full: make room"),
            (await test.http.post("/admin/invalidate", json={"similar_to": "x"}), "the embedder is closed"),
        ):
            assert answer.status_code == 503
            assert words in answer.json()["error"]["message"]


async def test_the_log_has_counts_and_no_texts() -> None:
    async with administered() as test:
        asked = await test.ask("sky secret words")
        with capture_logs() as lines:
            await test.http.get("/admin/entries", params={"text": "secret"})
            await invalidated(test, text="secret", tag="x")
            await invalidated(test, similar_to="sky secret", dry_run=True)
            await judged(test, request_id=asked.headers["x-request-id"], correct=False)
        admin = [line for line in lines if line["event"] == "admin"]
        common = {"event": "admin", "log_level": "info", "status": 200, "peer": "127.0.0.1"}
        post = {**common, "action": "POST /admin/invalidate"}
        assert admin == [
            {**common, "action": "GET /admin/entries", "returned": 1},
            {**post, "criteria": "tag, text", "matched": 0, "removed": 0, "dry_run": False},
            {**post, "criteria": "similar_to", "matched": 1, "removed": 0, "dry_run": True},
            {**common, "action": "POST /admin/feedback", "entry": 1, "correct": False, "outcome": "removed"},
        ]
        assert "secret" not in str(admin)
