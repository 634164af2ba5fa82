"""Questions that are being answered right now: one call for all who ask the same."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from backends.errors import BackendError, InvalidCall, UpstreamCut, UpstreamRejected, UpstreamTimeout
from tests.gateways import SETTINGS, Running, events, running, told, until


async def asked_at_once(test: Running, *questions: dict[str, Any]) -> list[httpx.Response]:
    """All of them wait for the upstream before it says a word."""
    test.backend.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for question in questions:
            fields = dict(question)
            tasks.append(group.create_task(test.ask(fields.pop("text", "sky why is it blue?"), **fields)))
            await until(lambda: waiting(test) == len(tasks))
        test.backend.gate.set()
    return [task.result() for task in tasks]


def waiting(test: Running) -> int:
    """Requests that follow a flight, their own or another's, and calls that are open to nobody else."""
    flights = len(test.gateway.pipeline.generation.flights)
    return test.followers + len(test.backend.calls) - flights


def kinds(responses: list[httpx.Response]) -> list[str]:
    return [response.headers["x-lockgate-cache"] for response in responses]


async def test_equal_requests_in_flight_make_one_call() -> None:
    async with running() as test:
        test.backend.gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(test.ask(stream=i % 2 == 0)) for i in range(6)]
            await until(lambda: test.followers == 6)
            test.backend.gate.set()
        responses = [task.result() for task in tasks]
        kinds = sorted(r.headers["x-lockgate-cache"] for r in responses)
        assert kinds == ["coalesced"] * 5 + ["miss"]
        assert {told(r) for r in responses} == {"answer 1"}
        assert len(test.backend.calls) == 1


async def test_the_failure_of_a_shared_call_reaches_all_who_follow() -> None:
    async with running() as test:
        test.backend.gate = asyncio.Event()
        test.backend.error = UpstreamTimeout("too late")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(test.ask()) for _ in range(3)]
            await until(lambda: test.followers == 3)
            test.backend.gate.set()
        assert [task.result().status_code for task in tasks] == [504] * 3


NEAR = ({"text": "sky why is it blue?"}, {"text": "sky what makes it blue?"})


@pytest.mark.parametrize("streams", [(False, False), (True, True), (True, False), (False, True)])
async def test_equal_questions_in_other_words_make_one_call_too(streams: tuple[bool, bool]) -> None:
    async with running() as test:
        asked = [{**question, "stream": stream} for question, stream in zip(NEAR, streams, strict=True)]
        first, second = await asked_at_once(test, *asked)
        assert kinds([first, second]) == ["miss", "coalesced"]
        assert told(first) == told(second) == "answer 1"
        assert len(test.backend.calls) == 1
        assert second.headers["x-lockgate-reason"].startswith("the same question is being answered now: simi")
        assert float(second.headers["x-lockgate-similarity"]) > 0.9
        assert second.headers["cache-status"] == "lockgate; fwd=uri-miss; collapsed"


@pytest.mark.parametrize(
    "other",
    [
        {"key": "of another tenant"},
        {"model": "small"},
        {"temperature": 0.5},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"headers": {"cache-control": "no-cache"}},
        {"headers": {"cache-control": "no-store"}},
        {"text": "sky is it blue today?"},
        {"text": "sea what makes it blue?"},
    ],
)
async def test_what_may_not_share_an_answer_shares_no_call(other: dict[str, Any]) -> None:
    async with running() as test:
        responses = await asked_at_once(test, NEAR[0], {**NEAR[1], **other})
        assert sorted(told(response) for response in responses) == ["answer 1", "answer 2"]
        assert len(test.backend.calls) == 2


@pytest.mark.parametrize("mode", ["shadow", "off"])
async def test_questions_alike_share_no_call_where_similarity_serves_nothing(mode: str) -> None:
    policy = {**SETTINGS["cache"]["policy"], "mode": mode}
    async with running(cache={"store": "memory", "policy": policy}) as test:
        assert kinds(await asked_at_once(test, *NEAR)) == ["miss", "miss"]


