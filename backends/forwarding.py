"""Which headers pass through the gateway. What is not named here stays where it is: cookies, credentials,
hop-by-hop headers (RFC 9110, section 7.6.1), the host, and all that nobody is known to need."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

UPSTREAM_MAY_SEE = frozenset(
    {
        "accept-language",
        "baggage",
        "idempotency-key",
        "traceparent",
        "tracestate",
        "user-agent",
        "x-request-id",
    }
)
UPSTREAM_PREFIXES = ("anthropic-", "openai-", "x-stainless-")
"""Of the official clients: https://platform.openai.com/docs/api-reference, https://docs.anthropic.com."""

CLIENT_MAY_SEE_NAMES = frozenset({"retry-after", "retry-after-ms", "x-should-retry"})
CLIENT_PREFIXES = ("anthropic-", "openai-", "x-ratelimit-")

RAW_UPSTREAM = UPSTREAM_MAY_SEE | {
    "accept",
    "accept-encoding",
    "content-encoding",
    "content-type",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "range",
}
RAW_CLIENT = CLIENT_MAY_SEE_NAMES | {
    "accept-ranges",
    "allow",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-range",
    "content-type",
    "etag",
    "expires",
    "last-modified",
    "location",
}

ANSWER_CHANGING_HEADERS = frozenset({"anthropic-beta", "anthropic-version", "openai-beta"})
"""Headers that pick another behaviour of the API: part of who may share an answer."""


_FORWARDERS_OWN = frozenset({"content-length", "host", "transfer-encoding", "x-request-id"})


def client_may_see(name: str) -> bool:
    """Whether a header of an upstream's answer (lower-case name) is passed to the client."""
    return name in CLIENT_MAY_SEE_NAMES or name.startswith(CLIENT_PREFIXES)


@lru_cache(maxsize=1024)
def shown_to_client(name: str) -> str:
    """The lower-case name of a header that is passed to the client; "" for one that is not."""
    lower = name.lower()
    return lower if client_may_see(lower) else ""


def upstream_may_see(name: str, also: frozenset[str] = frozenset()) -> bool:
    """Whether a header of a client's request (lower-case name) is passed upstream."""
    return name in UPSTREAM_MAY_SEE or name.startswith(UPSTREAM_PREFIXES) or name in also


def raw_upstream_headers(headers: Iterable[tuple[str, str]], also: frozenset[str]) -> list[tuple[str, str]]:
    """What of a request passed through byte for byte goes upstream (lower-case names). Its id is left out:
    whoever forwards it gives it one. So is the length: only a body that is read to its end has it."""
    return [
        (name, value)
        for name, value in headers
        if (name in RAW_UPSTREAM or name.startswith(UPSTREAM_PREFIXES) or name in also)
        and name not in _FORWARDERS_OWN
    ]


def raw_client_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """What of an answer passed through byte for byte goes to the client."""
    return [
        (lower, value)
        for name, value in headers
        if (lower := name.lower()) in RAW_CLIENT or lower.startswith(CLIENT_PREFIXES)
    ]
