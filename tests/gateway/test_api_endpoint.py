"""The edge of each API: its answers, and what its client is told when an upstream fails."""

from __future__ import annotations

import json

import pytest

from tests.gateway.api_cases import (
    EACH_API,
    ApiCase,
    answering,
    ask,
    behind,
    error_of,
    events_of,
    said,
)
from tests.upstreams import FakeUpstream, Reply


@EACH_API
@pytest.mark.parametrize("stream", [False, True])
async def test_each_api_is_answered_in_its_own_form(case: ApiCase, stream: bool) -> None:
    async with FakeUpstream(answering) as upstream, behind(upstream) as test:
        response = await ask(test, case, stream=stream)
        assert response.status_code == 200
        if stream:
            assert response.headers["content-type"].startswith("text/event-stream")
            assert events_of(response)[-1][1] == (
                "[DONE]"
                if case.events[-1].endswith(b"[DONE]\n\n")
                else json.loads(case.events[-1].split(b"data: ")[1])
            )
        else:
            assert response.content == case.whole.pieces[0], "a whole answer goes out byte for byte"
        assert upstream.received[0].path == case.path


@EACH_API
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "reply",
    [
        Reply(content_type="text/html", pieces=[b"<html>busy</html>"]),
        Reply(pieces=[b'{"id": "x", "choi']),
        Reply(pieces=[b'"text"']),
        Reply(pieces=[b"{}"]),
        Reply(pieces=[]),
        Reply(content_type="text/event-stream", pieces=[b"data: {bro\n\n"]),
        Reply(status=502, content_type="text/html", pieces=[b"<html>bad gateway</html>"]),
    ],
)
async def test_what_is_no_answer_becomes_a_502_in_the_apis_shape(
    case: ApiCase, stream: bool, reply: Reply
) -> None:
    async with FakeUpstream(lambda _: reply) as upstream, behind(upstream) as test:
        response = await ask(test, case, stream=stream)
        assert response.status_code == 502
        assert error_of(case, response)["message"]
        assert "html>" not in response.text


@EACH_API
async def test_an_upstream_that_dies_in_mid_stream_is_told_in_the_apis_own_way(case: ApiCase) -> None:
    async with FakeUpstream(lambda _: case.broken) as upstream, behind(upstream) as test:
        response = await ask(test, case, stream=True)
        assert response.status_code == 200
        events = events_of(response)
        name, last = events[-1]
        assert "[DONE]" not in [event for _, event in events]
        assert not {"message_stop", "response.completed"} & {name for name, _ in events}
        match case.api:
            case "messages":
                assert (name, last["type"]) == ("error", "error")
                assert last["error"]["message"]
            case "responses":
                assert last["type"] in ("error", "response.failed")
            case _:
                assert last["error"]["message"]


@EACH_API
async def test_an_answer_that_broke_off_is_not_kept(case: ApiCase) -> None:
    cache = {"store": "memory", "policy": {"kind": "exact"}}
    async with FakeUpstream(lambda _: case.broken) as upstream, behind(upstream, cache=cache) as test:
        await ask(test, case, stream=True)
        upstream.answer = answering
        again = await ask(test, case, stream=True)
        assert again.headers["x-lockgate-cache"] == "miss"
        kept = await ask(test, case)
        assert kept.headers["x-lockgate-cache"] == "hit-exact"
        assert said(case, kept.json()) == "hello"
        assert len(upstream.received) == 2


@EACH_API
async def test_an_upstreams_own_error_is_kept_with_its_retry_after(case: ApiCase) -> None:
    refusal = (
        {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}, "request_id": "r"}
        if case.api == "messages"
        else {
            "error": {"message": "slow down", "type": "tokens", "param": None, "code": "rate_limit_exceeded"}
        }
    )
    reply = Reply(
        status=429,
        headers={"retry-after": "9", "x-ratelimit-remaining-tokens": "0", "set-cookie": "a=1"},
        pieces=[json.dumps(refusal).encode()],
    )
    async with FakeUpstream(lambda _: reply) as upstream, behind(upstream) as test:
        response = await ask(test, case)
        assert response.status_code == 429
        assert response.content == reply.pieces[0]
        assert response.headers["retry-after"] == "9"
        assert response.headers["x-ratelimit-remaining-tokens"] == "0"
        assert "set-cookie" not in response.headers


@EACH_API
async def test_a_model_nobody_knows_is_404_in_the_apis_shape(case: ApiCase) -> None:
    async with FakeUpstream(answering) as upstream, behind(upstream) as test:
        response = await ask(test, case, model="nope")
        assert response.status_code == 404
        assert "nope" in error_of(case, response)["message"]
        assert not upstream.received


@EACH_API
async def test_a_fault_of_ours_is_a_500_in_the_apis_shape(
    case: ApiCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeUpstream(answering) as upstream, behind(upstream) as test:

        async def explode(*_: object) -> None:
            raise RuntimeError("secret detail")

        monkeypatch.setattr(test.gateway.pipeline, "answer_exactly", explode)
        response = await ask(test, case)
        assert response.status_code == 500
        assert "secret" not in response.text
        error_of(case, response)
