"""What an answer is kept as: for how long, under which tags, for whom."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from embeddings.protocols import EntryFilter
from gateway.assembly import Gateway
from tests.gateways import SETTINGS, Running, running, told

FOREVER = 10.0**10


class FakeClock:
    """Seconds from the gateway's own clock on; `pass_` lets time go by."""

    def __init__(self, gateway: Gateway) -> None:
        self._offset = 0.0
        self._now = gateway.clock
        gateway.pipeline._clock = gateway.pipeline._lookup._clock = self
        gateway.pipeline.generation._clock = self

    def __call__(self) -> float:
        return self._now() + self._offset

    def pass_(self, seconds: float) -> None:
        self._offset += seconds


async def kind(test: Running, text: str, **fields: Any) -> str:
    response = await test.ask(text, **fields)
    assert response.status_code == 200, response.text
    return response.headers["x-lockgate-cache"]


def cache(**changes: Any) -> dict[str, Any]:
    return {**SETTINGS["cache"], **changes}


async def test_a_client_says_for_how_long_in_seconds() -> None:
    async with running() as test:
        clock = FakeClock(test.gateway)
        short = {"x-lockgate-ttl-s": "2.5"}
        assert await kind(test, "sky is it blue?", headers=short) == "miss"
        clock.pass_(2.4)
        hit = await test.ask("sky is it blue?")
        assert hit.headers["x-lockgate-cache"] == "hit-exact"
        assert hit.headers["age"] == "2"
        assert hit.headers["cache-status"].startswith("lockgate; hit; ttl=0;")
        clock.pass_(0.1)
        assert await kind(test, "sky is it blue?") == "miss"
        clock.pass_(86_399)
        assert await kind(test, "sky is it blue?") == "hit-exact"


async def test_a_client_may_have_its_answer_kept_longer_than_others_or_not_at_all() -> None:
    async with running() as test:
        clock = FakeClock(test.gateway)
        await test.ask("sky is it blue?", headers={"x-lockgate-ttl-s": "200000"})
        await test.ask("sea is it salty?", headers={"x-lockgate-ttl-s": "0"})
        assert await kind(test, "sea is it salty?") == "miss"
        clock.pass_(199_999)
        assert await kind(test, "sky is it blue?") == "hit-exact"


@pytest.mark.parametrize("value", ["-1", "nan", "1e3", "inf", "", "10ms", "315360001", "1" * 400])
async def test_a_lifetime_that_is_none_is_an_error_that_names_the_header(value: str) -> None:
    async with running() as test:
        response = await test.ask(headers={"x-lockgate-ttl-s": value})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "x-lockgate-ttl-s"
        assert not test.backend.calls


async def test_tags_are_kept_with_the_entry_and_part_no_answers() -> None:
    async with running() as test:
        await test.ask("sky is it blue?", headers={"x-lockgate-tag": "docs:v1, team/a,docs:v1 ,"})
        assert await kind(test, "sky is it blue?", headers={"x-lockgate-tag": "other"}) == "hit-exact"
        assert test.gateway.cache is not None
        now = test.gateway.clock()
        [(entry, use)] = await test.gateway.cache.listed(EntryFilter(tag="team/a"), now)
        assert entry.tags == ("docs:v1", "team/a")
        assert use.hits == 1
        assert await test.gateway.cache.listed(EntryFilter(tag="other"), now) == []


@pytest.mark.parametrize("value", ["a b", "x" * 65, "é", ",".join(f"t{n}" for n in range(17))])
async def test_a_tag_that_is_none_is_an_error_that_names_the_header(value: str) -> None:
    async with running() as test:
        response = await test.ask(headers={"x-lockgate-tag": value.encode("utf-8")})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "x-lockgate-tag"


async def test_max_age_rules_out_what_is_older_however_it_is_found() -> None:
    async with running() as test:
        clock = FakeClock(test.gateway)
        await test.ask("sky is it blue?")
        clock.pass_(60)
        for text in ("sky is it blue?", "sky why blue?"):
            assert (await test.ask(text, headers={"cache-control": "max-age=61"})).headers["age"] == "60"
            only = await test.ask(text, headers={"cache-control": "max-age=59, only-if-cached"})
            assert only.status_code == 504
        refused = await test.ask("sky why blue?", headers={"cache-control": "max-age=59"})
        assert refused.headers["x-lockgate-cache"] == "miss"
        assert refused.headers["x-lockgate-reason"] == "what is cached is older than max-age=59"
        assert refused.headers["cache-status"] == "lockgate; fwd=request; stored"


async def test_what_no_cache_brought_says_that_the_client_asked_for_it() -> None:
    async with running() as test:
        fresh = await test.ask(headers={"cache-control": "no-cache"})
        assert fresh.headers["cache-status"] == "lockgate; fwd=request; stored"


NEWS = "what is the latest news from Paris?"


