"""`/admin/entries`, and what all paths over the cache's entries have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from embeddings.protocols import EmbedderError, StoreError
from tests.entries import make_entry
from tests.gateway.admin_cases import administered, cache_of, ids_of, invalidated, judged, listed

OFF = {"cache": {"enabled": False}}
_VARYING = ("id", "tenant", "created_at", "expires_at", "age_s", "last_used_at", "stored_bytes", "cost_usd")


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
        assert [entry["text"] for entry in seen] == [
            f"topic{number} what is it?" for number in reversed(range(120))
        ]
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
