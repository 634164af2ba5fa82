"""What users of semantic caches report of an entry's life, from storing to correcting it: one test for each
report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.errors import UpstreamRejected
from tests.cache_cases import EACH_STORE, indexed, kept, kept_in
from tests.gateway.admin_cases import administered, cache_of, invalidated, judged, listed
from tests.gateway.test_kept_answers import FakeClock
from tests.gateways import Running, events, running, told

SKY, SKY_REWORDED = "sky why is it blue?", "sky what makes it blue?"
ONLY_IF_CACHED = {"cache-control": "only-if-cached"}


async def served(test: Running, text: str) -> str:
    """ "" when the cache has nothing for it."""
    response = await test.ask(text, headers=ONLY_IF_CACHED)
    return told(response) if response.status_code == 200 else ""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 503])
async def test_4xx_and_5xx_are_not_replayed_as_200(status: int, stream: bool) -> None:
    async with running() as test:
        body = b'{"error": {"message": "no", "type": "t", "param": null, "code": null}}'
        test.backend.error = UpstreamRejected("no", status=status, body=body, headers={})
        assert (await test.ask(SKY, stream=stream)).status_code == status
        assert await kept(test) == 0
        test.backend.error = None
        for text in (SKY_REWORDED, SKY):
            assert (await test.ask(text, headers=ONLY_IF_CACHED)).status_code == 504


async def test_an_error_in_a_200_is_not_replayed() -> None:
    async with running() as test:
        test.backend.rewrite = lambda body: {"error": {"message": "overloaded", "code": 529}}
        await test.ask(SKY)
        assert await kept(test) == 0


EMPTY: dict[str, Any] = {
    "no text": {"choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "stop"}]},
    "blanks": {"choices": [{"index": 0, "message": {"content": " \n"}, "finish_reason": "stop"}]},
    "null": {"choices": [{"index": 0, "message": {"content": None}, "finish_reason": "stop"}]},
    "no choices": {"choices": []},
}


@EACH_STORE
@pytest.mark.parametrize("empty", EMPTY)
async def test_an_empty_placeholder_does_not_shadow_good_entries(
    store: str, empty: str, tmp_path: Path
) -> None:
    async with running(cache=kept_in(store, tmp_path)) as test:
        good = await test.ask(SKY)
        test.backend.rewrite = lambda body: {**body, **EMPTY[empty]}
        for text in (SKY, SKY_REWORDED):  # asked again in spite of the cache, and nothing comes
            fresh = await test.ask(text, headers={"cache-control": "no-cache"})
            assert fresh.status_code == 200
        assert [await served(test, text) for text in (SKY, SKY_REWORDED)] == [told(good)] * 2
        assert await kept(test) == 1


@pytest.fixture(params=["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def _far_from_utc(request: pytest.FixtureRequest) -> Iterator[None]:
    """14 hours before and 11 after: a local time that is taken for UTC would show."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@EACH_STORE
@pytest.mark.usefixtures("_far_from_utc")
async def test_expired_rows_do_not_hit(store: str, tmp_path: Path) -> None:
    async with running(cache=kept_in(store, tmp_path, ttl_s=100.0)) as test:
        clock = FakeClock(test.gateway)
        assert cache_of(await test.ask(SKY)) == "miss"
        clock.pass_(99)
        assert [await served(test, text) for text in (SKY, SKY_REWORDED)] == ["answer 1"] * 2
        clock.pass_(1)  # never swept
        assert [await served(test, text) for text in (SKY, SKY_REWORDED)] == ["", ""]


async def test_expired_rows_do_not_hit_after_a_restart(tmp_path: Path) -> None:
    cache = kept_in("sqlite", tmp_path, ttl_s=0.2)
    async with running(cache=cache) as test:
        await test.ask(SKY)
        time.sleep(0.2)  # noqa: ASYNC251 - nothing else is to run
    async with running(cache=cache) as test:
        assert [await served(test, text) for text in (SKY, SKY_REWORDED)] == ["", ""]
        assert indexed(test) == 0


@EACH_STORE
async def test_the_index_follows_an_eviction(store: str, tmp_path: Path) -> None:
    topics = ["sky", "sea", "sun", "sand", "salt"]
    cache = kept_in(store, tmp_path, max_entries=3)

    async def left(test: Running) -> list[str]:
        return [topic for topic in topics if await served(test, f"{topic} what about it?")]

    async with running(cache=cache) as test:
        for topic in topics:
            await test.ask(f"{topic} what is it?")
        kept = await left(test)
        assert (len(kept), kept[-1], indexed(test)) == (3, "salt", 3)
    if store == "sqlite":
        async with running(cache=cache) as test:
            assert (await left(test), indexed(test)) == (kept, 3)