async def test_questions_about_now_are_kept_briefly_and_for_the_same_request_only() -> None:
    async with running() as test:
        clock = FakeClock(test.gateway)
        first = await test.ask(NEWS)
        assert first.headers["x-lockgate-cache"] == "miss"
        assert first.headers["x-lockgate-reason"].startswith("the question asks about ")
        again = await test.ask(NEWS)
        assert again.headers["x-lockgate-cache"] == "hit-exact"
        left = int(again.headers["cache-status"].partition("ttl=")[2].partition(";")[0])
        assert 0 < left <= 3600
        assert await kind(test, "what is the latest news from Paris, please?") == "miss"
        clock.pass_(3601)
        assert await kind(test, NEWS) == "miss"


async def test_a_client_cannot_have_an_answer_about_now_kept_longer() -> None:
    async with running() as test:
        clock = FakeClock(test.gateway)
        await test.ask(NEWS, headers={"x-lockgate-ttl-s": "86400"})
        clock.pass_(3601)
        assert await kind(test, NEWS) == "miss"


async def test_questions_about_now_may_pass_the_cache_by_or_be_as_others() -> None:
    async with running(cache=cache(volatile={"action": "bypass"})) as test:
        assert [await kind(test, NEWS) for _ in range(2)] == ["bypass"] * 2
        assert len(test.backend.calls) == 2
    async with running(cache=cache(volatile={"action": "ignore"})) as test:
        assert await kind(test, NEWS) == "miss"
        assert await kind(test, "what is the latest news from Paris then?") == "hit-semantic"


async def test_a_question_that_goes_on_from_one_about_now_is_one_too() -> None:
    async with running() as test:
        clock = FakeClock(test.gateway)
        turns = [{"role": "user", "content": "what is the weather in Paris?"}]
        turns += [{"role": "assistant", "content": "fine"}, {"role": "user", "content": "and in Rome?"}]
        first = await test.ask(messages=turns)
        assert first.headers["x-lockgate-reason"].startswith("the question asks about ")
        clock.pass_(3601)
        assert (await test.ask(messages=turns)).headers["x-lockgate-cache"] == "miss"


async def test_the_embedding_of_a_question_about_now_is_the_same_tomorrow() -> None:
    async with running() as test:
        clock = FakeClock(test.gateway)
        body = {"model": "lockgate-embedding", "input": NEWS}
        await test.http.post("/v1/embeddings", json=body)
        clock.pass_(80_000)
        again = await test.http.post("/v1/embeddings", json=body)
        assert again.headers["x-lockgate-cache"] == "hit-exact"


MINE = "write to jane.doe@example.com about the invoice"


async def test_prompts_with_personal_data_are_served_to_the_same_request_only() -> None:
    async with running() as test:
        assert await kind(test, MINE) == "miss"
        assert await kind(test, MINE) == "hit-exact"
        other = await test.ask("write to jane.doe@example.com about this invoice")
        assert other.headers["x-lockgate-cache"] == "miss"
        assert other.headers["x-lockgate-reason"] == "the prompt holds an e-mail address"
        assert "jane" not in str(other.headers)


async def test_personal_data_never_crosses_tenants_even_where_everyone_shares() -> None:
    async with running(cache=cache(share="everyone")) as test:
        assert await kind(test, "sky is it blue?", key="a") == "miss"
        assert await kind(test, "sky is it blue?", key="b") == "hit-exact"
        assert await kind(test, MINE, key="a") == "miss"
        assert await kind(test, MINE, key="a") == "hit-exact"
        assert await kind(test, MINE, key="b") == "miss"
    async with running(cache=cache(share="everyone", personal_data="off")) as test:
        assert [await kind(test, MINE, key=key) for key in "ab"] == ["miss", "hit-exact"]


async def test_prompts_with_personal_data_may_not_be_stored_at_all() -> None:
    async with running(cache=cache(personal_data="no-store")) as test:
        assert [await kind(test, MINE) for _ in range(2)] == ["bypass"] * 2
        assert test.gateway.cache is not None
        assert (await test.gateway.cache.size()).entries == 0


async def test_personal_data_earlier_in_a_conversation_counts() -> None:
    async with running() as test:
        turns = [{"role": "user", "content": MINE}, {"role": "assistant", "content": "done"}]
        asked = await test.ask(messages=[*turns, {"role": "user", "content": "sky is it blue?"}])
        assert asked.headers["x-lockgate-reason"] == "the prompt holds an e-mail address"


async def test_a_replay_has_the_pace_that_is_configured() -> None:
    async with running(cache=cache(replay_tokens_per_s=1000.0)) as test:
        await test.ask()
        assert test.gateway.pipeline._replay_tokens_per_s == 1000.0
        hit = await test.ask(stream=True)
        assert hit.headers["x-lockgate-cache"] == "hit-exact"
        assert told(hit) == "answer 1"


async def test_an_identity_says_what_was_asked() -> None:
    async with running() as test:
        await test.ask("sky is it blue?", user="u-1", stream=True)
        assert test.gateway.cache is not None
        [(entry, _)] = await test.gateway.cache.listed(EntryFilter(), test.gateway.clock())
        assert b"sky is it blue?" in entry.request
        assert b"u-1" not in entry.request
        assert (entry.api, entry.model) == ("chat", "auto")
        assert replace(entry.answer, body={}).model.startswith("fake-")
