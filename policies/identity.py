"""Who may share an answer: settled by keyed hashes before any similarity counts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from policies.semantic_safety import why_unsafe
from policies.types import Identity, Request

SAME_ANSWER_FIELDS = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "user",
    }
)
"""Chat completion fields that do not change the answer. Every other field, known or not, is part of
the identity. docs/cache-identity.md lists them for users; a test compares the two."""

EVERYONE = "*"
"""The tenant all requests hash under when answers are shared across tenants."""

EXACT_KEY_BYTES = 32
PARTITION_BYTES = 16


def exact_key(request: Request, secret: bytes, tenant: str) -> bytes:
    """Keyed hash (BLAKE2b, RFC 7693) of the whole canonical request, 32 bytes. Equal in every process
    that holds the same secret."""
    body = {name: value for name, value in request.body.items() if name not in SAME_ANSWER_FIELDS}
    return _hash(secret, EXACT_KEY_BYTES, b"lockgate-exact", request, tenant, body)


def identify(request: Request, secret: bytes, tenant: str, exact: bytes) -> Identity:
    """The identity of a request whose `exact_key` is known.

    The partition covers everything but the text of the last message: all turns before it must be equal
    word for word, since a last message ("yes, cancel it") means nothing without them.
    """
    unsafe_reason, text = why_unsafe(request.body)
    body = {name: value for name, value in request.body.items() if name not in SAME_ANSWER_FIELDS}
    messages = list(body.get("messages") or ())
    if messages and text is not None:
        messages[-1] = {name: value for name, value in messages[-1].items() if name != "content"}
        body["messages"] = messages
    partition = _hash(secret, PARTITION_BYTES, b"lockgate-near", request, tenant, body)
    return Identity(exact_key=exact, partition=partition, text=text, unsafe_reason=unsafe_reason)


def _hash(
    secret: bytes, size: int, purpose: bytes, request: Request, tenant: str, body: Mapping[str, Any]
) -> bytes:
    # Lists keep field boundaries: ["ab", "c"] and ["a", "bc"] never serialise alike.
    canonical = orjson.dumps(
        [request.api, tenant, request.model, request.route_pin, body], option=orjson.OPT_SORT_KEYS
    )
    return hashlib.blake2b(canonical, digest_size=size, key=secret, person=purpose).digest()