@pytest.mark.parametrize("stream", [False, True])
async def test_when_the_leader_fails_one_follower_asks_again_for_all(stream: bool) -> None:
    async with running() as test:
        test.backend.error, test.backend.failing = UpstreamTimeout("too late"), 1
        responses = await asked_at_once(test, *[{"stream": stream}] * 5)
        assert responses[0].status_code == 504
        assert [response.status_code for response in responses[1:]] == [200] * 4
        assert {told(response) for response in responses[1:]} == {"answer 2"}
        assert sorted(kinds(responses[1:])) == ["coalesced"] * 3 + ["miss"]
        assert len(test.backend.calls) == 2
        leader = next(r for r in responses[1:] if r.headers["x-lockgate-cache"] == "miss")
        assert leader.headers["x-lockgate-reason"].endswith("followed another request's call, but it failed")
        assert (await test.ask()).headers["x-lockgate-cache"] == "hit-exact"


async def test_a_dead_upstream_is_asked_twice_for_all_not_once_for_each() -> None:
    async with running() as test:
        test.backend.error = UpstreamTimeout("too late")
        responses = await asked_at_once(test, *[{}] * 6)
        assert [response.status_code for response in responses] == [504] * 6
        assert len(test.backend.calls) == 2


REFUSED = UpstreamRejected("no", status=400, body=b"", headers={})
UNAUTHORIZED = UpstreamRejected("no", status=401, body=b"", headers={})


@pytest.mark.parametrize(
    ("error", "followers", "calls"),
    [
        (REFUSED, {}, 1),
        (InvalidCall("no", param="x"), {}, 1),
        (UNAUTHORIZED, {}, 2),
        (REFUSED, {"text": "sky what makes it blue?"}, 2),
    ],
)
async def test_what_is_wrong_with_the_request_is_not_asked_again_by_who_asks_the_same(
    error: BackendError, followers: dict[str, Any], calls: int
) -> None:
    async with running() as test:
        test.backend.error, test.backend.failing = error, 1
        leader, follower = await asked_at_once(test, {}, followers)
        assert leader.status_code >= 400
        assert follower.status_code == (200 if calls == 2 else 400)
        assert len(test.backend.calls) == calls


async def test_a_stream_that_breaks_off_is_not_begun_again() -> None:
    async with running() as test:
        test.backend.error, test.backend.error_after, test.backend.failing = UpstreamCut("broke off"), 2, 1
        responses = await asked_at_once(test, {"stream": True}, {"stream": True})
        for response in responses:
            assert events(response)[-1]["error"]["message"] == "broke off"
            assert "[DONE]" not in response.text
        assert len(test.backend.calls) == 1


async def test_the_wait_is_bounded() -> None:
    async with running(cache={**SETTINGS["cache"], "coalesce_wait_s": 0.05}) as test:
        test.backend.gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            leader = group.create_task(test.ask())
            await until(lambda: len(test.backend.calls) == 1)
            follower = group.create_task(test.ask())
            await until(lambda: len(test.backend.calls) == 2)
            test.backend.gate.set()
        assert told(leader.result()) == "answer 1"
        assert told(follower.result()) == "answer 2"
        reason = follower.result().headers["x-lockgate-reason"]
        assert reason.endswith("followed another request's call, but no answer within 0.05 s")


async def test_what_was_begun_for_others_goes_on_when_its_leader_leaves() -> None:
    async with running() as test:
        test.backend.gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            leader = group.create_task(test.ask())
            await until(lambda: test.followers == 1)
            follower = group.create_task(test.ask("sky what makes it blue?"))
            await until(lambda: test.followers == 2)
            leader.cancel()
            await asyncio.wait([leader])
            test.backend.gate.set()
        assert told(follower.result()) == "answer 1"
        assert test.backend.cancelled == 0
