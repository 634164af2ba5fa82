"""Tenants, keys and credentials."""

from __future__ import annotations

import pytest

from gateway.auth import ANONYMOUS_TENANT, OPEN_TENANT, Authenticator, Client
from gateway.errors import RequestError
from gateway.keys import key_ring, sha256_of
from gateway.limits import Limits
from gateway.settings import AuthKey

SECRET = b"s" * 32
KEYS = {
    "web": AuthKey(sha256=sha256_of("lg-web"), tenant="shop"),
    "batch": AuthKey(sha256=sha256_of("lg-batch")),
}


def with_keys() -> Authenticator:
    return Authenticator("keys", SECRET, keys=key_ring(KEYS), limits=Limits(KEYS))


def refused(authenticator: Authenticator, headers: dict[bytes, bytes]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        authenticator.identify(headers)
    return caught.value


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


def test_a_tenant_stays_the_same_across_versions() -> None:
    """A change would lose every entry that is stored."""
    client = Authenticator("passthrough", SECRET).identify({b"authorization": b"Bearer sk-1"})
    assert client.tenant == "569e95e2751a9df2d6f3c3e5"


@pytest.mark.parametrize("headers", [{}, {b"authorization": b" "}, {b"x-api-key": b"", b"api-key": b" "}])
def test_without_a_credential_one_is_anonymous(headers: dict[bytes, bytes]) -> None:
    client = Authenticator("passthrough", SECRET).identify(headers)
    assert client == Client(tenant=ANONYMOUS_TENANT, credential=None, key=None, limits=None)


def test_an_empty_authorization_header_leaves_the_word_to_the_others() -> None:
    known = Authenticator("passthrough", SECRET)
    beside = known.identify({b"authorization": b"", b"x-api-key": b"sk-1"})
    assert beside == known.identify({b"authorization": b"Bearer sk-1"})


def test_open_has_one_tenant_and_sends_nothing_upstream() -> None:
    client = Authenticator("open", SECRET).identify({b"authorization": b"Bearer sk-1"})
    assert client == Client(tenant=OPEN_TENANT, credential=None, key=None, limits=None)


@pytest.mark.parametrize(
    "headers",
    [
        {b"authorization": b"Bearer lg-web"},
        {b"authorization": b"bearer  lg-web "},
        {b"x-api-key": b"lg-web"},
        {b"api-key": b" lg-web"},
        {b"authorization": b"Basic dTpw", b"x-api-key": b"lg-web"},
        {b"authorization": b"Bearer sk-other", b"api-key": b"lg-web"},
    ],
)
def test_a_key_is_known_from_any_of_the_usual_headers(headers: dict[bytes, bytes]) -> None:
    client = with_keys().identify(headers)
    assert (client.tenant, client.key) == ("shop", "web")
    assert client.limits is not None


def test_a_clients_key_never_goes_upstream() -> None:
    client = with_keys().identify({b"authorization": b"Bearer lg-batch"})
    assert client.credential is None
    assert "lg-batch" not in repr(client)
    assert (client.tenant, client.key) == ("batch", "batch")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"authorization": b"Bearer lg-wrong"},
        {b"authorization": b"Bearer "},
        {b"authorization": b"Bearer"},
        {b"authorization": b"lg-web"},
        {b"authorization": b"Basic lg-web"},
        {b"x-api-key": sha256_of("lg-web").encode()},
        {b"api-key": b"web"},
        {b"x-api-key": b"\xff\xfe\x00"},
        {b"x-api-key": b"Bearer lg-web"},
    ],
)
def test_all_else_is_refused(headers: dict[bytes, bytes]) -> None:
    error = refused(with_keys(), headers)
    assert (error.status, error.kind, error.code) == (401, "authentication_error", "invalid_api_key")
    assert error.headers == {"www-authenticate": "Bearer"}


def test_a_refusal_repeats_no_key_and_names_none() -> None:
    told = [
        str(refused(with_keys(), {b"x-api-key": key})) for key in (b"lg-wrong", b"lg-we", b"web", b"shop")
    ]
    assert len(set(told)) == 1
    assert not any(word in told[0] for word in ("lg-", "web", "shop", "batch"))


def test_keys_without_a_ring_let_nobody_in() -> None:
    assert refused(Authenticator("keys", SECRET), {b"authorization": b"Bearer lg-web"}).status == 401