@EACH_STORE
@pytest.mark.parametrize("swept", [True, False], ids=["swept", "come upon"])
async def test_the_vector_of_an_expired_entry_does_not_stay_in_memory(
    store: str, swept: bool, tmp_path: Path
) -> None:
    async with running(cache=kept_in(store, tmp_path, ttl_s=100.0)) as test:
        assert test.gateway.cache is not None
        clock = FakeClock(test.gateway)
        for text in (SKY, "sea why is it salty?"):
            await test.ask(text)
        assert indexed(test) == 2
        clock.pass_(100)
        if swept:
            assert await test.gateway.cache.sweep(clock()) == 2
        else:
            assert await served(test, SKY_REWORDED) == ""
        assert indexed(test) == 0


async def test_a_hit_does_not_keep_the_old_response_id() -> None:
    async with running() as test:
        clock = FakeClock(test.gateway)
        first = (await test.ask(SKY)).json()
        clock.pass_(1000)
        seen = {first["id"]}
        for text in (SKY, SKY_REWORDED):
            whole = (await test.ask(text)).json()
            chunks = events(await test.ask(text, stream=True))
            (streamed,) = {chunk["id"] for chunk in chunks}
            assert not seen & {whole["id"], streamed}
            seen |= {whole["id"], streamed}
            for told_at in (whole["created"], *(chunk["created"] for chunk in chunks)):
                assert told_at == pytest.approx(clock(), abs=30)
        assert len(seen) == 5


@EACH_STORE
async def test_hits_are_not_counted_twice(store: str, tmp_path: Path) -> None:
    async with administered(cache=kept_in(store, tmp_path)) as test:
        await test.ask(SKY)
        for number, text in enumerate((SKY, SKY, SKY_REWORDED, SKY_REWORDED, SKY)):
            assert cache_of(await test.ask(text, stream=number % 2 == 0)).startswith("hit")
        assert (await test.ask("sea why is it salty?", headers=ONLY_IF_CACHED)).status_code == 504
        (entry,) = await listed(test)
        assert entry["hits"] == 5
        stats = (await test.http.get("/admin/stats")).json()
        counted = {kind: stats["by_cache"][kind] for kind in ("hit-exact", "hit-semantic")}
        assert counted == {"hit-exact": 3, "hit-semantic": 2}
        assert stats["saved_tokens"] == 5 * 14
        lines = (await test.http.get("/metrics")).text.splitlines()
        hits = [
            line for line in lines if line.startswith("lockgate_requests_total") and 'cache="hit-' in line
        ]
        assert sum(float(line.split()[-1]) for line in hits) == 5


@EACH_STORE
async def test_there_are_ways_to_correct_a_bad_entry(store: str, tmp_path: Path) -> None:
    async with administered(cache=kept_in(store, tmp_path)) as test:

        async def bad() -> int:
            """The id of a new entry, served by similarity too."""
            await test.ask(SKY, headers={"cache-control": "no-cache"})
            return int((await test.ask(SKY_REWORDED)).headers["x-lockgate-entry"])

        async def left() -> list[bool]:
            return [bool(await served(test, text)) for text in (SKY, SKY_REWORDED)]

        await bad()
        hit = await test.ask(SKY_REWORDED)
        await judged(test, request_id=hit.headers["x-request-id"], correct=False)
        assert await left() == [True, False], "wrong for the similar question alone"
        await bad()
        hit = await test.ask(SKY)
        await judged(test, request_id=hit.headers["x-request-id"], correct=False)
        assert await left() == [False, False]
        assert (await judged(test, entry=await bad(), correct=False)).json()["action"] == "removed"
        assert await left() == [False, False]
        assert (await test.http.delete(f"/admin/entries/{await bad()}")).json() == {"removed": 1}
        assert await left() == [False, False]
        await bad()
        assert (await invalidated(test, similar_to=SKY_REWORDED))["removed"] == 1
        assert await left() == [False, False]
        await bad()
        refreshed = await test.ask(SKY, headers={"cache-control": "no-cache"})
        assert [await served(test, text) for text in (SKY, SKY_REWORDED)] == [told(refreshed)] * 2
