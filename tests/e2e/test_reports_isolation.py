"""What users of semantic caches report of answers that reach whom they are not for: one test for each report.

Most have an embedder to which all texts are alike, so that similarity parts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from policies.types import Api
from tests.cache_cases import (
    EACH_STORE,
    PATHS,
    alike,
    give_vectors,
    kept_in,
    question,
    serving_from,
    vector_at,
)
from tests.gateway.admin_cases import administered, cache_of, ids_of, invalidated, judged, listed
from tests.gateways import Running, running, told, until

ONLY_IF_CACHED = {"cache-control": "only-if-cached"}
NO_STORE = {"cache-control": "no-store"}
OFFICE, OFFICE_REWORDED = "where is the office?", "where do I find the office?"


def keys(**teams: str) -> dict[str, Any]:
    """The [auth] table: by key, the team whose it is."""
    tables = {
        key: {"sha256": sha256(key.encode()).hexdigest(), "tenant": team} for key, team in teams.items()
    }
    return {"mode": "keys", "keys": tables}


async def test_no_cross_team_reuse() -> None:
    async with running(auth=keys(ann="red", amy="red", bob="blue")) as test:
        give_vectors(test, alike)
        assert cache_of(await test.ask(OFFICE, key="ann")) == "miss"
        for text in (OFFICE, OFFICE_REWORDED):
            assert (await test.ask(text, key="bob", headers=ONLY_IF_CACHED)).status_code == 504
            assert told(await test.ask(text, key="amy", headers=ONLY_IF_CACHED)) == "answer 1"


async def test_no_cross_team_reuse_of_an_answer_on_its_way() -> None:
    async with running(auth=keys(ann="red", amy="red", bob="blue")) as test:
        give_vectors(test, alike)
        test.backend.gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(test.ask(OFFICE, key=key)) for key in ("ann", "bob", "amy")]
            await until(lambda: test.followers == 3)
            test.backend.gate.set()
        ann, bob, amy = [task.result() for task in asked]
        assert [cache_of(reply) for reply in (ann, bob, amy)] == ["miss", "miss", "coalesced"]
        assert told(ann) == told(amy) != told(bob)


NAMESPACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "field": lambda name: {"namespace": name},
    "field within a field": lambda name: {"cache": {"namespace": name}},
    "header": lambda name: {"headers": {"x-namespace": name}},
}


@pytest.mark.parametrize("where", NAMESPACES)
async def test_the_namespace_is_not_ignored(where: str) -> None:
    async with running(server={"forward_headers": ["x-namespace"]}) as test:
        give_vectors(test, alike)
        law, sales = NAMESPACES[where]("law"), NAMESPACES[where]("sales")
        assert cache_of(await test.ask(OFFICE, **law)) == "miss"
        assert cache_of(await test.ask(OFFICE_REWORDED, **law)) == "hit-semantic"
        assert cache_of(await test.ask(OFFICE, **sales)) == "miss"
        assert told(await test.ask(OFFICE_REWORDED, **sales)) == "answer 2"


async def test_a_prefix_inside_the_text_is_no_boundary_but_tenant_and_system_prompt_are() -> None:
    async with running() as test:
        give_vectors(test, lambda text: vector_at(0.9085 if "globex" in text else 1.0))
        acme, globex = "acme: where is the office?", "globex: where is the office?"
        assert cache_of(await test.ask(acme, key="acme")) == "miss"
        leak = await test.ask(globex, key="acme", headers=ONLY_IF_CACHED)
        assert leak.headers["x-lockgate-similarity"] == "0.9085", "else this shows nothing"
        assert cache_of(await test.ask(globex, key="globex")) == "miss"
    async with running() as test:
        give_vectors(test, alike)
        for text, tenant in ((OFFICE, "acme"), (OFFICE_REWORDED, "globex")):
            asked = question("chat", text, system=f"You answer for {tenant}.")
            assert cache_of(await test.ask(**asked)) == "miss"


async def test_the_isolation_key_does_not_include_the_prompt() -> None:
    """Nor what is new with each request: nothing would ever hit."""
    async with running() as test:
        texts = ("sky why is it blue?", "sky what makes it blue?", "sky why so blue?")
        for number, text in enumerate(texts):
            history = [("user", "hi"), ("assistant", "Yes?")]
            response = await test.ask(
                **question("chat", text, system="You are brief.", before=history),
                tools=[{"type": "function", "function": {"name": "look_up"}}],
                user=f"user {number}",
                metadata={"request": str(number)},
                headers={"traceparent": f"00-{1:032x}-{number + 1:016x}-01", "x-request-id": f"r{number}"},
            )
            assert cache_of(response) == ("hit-semantic" if number else "miss")


RETRIEVED: dict[str, Callable[[str, str], tuple[Api, dict[str, Any]]]] = {
    "chat, system": lambda document, text: ("chat", question("chat", text, system=document)),
    "chat, earlier turn": lambda document, text: (
        "chat",
        question("chat", text, system="Answer from the documents.", before=[("user", document)]),
    ),
    "messages, system": lambda document, text: ("messages", question("messages", text, system=document)),
    "messages, earlier turn": lambda document, text: (
        "messages",
        question("messages", text, before=[("user", document), ("assistant", "I have read it.")]),
    ),
    "responses, instructions": lambda document, text: (
        "responses",
        question("responses", text, system=document),
    ),
    "responses, earlier item": lambda document, text: (
        "responses",
        question("responses", text, before=[("developer", document)]),
    ),
}


@pytest.mark.parametrize("where", RETRIEVED)
async def test_rag_answers_are_not_shared(where: str) -> None:
    async with running() as test:
        give_vectors(test, alike)

        async def ask(about: str, text: str) -> str:
            api, body = RETRIEVED[where](f"Document: the contract of {about} ends in spring.", text)
            fields = {"model": "small", **body}
            response = await test.http.post(PATHS[api], json=fields, headers={"authorization": "Bearer k"})
            assert response.status_code == 200, response.text
            return cache_of(response)

        assert await ask("Smith", "when does it end?") == "miss"
        assert await ask("Smith", "when is the end of it?") == "hit-semantic", "else this shows nothing"
        assert await ask("Jones", "when is the end of it?") == "miss"
        assert await ask("Jones", "when does it end?") == "hit-semantic"
        assert ["Smith" in str(call.body["messages"]) for call in test.backend.calls] == [True, False]


PROMPT = (
    "Answer from this context only. Context: The employment contract of Keller is governed by the law of the"
    " country of work. The notice period is described in the handbook, and holidays are granted as usual. The"
    " employee receives the equipment that the job needs, keeps it in good order, and returns it on leaving."
    " Expenses are refunded on proof. Side jobs need consent. The salary is {}. Changes need the written"
    " form. Question: what is the salary?"
)


async def test_rag_answers_are_not_shared_where_the_documents_are_in_the_question() -> None:
    """The cosine of these two is .991 by the default embedder (multilingual-e5-small, int8), whose "auto"
    serves from .975 on; by all-MiniLM-L6-v2 .989 and .96."""
    async with running(cache=serving_from(0.975)) as test:
        give_vectors(test, lambda text: vector_at(0.991 if "monthly" in text else 1.0))
        for paid in ("paid weekly", "paid monthly"):
            assert cache_of(await test.ask(PROMPT.format(paid))) == "miss"


async def test_rag_answers_from_what_a_tool_found_are_not_shared() -> None:
    async with running() as test:
        give_vectors(test, alike)
        call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        for found, kind in (("Smith's", "miss"), ("Jones's", "miss"), ("Smith's", "hit-exact")):
            messages = [
                {"role": "user", "content": "when does the contract end?"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": f"{found} contract ends in spring."},
            ]
            assert cache_of(await test.ask(messages=messages)) == kind


@EACH_STORE
async def test_filters_are_not_ignored_on_write(store: str, tmp_path: Path) -> None:
    async with administered(cache=kept_in(store, tmp_path)) as test:
        give_vectors(test, alike)
        for key, region in (("ann", "eu"), ("bob", "us")):
            tag = {"x-lockgate-tag": f"of-{key}"}
            stored = await test.ask(OFFICE, key=key, filters={"region": region}, headers=tag)
            assert cache_of(stored) == "miss"
        bobs, anns = await listed(test)
        assert (bobs["tags"], anns["tags"]) == (["of-bob"], ["of-ann"])
        assert ids_of(await listed(test, tenant=anns["tenant"])) == [anns["id"]]
        for region, kind in (("eu", "hit-semantic"), ("us", "miss")):
            asked = await test.ask(OFFICE_REWORDED, key="ann", filters={"region": region}, headers=NO_STORE)
            assert cache_of(asked) == kind
        assert (await invalidated(test, tenant=anns["tenant"], tag="of-bob"))["removed"] == 0
        assert (await invalidated(test, tenant=anns["tenant"], tag="of-ann"))["removed"] == 1
        assert ids_of(await listed(test)) == [bobs["id"]]


PROBES: tuple[dict[str, str], ...] = (
    ONLY_IF_CACHED,
    {"cache-control": "only-if-cached, max-age=60"},
    NO_STORE,
    {},
)
SECRET = "secret: do we merge with Initech?"
PROBED = (SECRET, "secret: will we merge with Initech?", "holiday: is there one in spring?")
"""What the victim asked, the same in other words, and what nobody has asked."""


@pytest.mark.parametrize("probe", PROBES, ids=str)
async def test_an_attacker_probing_what_others_asked_learns_nothing(
    probe: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither from what the replies say nor from what they take: the same reads, which find nothing."""
    async with administered() as test:
        victims = await test.ask(SECRET, key="victim")
        before = await listed(test)
        reads = _noted_reads(test, monkeypatch)
        seen = []
        for text in PROBED:
            reads.clear()
            reply = await test.ask(text, key=f"attacker, with {text}", headers=probe)
            seen.append((_visible(reply), list(reads)))
        assert seen[0] == seen[1] == seen[2]
        assert not any(found for _, found in seen[0][1])
        after = {entry["id"]: entry for entry in await listed(test)}
        for entry in before:
            assert after[entry["id"]] | {"age_s": 0} == entry | {"age_s": 0}, "a probe counts as no use"
        again = await test.ask(SECRET, key="victim")
        assert told(again) == told(victims)


