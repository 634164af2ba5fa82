"""What a client's headers say, and which of them go upstream."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestError
from gateway.request_headers import HeaderPolicy, cache_directives, declared_length, request_id, route_pin
from policies.types import CacheDirectives


@pytest.mark.parametrize("value", ["max-age=soon", "max-age", "max-age=-1", "max-age=\u00b2"])
def test_a_max_age_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(RequestError, match="expected max-age=SECONDS") as caught:
        cache_directives({b"cache-control": value.encode("latin-1")})
    assert caught.value.status == 400


def test_a_max_age_may_be_of_any_length() -> None:
    assert cache_directives({b"cache-control": b"max-age=" + b"9" * 400}).max_age_s == float("inf")


def test_a_tab_goes_upstream_as_a_space() -> None:
    forwarded = HeaderPolicy().forwarded({b"traceparent": b"a\tb"}, "req_1")
    assert forwarded == {"traceparent": "a b", "x-request-id": "req_1"}


@pytest.mark.parametrize("given_id", [b"a", b"trace-1.2:3_4", b"x" * 128])
def test_a_harmless_id_is_kept(given_id: bytes) -> None:
    assert request_id({b"x-request-id": given_id}) == given_id.decode()


@pytest.mark.parametrize("given_id", [b"", b"a b", b"x" * 129, b"a\n", b"\xff", b'"', b"a\r\nset-cookie: x"])
def test_any_other_is_replaced(given_id: bytes) -> None:
    assert re.fullmatch(r"req_[0-9a-f]{32}", request_id({b"x-request-id": given_id}))


def test_every_request_has_an_id_of_its_own() -> None:
    assert request_id({}) != request_id({})


@pytest.mark.parametrize(
    ("value", "length"), [(b"12", 12), (b"0", 0), (b"", None), (b"-1", None), (b"1x", None)]
)
def test_an_announced_length(value: bytes, length: int | None) -> None:
    assert declared_length({b"content-length": value}) == length
    assert declared_length({}) is None


@pytest.mark.parametrize(("value", "tier"), [(b"small", "small"), (b" LARGE ", "large"), (b"", None)])
def test_a_tier_may_be_asked_for(value: bytes, tier: str | None) -> None:
    assert route_pin({b"x-lockgate-route": value}) == tier
    assert route_pin({}) is None


def test_no_other_tier_can() -> None:
    with pytest.raises(RequestError, match="expected small or large, got 'medium'") as caught:
        route_pin({b"x-lockgate-route": b"medium"})
    assert (caught.value.status, caught.value.param) == (400, "x-lockgate-route")


@pytest.mark.parametrize(
    ("value", "asked"),
    [
        (b"no-cache", CacheDirectives(no_cache=True)),
        (b"No-Store", CacheDirectives(no_store=True)),
        (b"only-if-cached", CacheDirectives(only_if_cached=True)),
        (b"max-age=60", CacheDirectives(max_age_s=60.0)),
        (b'max-age="60"', CacheDirectives(max_age_s=60.0)),
        (b" no-cache ,max-age=0", CacheDirectives(no_cache=True, max_age_s=0.0)),
        (b"max-stale=5, x, ,", CacheDirectives()),
        (b"", CacheDirectives()),
    ],
)
def test_cache_control(value: bytes, asked: CacheDirectives) -> None:
    assert cache_directives({b"cache-control": value}) == asked


SENT = {
    b"authorization": b"Bearer k",
    b"cookie": b"a=1",
    b"x-api-key": b"k",
    b"host": b"h",
    b"connection": b"keep-alive",
    b"content-length": b"5",
    b"user-agent": b"client/1",
    b"traceparent": b"00-a-b-01",
    b"idempotency-key": b"i",
    b"openai-beta": b"assistants=v2",
    b"anthropic-version": b"2023-06-01",
    b"x-stainless-lang": b"python",
    b"x-note": b"n",
    b"x-request-id": b"a b",
}


def test_only_what_is_known_to_be_harmless_goes_upstream() -> None:
    assert HeaderPolicy().forwarded(SENT, "r1") == {
        "user-agent": "client/1",
        "traceparent": "00-a-b-01",
        "idempotency-key": "i",
        "openai-beta": "assistants=v2",
        "anthropic-version": "2023-06-01",
        "x-stainless-lang": "python",
        "x-request-id": "r1",
    }


def test_the_config_may_add_some_in_any_case() -> None:
    policy = HeaderPolicy(["X-Note"])
    assert policy.forwarded(SENT, "r1")["x-note"] == "n"
    assert policy.also == {"x-note"}


def test_what_picks_another_behaviour_is_part_of_who_may_share_an_answer() -> None:
    assert HeaderPolicy().variant(SENT) == {"openai-beta": "assistants=v2", "anthropic-version": "2023-06-01"}
    assert HeaderPolicy(["x-note"]).variant(SENT)["x-note"] == "n"
    assert HeaderPolicy(["x-note"]).variant({}) == {}


@given(st.dictionaries(st.binary(max_size=20), st.binary(max_size=20)))
def test_no_header_of_any_bytes_breaks_it(headers: dict[bytes, bytes]) -> None:
    policy = HeaderPolicy(["x-note"])
    assert policy.forwarded(headers, "r")["x-request-id"] == "r"
    policy.variant(headers)
    assert request_id(headers)
