"""What a client says in the headers of its request. Names are in lower case, as servers give them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import cast

from backends.forwarding import ANSWER_CHANGING_HEADERS, upstream_may_see
from gateway.errors import RequestError
from gateway.ids import random_hex
from policies.types import CacheDirectives, Tier

RequestHeaders = Mapping[bytes, bytes]

NO_DIRECTIVES = CacheDirectives()

MAX_TAGS = 16
MAX_TTL_S = 315_360_000
_TAG = re.compile(r"[A-Za-z0-9_.:/@+-]{1,64}")
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
_SHARE = re.compile(r"0|1|0?\.[0-9]{1,9}|1\.0{1,9}")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,128}")


def request_id(headers: RequestHeaders) -> str:
    """The client's own id when it is harmless, so that its logs and ours meet; else a new one."""
    given = headers.get(b"x-request-id", b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else f"req_{random_hex()}"


def declared_length(headers: RequestHeaders) -> int | None:
    """The Content-Length a client announced, None when it announced none or nonsense."""
    value = headers.get(b"content-length", b"")
    return int(value) if value.isdigit() else None


def route_pin(headers: RequestHeaders) -> Tier | None:
    """The tier asked for in `x-lockgate-route`. Raises RequestError (400)."""
    value = headers.get(b"x-lockgate-route", b"").decode("latin-1").strip().lower()
    if value in ("", "small", "large"):
        return cast(Tier, value) if value else None
    raise RequestError(f"x-lockgate-route: expected small or large, got '{value}'.", param="x-lockgate-route")


def cache_directives(headers: RequestHeaders) -> CacheDirectives:
    """The request's `Cache-Control` (RFC 9111, section 5.2.1); directives we do not know are ignored, as
    the RFC asks. Raises RequestError (400) for a max-age that is no number."""
    if b"cache-control" not in headers:
        return NO_DIRECTIVES
    value = headers[b"cache-control"].decode("latin-1").lower()
    directives = [part.strip().partition("=") for part in value.split(",")]
    names = {name for name, _, _ in directives}
    ages = [argument.strip('" ') for name, _, argument in directives if name == "max-age"]
    if ages and not (ages[0].isascii() and ages[0].isdigit()):
        raise RequestError(
            f"cache-control: expected max-age=SECONDS, got '{ages[0]}'.", param="cache-control"
        )
    return CacheDirectives(
        no_cache="no-cache" in names,
        no_store="no-store" in names,
        only_if_cached="only-if-cached" in names,
        max_age_s=float(ages[0]) if ages else None,
    )


def tags(headers: RequestHeaders) -> tuple[str, ...]:
    """What the answer can be found by in the cache: `x-lockgate-tag`, several with commas between. Raises
    RequestError (400)."""
    value = headers.get(b"x-lockgate-tag")
    if value is None:
        return ()
    given = [part.strip() for part in value.decode("latin-1").split(",")]
    found = tuple(dict.fromkeys(filter(None, given)))
    bad = next((tag for tag in found if not _TAG.fullmatch(tag)), None)
    if bad is not None or len(found) > MAX_TAGS:
        got = f"'{bad[:80]}'" if bad is not None else f"{len(found)} tags"
        raise RequestError(
            f"x-lockgate-tag: expected up to {MAX_TAGS} tags with commas between, each of up to 64 letters,"
            f" digits and _ . : / @ + -, got {got}.",
            param="x-lockgate-tag",
        )
    return found


def ttl_s(headers: RequestHeaders) -> float | None:
    """How long the answer may be kept, `x-lockgate-ttl-s`; None when the client does not say. Raises
    RequestError (400)."""
    value = headers.get(b"x-lockgate-ttl-s")
    if value is None:
        return None
    text = value.decode("latin-1").strip()
    if _SECONDS.fullmatch(text) and float(text) <= MAX_TTL_S:
        return float(text)
    raise RequestError(
        f"x-lockgate-ttl-s: expected seconds, 0 (not kept) to {MAX_TTL_S} (ten years), got '{text[:80]}'.",
        param="x-lockgate-ttl-s",
    )


def max_error_rate(headers: RequestHeaders) -> float | None:
    """The share of wrong answers that the client allows, `x-lockgate-max-error-rate`; None when it does not
    say. Raises RequestError (400)."""
    value = headers.get(b"x-lockgate-max-error-rate")
    if value is None:
        return None
    text = value.decode("latin-1").strip()
    if _SHARE.fullmatch(text):
        return float(text)
    raise RequestError(
        f"x-lockgate-max-error-rate: expected a share from 0 to 1, such as 0.005, got '{text[:80]}'.",
        param="x-lockgate-max-error-rate",
    )


class HeaderPolicy:
    """Which of a client's headers go upstream. `also` are those that the config adds (`forward_headers`)."""

    def __init__(self, also: Iterable[str] = ()) -> None:
        self._also = frozenset(name.lower() for name in also)
        self._shown_upstream = lru_cache(maxsize=1024)(self._name_shown)
        self._variant = [name.encode() for name in sorted(ANSWER_CHANGING_HEADERS | self._also)]
        self._marks = [
            b"cache-control",
            b"x-lockgate-route",
            b"x-lockgate-tag",
            b"x-lockgate-ttl-s",
            b"x-lockgate-max-error-rate",
            *self._variant,
        ]

    def _name_shown(self, name: bytes) -> str:
        text = name.decode("latin-1")
        return text if upstream_may_see(text, self._also) else ""

    def marks(self, headers: RequestHeaders) -> list[bytes | None]:
        """All that a Request takes from the headers, as it came."""
        return [headers.get(name) for name in self._marks]

    def variant(self, headers: RequestHeaders) -> dict[str, str]:
        """Those that pick another behaviour of the API, and so are part of who may share an answer: what the
        config adds may be one, for all we know."""
        return {name.decode(): headers[name].decode("latin-1") for name in self._variant if name in headers}

    def forwarded(self, headers: RequestHeaders, request_id: str) -> dict[str, str]:
        """Those that go upstream, with the request's id. A tab becomes a space: HTTP allows both in a value
        (RFC 9110, section 5.5), but the client that sends it on does not."""
        kept = {
            shown: value.decode("latin-1").replace("\t", " ")
            for name, value in headers.items()
            if (shown := self._shown_upstream(name))
        }
        return {**kept, "x-request-id": request_id}

    @property
    def also(self) -> frozenset[str]:
        return self._also
