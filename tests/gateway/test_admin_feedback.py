"""`POST /admin/feedback`, through the whole application."""

from __future__ import annotations

from tests.gateway.admin_cases import administered, cache_of, judged, listed
from tests.gateways import told


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
