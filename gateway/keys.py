"""Lockgate's own API keys. Only their SHA-256 is kept: a key is random and long, so it needs no salt."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gateway.settings import AuthKey

PREFIX = "lg-"
_RANDOM_BYTES = 32
_BUCKET_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key as the gateway knows it. `sha256` is the digest of the key's bytes, 32 bytes."""

    name: str
    tenant: str
    sha256: bytes = field(repr=False)


class KeyRing:
    """The keys that are let in, found by digest."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        # Candidates come by the digest's beginning and are compared in constant time: how long that takes
        # tells nothing of the rest. A digest is no key, and nobody can choose one bit by bit.
        self._buckets: dict[bytes, list[Key]] = {}
        for key in keys:
            self._buckets.setdefault(key.sha256[:_BUCKET_BYTES], []).append(key)

    def find(self, secret: bytes) -> Key | None:
        """The key whose bytes these are, None when there is none."""
        digest = hashlib.sha256(secret).digest()
        found = None
        for key in self._buckets.get(digest[:_BUCKET_BYTES], ()):
            if hmac.compare_digest(key.sha256, digest):
                found = key
        return found


def key_ring(keys: Mapping[str, AuthKey]) -> KeyRing:
    """The ring of the [auth.keys.NAME] tables. A key without a tenant is a tenant of its own."""
    return KeyRing(
        Key(name=name, tenant=key.tenant or name, sha256=bytes.fromhex(key.sha256))
        for name, key in keys.items()
    )


def new_key() -> str:
    """A key with 256 random bits, in characters that need no quoting anywhere."""
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def sha256_of(key: str) -> str:
    """What config.toml holds instead of the key: 64 hex digits."""
    return hashlib.sha256(key.encode()).hexdigest()
