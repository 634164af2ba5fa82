"""The headers that `/openapi.json` describes: of requests and of answers."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.openapi_schemas import Schema
from gateway.request_headers import MAX_TAGS

_TAG = "([A-Za-z0-9_.:/@+-]{1,64})?"
_TAGS = f"^{_TAG}( *, *{_TAG}){{0,{MAX_TAGS - 1}}}$"

HEADERS: Mapping[str, tuple[Schema, str]] = {
    "x-lockgate-max-error-rate": (
        {"type": "string", "pattern": r"^(0|1|0?\.[0-9]{1,9}|1\.0{1,9})$", "examples": ["0.001"]},
        "Serve from the semantic cache at a risk no greater; it may only tighten the policy's.",
    ),
    "x-request-id": ({"type": "string"}, "The client's own id where it is harmless, else a new one."),
    "request-id": ({"type": "string"}, "The same, where Anthropic's clients look for it."),
    "x-lockgate-cache": (
        {"enum": ["hit-exact", "hit-semantic", "miss", "bypass", "coalesced"]},
        "Where the answer came from. `coalesced`: it shared the call of an equal request.",
    ),
    "x-lockgate-reason": ({"type": "string"}, "Why."),
    "x-lockgate-entry": ({"type": "integer"}, "On a hit: the entry."),
    "x-lockgate-similarity": (
        {"type": "number", "minimum": -1, "maximum": 1},
        "On a hit: the cosine of the question and the entry's.",
    ),
    "x-lockgate-confidence": (
        {"type": "number", "minimum": 0, "maximum": 1},
        "On a hit: how sure the policy is that the answer is right, where it can tell.",
    ),
    "age": ({"type": "integer", "minimum": 0}, "On a hit: the answer's age in seconds."),
    "x-lockgate-route": ({"type": "string"}, "On generation: `small`, `large` or `direct`."),
    "x-lockgate-route-reason": ({"type": "string"}, "Why."),
    "x-lockgate-model": ({"type": "string"}, "The model that answers, by the backend's name for it."),
    "x-lockgate-backend": ({"type": "string"}, "The backend that answers."),
    "x-lockgate-attempts": ({"type": "string"}, "Who was asked, in order, and how each attempt ended."),
    "x-lockgate-estimated": ({"enum": ["true"]}, "The count is an estimate from the lengths of the texts."),
    "cache-status": ({"type": "string"}, "The same for standard tools (RFC 9211)."),
    "server-timing": ({"type": "string"}, "Milliseconds by stage."),
    "retry-after": ({"type": "string"}, "When to try again."),
    "x-should-retry": ({"enum": ["true", "false"]}, "Whether the official clients should try again."),
    "x-ratelimit-limit-requests": ({"type": "string"}, "What the key may use in a minute."),
    "x-ratelimit-limit-tokens": ({"type": "string"}, "The same of tokens."),
    "x-ratelimit-remaining-requests": ({"type": "string"}, "What is left of it."),
    "x-ratelimit-remaining-tokens": ({"type": "string"}, "The same of tokens."),
    "x-ratelimit-reset-requests": ({"type": "string"}, "When all of it is back, as 1m30s."),
    "x-ratelimit-reset-tokens": ({"type": "string"}, "The same of tokens."),
    "x-lockgate-budget-remaining-usd": (
        {"type": "number"},
        "What is left of the key's budget, without this request's own cost.",
    ),
    "www-authenticate": ({"type": "string"}, "The scheme that is asked for."),
}
OF_LIMITS = tuple(name for name in HEADERS if name.startswith(("x-ratelimit-", "x-lockgate-budget-")))
OF_A_HIT = ("x-lockgate-entry", "x-lockgate-similarity", "x-lockgate-confidence", "age")
OF_EVERY_ANSWER = ("x-request-id", "x-lockgate-cache", "x-lockgate-reason", "cache-status")
OF_GENERATION = (
    "x-lockgate-route",
    "x-lockgate-route-reason",
    "x-lockgate-model",
    "x-lockgate-backend",
    "x-lockgate-attempts",
    "server-timing",
)

PARAMETERS: Mapping[str, tuple[Schema, str]] = {
    "cache-control": (
        {"type": "string", "examples": ["no-cache", "no-store", "max-age=60"]},
        "Of RFC 9111: no-cache (generate, and keep the new answer), no-store (keep nothing), only-if-cached "
        "(504 when there is no answer yet), max-age=SECONDS (no answer older than that).",
    ),
    "x-lockgate-route": ({"type": "string", "enum": ["small", "large"]}, "Pins the model of a route."),
    "x-lockgate-tag": (
        {"type": "string", "pattern": _TAGS, "examples": ["faq, v2"]},
        "What the answer can be found and removed by in the cache.",
    ),
    "x-lockgate-ttl-s": (
        {"type": "string", "pattern": r"^[0-9]{1,8}(\.[0-9]{1,6})?$", "examples": ["3600"]},
        "How many seconds the answer may be kept, at most; 0: not at all.",
    ),
    "x-lockgate-max-error-rate": (
        {"type": "string", "pattern": r"^(0|1|0?\.[0-9]{1,9}|1\.0{1,9})$", "examples": ["0.001"]},
        "Serve from the semantic cache at a risk no greater; it may only tighten the policy's.",
    ),
    "x-request-id": ({"type": "string"}, "The client's id for this request."),
    "traceparent": ({"type": "string"}, "Passed to the backend (W3C Trace Context)."),
    "anthropic-version": (
        {"type": "string"},
        "Passed to the backend. Models are listed in Anthropic's form.",
    ),
}
