"""The key ring: who is let in by which bytes."""

from __future__ import annotations

import hashlib

from gateway.keys import Key, KeyRing, key_ring, new_key, sha256_of
from gateway.settings import AuthKey


def key(name: str, secret: str) -> Key:
    return Key(name=name, tenant=name, sha256=hashlib.sha256(secret.encode()).digest())


def test_a_key_is_found_by_its_bytes_and_only_by_them() -> None:
    ring = KeyRing([key("web", "lg-one"), key("batch", "lg-two")])
    found = [ring.find(secret) for secret in (b"lg-one", b"lg-two", b"lg-On", b"", b"lg-one ", b"\xff\x00")]
    assert [one.name if one else None for one in found] == ["web", "batch", None, None, None, None]


def test_a_digest_that_only_begins_alike_is_not_enough() -> None:
    digest = hashlib.sha256(b"lg-one").digest()
    near = Key(name="near", tenant="near", sha256=digest[:31] + bytes([digest[31] ^ 1]))
    assert KeyRing([near]).find(b"lg-one") is None
    both = KeyRing([near, key("web", "lg-one"), near]).find(b"lg-one")
    assert both is not None
    assert both.name == "web"


def test_the_digest_of_a_key_is_no_key() -> None:
    ring = KeyRing([key("web", "lg-one")])
    assert ring.find(sha256_of("lg-one").encode()) is None
    assert ring.find(hashlib.sha256(b"lg-one").digest()) is None


def test_an_empty_ring_lets_nobody_in() -> None:
    assert KeyRing().find(b"") is None


def test_tables_become_keys_and_a_key_without_a_tenant_is_one() -> None:
    ring = key_ring(
        {
            "web": AuthKey(sha256=sha256_of("lg-one").upper(), tenant="shop"),
            "batch": AuthKey(sha256=sha256_of("lg-two")),
        }
    )
    web, batch = ring.find(b"lg-one"), ring.find(b"lg-two")
    assert web is not None
    assert batch is not None
    assert (web.name, web.tenant, batch.name, batch.tenant) == ("web", "shop", "batch", "batch")


def test_a_key_does_not_show_its_digest() -> None:
    one = key("web", "lg-one")
    assert sha256_of("lg-one") not in repr(one)
    assert repr(one.sha256) not in repr(one)


def test_new_keys_are_long_differ_and_fit_a_header() -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(
        one.startswith("lg-") and len(one) >= 43 and one.isascii() and one.isprintable() for one in made
    )
