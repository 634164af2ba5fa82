"""Who is asking: the tenant of a request, and the credential that may go upstream."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

OPEN_TENANT = "open"
ANONYMOUS_TENANT = "anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """`credential` is the value of an Authorization header, None when nothing may go upstream."""

    tenant: str
    credential: str | None


class Authenticator:
    """`passthrough`: the client's credential is its tenant. `open`: no credential is asked, one tenant.

    Tenants are keyed hashes: a credential is never kept.
    """

    def __init__(self, mode: Literal["passthrough", "open"], secret: bytes) -> None:
        self._mode = mode
        self._secret = secret

    def identify(self, headers: dict[bytes, bytes]) -> Client:
        """`headers` by lower-case name."""
        if self._mode == "open":
            return Client(tenant=OPEN_TENANT, credential=None)
        credential = headers.get(b"authorization") or headers.get(b"x-api-key") or headers.get(b"api-key")
        if not credential:
            return Client(tenant=ANONYMOUS_TENANT, credential=None)
        token = credential.decode("latin-1").strip()
        if b"authorization" not in headers:
            token = f"Bearer {token}"
        digest = hashlib.blake2b(token.encode(), digest_size=12, key=self._secret, person=b"lockgate-tenant")
        return Client(tenant=digest.hexdigest(), credential=token)
