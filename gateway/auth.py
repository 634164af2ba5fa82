"""Who is asking: the tenant of a request, its key, and the credential that may go upstream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from gateway.errors import RequestError
from gateway.keys import KeyRing
from gateway.limits import Limits

OPEN_TENANT = "open"
ANONYMOUS_TENANT = "anonymous"

Mode = Literal["passthrough", "keys", "open"]


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """`credential` is the value of an Authorization header, None when nothing may go upstream.

    `key` is the name of the [auth.keys.NAME] table, None in the other modes. `limits` is what to ask before
    the request is answered (`limits.admit(key, tokens)`), None where no key has any.
    """

    tenant: str
    credential: str | None = None
    key: str | None = None
    limits: Limits | None = None


class Authenticator:
    """`passthrough`: the client's credential is its tenant. `keys`: Lockgate's own keys, none goes upstream.
    `open`: no credential is asked, one tenant.

    Credentials are hashed anew for each request (about 1 µs), never kept. In `passthrough` a tenant is a
    hash under `secret`.
    """

    def __init__(
        self, mode: Mode, secret: bytes, *, keys: KeyRing | None = None, limits: Limits | None = None
    ) -> None:
        self._mode = mode
        self._keyed = hashlib.blake2b(digest_size=12, key=secret, person=b"lockgate-tenant")
        self._keys = keys or KeyRing()
        self._limits = limits

    def identify(self, headers: Mapping[bytes, bytes]) -> Client:
        """`headers` by lower-case name. Raises RequestError (401) in mode `keys`."""
        if self._mode == "passthrough":
            return self._passed_through(headers)
        if self._mode == "open":
            return Client(tenant=OPEN_TENANT)
        presented = False
        for secret in _presented(headers):
            presented = True
            if key := self._keys.find(secret):
                return Client(tenant=key.tenant, key=key.name, limits=self._limits)
        raise _refusal("The API key is not valid." if presented else "An API key is needed.")

    def _passed_through(self, headers: Mapping[bytes, bytes]) -> Client:
        token = headers.get(b"authorization", b"").decode("latin-1").strip()
        if not token:
            bare = headers.get(b"x-api-key") or headers.get(b"api-key") or b""
            token = f"Bearer {bare.decode('latin-1').strip()}"
            if token == "Bearer ":
                return Client(tenant=ANONYMOUS_TENANT)
        digest = self._keyed.copy()
        digest.update(token.encode())
        return Client(tenant=digest.hexdigest(), credential=token)


def _presented(headers: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Every key that a request brings: some clients send one of their own beside ours."""
    scheme, _, secret = headers.get(b"authorization", b"").strip().partition(b" ")
    if scheme.lower() == b"bearer" and secret:
        yield secret.strip()
    for name in (b"x-api-key", b"api-key"):
        if secret := headers.get(name, b"").strip():
            yield secret


def _refusal(what: str) -> RequestError:
    return RequestError(
        f"{what} Send it as `Authorization: Bearer KEY`, x-api-key or api-key.",
        status=401,
        kind="authentication_error",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )
