"""Which headers pass through: those that are named, and no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.forwarding import (
    client_may_see,
    raw_client_headers,
    raw_upstream_headers,
    upstream_may_see,
)

NEVER = [
    "authorization", "cookie", "set-cookie", "x-api-key", "api-key", "proxy-authorization",
    "proxy-authenticate", "www-authenticate", "connection", "keep-alive", "te", "trailer",
    "transfer-encoding", "upgrade", "host", "forwarded", "x-forwarded-for", "x-real-ip", "expect",
]  # fmt: skip
"""Credentials, hop-by-hop headers (RFC 9110, section 7.6.1), and who the client is."""


@pytest.mark.parametrize("name", NEVER)
def test_these_pass_in_no_direction(name: str) -> None:
    assert not upstream_may_see(name)
    assert not client_may_see(name)
    assert raw_upstream_headers([(name, "1")], frozenset()) == []
    assert raw_client_headers([(name, "1")]) == []


@pytest.mark.parametrize(
    "name", ["retry-after", "retry-after-ms", "x-ratelimit-limit-tokens", "anthropic-organization-id"]
)
def test_a_client_sees_what_it_must_know_of_the_upstream(name: str) -> None:
    assert client_may_see(name)
    assert raw_client_headers([(name.title(), "1")]) == [(name, "1")]


def test_headers_of_a_passed_through_request_keep_their_order_and_repeat() -> None:
    sent = [("accept", "a"), ("range", "bytes=0-1"), ("accept", "b"), ("x-own", "1"), ("openai-beta", "v2")]
    assert raw_upstream_headers(sent, frozenset()) == [sent[0], sent[1], sent[2], sent[4]]
    assert raw_upstream_headers(sent, frozenset({"x-own"})) == sent


@pytest.mark.parametrize("name", ["x-request-id", "content-length", "host", "transfer-encoding"])
def test_what_the_forwarder_says_itself_is_left_out_even_when_the_config_names_it(name: str) -> None:
    assert raw_upstream_headers([(name, "1")], frozenset({name})) == []


def test_an_upstreams_own_request_id_stays_there() -> None:
    """The client has one already."""
    assert raw_client_headers([("x-request-id", "u"), ("request-id", "u")]) == []


@given(st.text(st.characters(codec="ascii"), max_size=30))
def test_a_config_that_names_a_header_lets_it_up_and_nothing_down(name: str) -> None:
    lower = name.lower()
    assert upstream_may_see(lower, frozenset({lower}))
    assert client_may_see(lower) <= bool(raw_client_headers([(name, "1")]))
