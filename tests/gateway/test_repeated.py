"""Requests that came before."""

from __future__ import annotations

from gateway.repeated import MAX_BODY_BYTES, Marks, RepeatedRequests
from policies.types import Request
from tests.gateways import running


def request(model: str = "m") -> Request:
    return Request(api="chat", model=model, body={"model": model}, tenant="t")


def marks(tenant: str = "t") -> Marks:
    return (tenant, None, None)


def test_the_same_bytes_of_the_same_tenant_are_known() -> None:
    repeated = RepeatedRequests()
    repeated.add(b"{}", marks(), request(), b"key")
    assert repeated.get(b"{}", marks()) == (request(), b"key")
    assert repeated.get(b"{} ", marks()) is None
    assert repeated.get(b"{}", marks(tenant="other")) is None


def test_the_ones_used_longest_ago_make_room() -> None:
    repeated = RepeatedRequests(max_total_bytes=2)
    for body in (b"a", b"b"):
        repeated.add(body, marks(), request(), body)
    repeated.get(b"a", marks())
    repeated.add(b"c", marks(), request(), b"c")
    assert [repeated.get(body, marks()) is not None for body in (b"a", b"b", b"c")] == [True, False, True]


def test_large_bodies_are_not_kept() -> None:
    repeated = RepeatedRequests()
    body = b"x" * (MAX_BODY_BYTES + 1)
    repeated.add(body, marks(), request(), b"key")
    assert len(repeated) == 0
    assert repeated.get(body, marks()) is None


async def test_what_differs_in_headers_alone_is_not_taken_for_the_same() -> None:
    async with running() as test:
        for _ in range(3):
            first = await test.ask("sky")
        assert first.headers["x-lockgate-cache"] == "hit-exact"
        other = await test.ask("sky", key="another")
        assert other.headers["x-lockgate-cache"] == "miss"
        for headers, kind in (
            ({"cache-control": "no-cache"}, "bypass"),
            ({"x-lockgate-route": "large"}, "miss"),
            ({"openai-beta": "x"}, "miss"),
        ):
            varied = await test.ask("sky", headers=headers)
            assert varied.headers["x-lockgate-cache"] == kind, headers
        assert (await test.ask("sky")).headers["x-lockgate-cache"] == "hit-exact"


async def test_an_answer_that_has_gone_is_generated_again() -> None:
    async with running() as test:
        for _ in range(3):
            hit = await test.ask("sky")
        assert test.gateway.cache is not None
        await test.gateway.cache.remove([int(hit.headers["x-lockgate-entry"])])
        assert (await test.ask("sky")).headers["x-lockgate-cache"] == "miss"
