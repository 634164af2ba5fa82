"""The admin paths of `/openapi.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.admin_forms import APIS, DEFAULT_LIMIT, GREATEST_ID, MAX_LIMIT
from gateway.openapi_operations import Security, operation, query
from gateway.openapi_schemas import Schema, ref
from gateway.stats import DIMENSIONS, FORMATS

_TAG = "Administration"
_REFUSED = {
    "401": "The admin token is needed.",
    "403": "Without server.admin_token: for this machine only.",
}
_OF_ENTRIES = {
    **_REFUSED,
    "409": "The cache is off.",
    "503": "The store or the embedder fails; the error says what to do.",
}
_BAD_PARAMETER = {"400": "A query parameter is wrong; the error names it."}
_BAD_BODY = {
    "400": "The body is wrong; the error names the field.",
    "413": "The body is larger than server.max_body_bytes.",
    "415": "The content-type is not application/json.",
}
_NO_ENTRY = {"404": "There is no such entry."}


def admin_paths(security: Security) -> dict[str, Any]:
    entry_id: Schema = {"type": "integer", "minimum": 1, "maximum": GREATEST_ID}
    path_id: Schema = {"name": "id", "in": "path", "required": True, "schema": entry_id}

    def on_entries(
        name: str, summary: str, answer: str, errors: Mapping[str, str], **further: Any
    ) -> dict[str, Any]:
        return operation(
            name, summary, ref(answer), _TAG, errors={**_OF_ENTRIES, **errors}, security=security, **further
        )

    return {
        "/admin/stats": {"get": _stats(security)},
        "/admin/entries": {
            "get": on_entries(
                "listEntries",
                "The cache's unexpired entries, newest first",
                "CachedEntryPage",
                _BAD_PARAMETER,
                parameters=_entry_parameters(entry_id),
            )
        },
        "/admin/entries/{id}": {
            "get": on_entries(
                "getEntry",
                "One entry, what was asked and the answer",
                "CachedEntryDetail",
                _NO_ENTRY,
                parameters=[path_id],
            ),
            "delete": on_entries(
                "removeEntry", "Remove one entry", "Removed", _NO_ENTRY, parameters=[path_id]
            ),
        },
        "/admin/invalidate": {
            "post": on_entries(
                "invalidateEntries",
                "Remove entries",
                "Invalidated",
                _BAD_BODY,
                body=ref("InvalidateRequest"),
            )
        },
        "/admin/feedback": {
            "post": on_entries(
                "giveFeedback",
                "Say whether an answer from the cache was right: one that was not is not served again",
                "FeedbackTaken",
                {**_BAD_BODY, "404": "No such entry, or none is known for that request."},
                body=ref("FeedbackRequest"),
            )
        },
    }


def _stats(security: Security) -> dict[str, Any]:
    day: Schema = {"type": "string", "format": "date"}
    found = operation(
        "getStats",
        "What was done, spent and saved",
        {"anyOf": [ref("Stats"), ref("LedgerStats")]},
        _TAG,
        security=security,
        parameters=[
            query(
                "by",
                {"enum": list(DIMENSIONS)},
                "Money and tokens by this, from the ledger. The rest needs it.",
            ),
            query("since", day, "From this UTC day on."),
            query("until", day, "Up to and including this UTC day."),
            query(
                "format",
                {"enum": list(FORMATS), "default": "json"},
                "CSV (RFC 4180) comes without the total.",
            ),
        ],
        errors={**_BAD_PARAMETER, **_REFUSED, "503": "The ledger or the store cannot be read."},
    )
    found["responses"]["200"]["content"]["text/csv"] = {"schema": {"type": "string"}}
    return found


def _entry_parameters(entry_id: Schema) -> list[Schema]:
    given: Schema = {"type": "string", "minLength": 1}
    limit: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
    return [
        query("tenant", given, "Whose answers."),
        query("api", {"type": "string", "enum": list(APIS)}, "Of this API."),
        query("model", given, "Who was asked for, or who answered."),
        query("tag", given, "With this tag."),
        query("text", given, "The question contains this, letter case aside."),
        query("before", entry_id, "Only entries older than this one: the `next` of the page before."),
        query("limit", limit, "How many at most."),
    ]
