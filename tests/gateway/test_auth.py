"""Tenants and credentials."""

from __future__ import annotations

from gateway.auth import ANONYMOUS_TENANT, OPEN_TENANT, Authenticator

SECRET = b"s" * 32


def test_passthrough_takes_any_of_the_usual_headers_and_keeps_no_credential_in_the_tenant() -> None:
    known = Authenticator("passthrough", SECRET)
    bearer = known.identify({b"authorization": b"Bearer sk-1"})
    by_key = known.identify({b"x-api-key": b"sk-1"})
    azure = known.identify({b"api-key": b"sk-1"})
    assert bearer == by_key == azure
    assert bearer.credential == "Bearer sk-1"
    assert "sk-1" not in bearer.tenant
    assert known.identify({b"authorization": b"Bearer sk-2"}).tenant != bearer.tenant


def test_tenants_are_equal_across_processes_with_one_secret_and_differ_without() -> None:
    headers = {b"authorization": b"Bearer sk-1"}
    first, second = Authenticator("passthrough", SECRET), Authenticator("passthrough", SECRET)
    assert first.identify(headers) == second.identify(headers)
    assert Authenticator("passthrough", b"t" * 32).identify(headers).tenant != first.identify(headers).tenant


def test_without_a_credential_one_is_anonymous() -> None:
    client = Authenticator("passthrough", SECRET).identify({})
    assert (client.tenant, client.credential) == (ANONYMOUS_TENANT, None)


def test_open_has_one_tenant_and_sends_nothing_upstream() -> None:
    client = Authenticator("open", SECRET).identify({b"authorization": b"Bearer sk-1"})
    assert (client.tenant, client.credential) == (OPEN_TENANT, None)
