"""Who may share an answer: settled by keyed hashes before any similarity counts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

import orjson

from policies.conversation import SYSTEM_ROLES, as_text, gist, turns_of
from policies.semantic_safety import why_unsafe
from policies.types import Api, Identity, Request

_OPENAI = frozenset(
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
SAME_ANSWER_FIELDS: Mapping[Api, frozenset[str]] = {
    "chat": _OPENAI,
    "completions": frozenset({"stream", "stream_options", "user"}),
    # A response that is not stored upstream cannot be continued: `store` is part of what was asked.
    "responses": _OPENAI - {"store"},
    "messages": frozenset({"metadata", "service_tier", "stream"}),
    "embeddings": frozenset({"user"}),
}
"""By API, the fields that do not change the answer. Every other field, known or not, is part of the
identity. docs/cache-identity.md lists them for users; a test compares the two."""

_IN_TURNS: frozenset[Api] = frozenset({"chat", "messages"})
"""APIs whose requests hold the turns of a conversation under `messages`."""

EVERYONE = "*"
"""The tenant all requests hash under when answers are shared across tenants."""

EXACT_KEY_BYTES = 32
PARTITION_BYTES = 16


def exact_key(request: Request, secret: bytes, tenant: str) -> bytes:
    """Keyed hash (BLAKE2b, RFC 7693) of the whole canonical request, 32 bytes. Equal in every process
    that holds the same secret."""
    return _keyed(canonical(request, tenant), secret, EXACT_KEY_BYTES, b"lockgate-exact")


def identify(
    request: Request,
    secret: bytes,
    tenant: str,
    exact: bytes,
    *,
    chat: Mapping[str, Any],
    without_question: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    conversations: bool = False,
) -> Identity:
    """The identity of a request whose `exact_key` is known.

    `chat` asks the same as the request in the form of a chat completion; `without_question` takes the text
    of its last message out of the request's own body. The partition covers everything but that text: all
    turns before it must be equal word for word, since a last message ("yes, cancel it") means nothing
    without them. With `conversations` there is somebody who compares these too: then the partition leaves out
    all turns, and the text is the whole conversation.
    """
    unsafe_reason, text = why_unsafe(chat)
    turns = turns_of(chat["messages"]) if conversations and text and request.api in _IN_TURNS else None
    whole = None if turns is None else as_text(turns)
    if turns is not None and whole is not None:
        return Identity(
            exact_key=exact,
            partition=_keyed(
                _canonical(request, tenant, _without_turns(request.body)),
                secret,
                PARTITION_BYTES,
                b"lockgate-talk",
            ),
            text=whole,
            request=canonical(request, tenant),
            owner=(tenant, request.api, request.model),
            kind="conversation",
            searched_by=gist(turns),
        )
    body = request.body if text is None else without_question(request.body)
    partition = _keyed(_canonical(request, tenant, body), secret, PARTITION_BYTES, b"lockgate-near")
    return Identity(
        exact_key=exact,
        partition=partition,
        text=text,
        unsafe_reason=unsafe_reason,
        request=canonical(request, tenant),
        owner=(tenant, request.api, request.model),
    )


def _without_turns(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the leading system messages alone."""
    leading = takewhile(lambda message: message.get("role") in SYSTEM_ROLES, body["messages"])
    return {**body, "messages": list(leading)}


def canonical(request: Request, tenant: str) -> bytes:
    """What the exact key is the hash of: all that changes the answer, as JSON with sorted keys."""
    return _canonical(request, tenant, request.body)


def _canonical(request: Request, tenant: str, body: Mapping[str, Any]) -> bytes:
    same = SAME_ANSWER_FIELDS[request.api]
    rest = {name: value for name, value in body.items() if name not in same}
    # Lists keep field boundaries: ["ab", "c"] and ["a", "bc"] never serialise alike.
    return orjson.dumps(
        [request.api, tenant, request.model, request.route_pin, request.variant, rest],
        option=orjson.OPT_SORT_KEYS,
    )


def request_of(canonical: bytes) -> tuple[Request, str]:
    """The request that `canonical` was made from, without the fields that do not change its answer, and the
    tenant it was hashed under. Raises ValueError."""
    api, tenant, model, route_pin, variant, body = orjson.loads(canonical)
    request = Request(api=api, model=model, body=body, tenant=tenant, route_pin=route_pin, variant=variant)
    return request, tenant


def _keyed(canonical: bytes, secret: bytes, size: int, purpose: bytes) -> bytes:
    return hashlib.blake2b(canonical, digest_size=size, key=secret, person=purpose).digest()