@pytest.mark.parametrize("probe", PROBES, ids=str)
async def test_an_attacker_probing_what_others_are_asking_learns_nothing(probe: dict[str, str]) -> None:
    async with running() as test:
        test.backend.gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            victims = group.create_task(test.ask(SECRET, key="victim"))
            await until(lambda: len(test.backend.calls) == 1)
            asked = [test.ask(text, key="attacker", headers=probe) for text in PROBED[::2]]
            probing = [group.create_task(asking) for asking in asked]
            if probe in (NO_STORE, {}):
                await until(lambda: len(test.backend.calls) == 3)
            test.backend.gate.set()
        assert _visible(probing[0].result()) == _visible(probing[1].result())
        assert told(victims.result()) == "answer 1"


async def test_an_attacker_cannot_name_the_request_of_another() -> None:
    """Ids of requests and entries are no way in: they are the operator's alone."""
    async with running(server={"admin_token": "t0ken"}) as test:
        asked = await test.ask(SECRET, key="victim", headers={"x-request-id": "of-the-victim"})
        test.http.headers["authorization"] = "Bearer attacker"
        for path in ("/admin/entries", "/admin/entries/1", "/admin/stats"):
            assert (await test.http.get(path)).status_code in (401, 403)
        assert (await judged(test, request_id="of-the-victim", correct=False)).status_code in (401, 403)
        mine = await test.ask(SECRET, key="attacker", headers={"x-request-id": "of-the-victim"})
        assert (cache_of(asked), cache_of(mine)) == ("miss", "miss")


def _noted_reads(test: Running, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Fills with what is read of the cache from now on, and whether anything was found."""
    reads: list[tuple[str, bool]] = []
    for name in ("find", "get", "search"):
        original = getattr(test.gateway.cache, name)

        async def noted(*args: Any, name: str = name, original: Any = original) -> Any:
            found = await original(*args)
            reads.append((name, bool(found)))
            return found

        monkeypatch.setattr(test.gateway.cache, name, noted)
    return reads


_NEW_WITH_EACH_REQUEST = {"x-request-id", "server-timing", "x-lockgate-attempts", "x-lockgate-route-reason"}


def _visible(response: httpx.Response) -> Any:
    """What a client can tell two replies apart by, but for what differs with each request and question."""
    headers = {name: value for name, value in response.headers.items() if name not in _NEW_WITH_EACH_REQUEST}
    stages = [stage.partition(";")[0] for stage in response.headers.get("server-timing", "").split(", ")]
    error = response.json().get("error")
    return response.status_code, headers, stages, error
