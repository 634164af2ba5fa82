"""What the admin API over the cache's entries is asked and answers: the types, and what they cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

from msgspec import Meta, Struct
from starlette.datastructures import QueryParams
from starlette.requests import Request

from embeddings.protocols import EntryFilter
from gateway.errors import RequestError
from gateway.http import ClientLeft, read_body
from gateway.request_headers import declared_length
from gateway.wire.validation import checked, field_error, parse_object
from policies.types import Api

GREATEST_ID = 2**63 - 1
MAX_LIMIT = 500
DEFAULT_LIMIT = 50
MAX_SAMPLE = 20

Action = Literal["noted", "withdrawn", "removed"]
APIS: tuple[Api, ...] = get_args(Api)
FILTERS = EntryFilter.__struct_fields__

EntryId = Annotated[int, Meta(ge=1, le=GREATEST_ID)]
_Given = Annotated[str, Meta(min_length=1)]
_Form = TypeVar("_Form", bound=Struct)


class CachedEntry(Struct, frozen=True, kw_only=True):
    """`model` was asked for, `answered_by` is the upstream's name of who answered. `text` is the question as
    it is compared; `semantic`: the entry is found by similarity too. `hits`: how often it was served.
    `judged_right` and `judged_wrong`: what was said of its answer. Times are Unix seconds."""

    id: int
    tenant: str
    api: Api
    model: str
    answered_by: str
    tags: tuple[str, ...]
    text: str | None
    semantic: bool
    created_at: float
    expires_at: float
    age_s: float
    hits: int
    last_used_at: float
    judged_right: int
    judged_wrong: int
    stored_bytes: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float


class CachedRequest(Struct, frozen=True, kw_only=True):
    """All that changes the answer. `route_pin` is its x-lockgate-route, `variant` its headers that pick
    another behaviour of the API."""

    api: Api
    model: str
    route_pin: str | None
    variant: Mapping[str, str]
    body: Mapping[str, Any]


class CachedEntryDetail(CachedEntry, frozen=True, kw_only=True):
    """An entry with what was asked, and the answer as it is stored, in the form of its API."""

    request: CachedRequest | None
    answer: Mapping[str, Any]


class CachedEntryPage(Struct, frozen=True, kw_only=True):
    """Newest first. `next` is the `before` of the next page; null on the last one."""

    entries: list[CachedEntry]
    next: int | None


class Removed(Struct, frozen=True, kw_only=True):
    removed: int


class InvalidateRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes fits every criterion that is given; at least one is, or `all` is true. `model` was asked for
    or answered; `text` is contained in the question, letter case aside. `similar_to`: the question's cosine
    to this text reaches `min_similarity`, by default what the cache policy asks of a hit. With `dry_run`
    nothing goes."""

    tenant: _Given | None = None
    api: Api | None = None
    model: _Given | None = None
    tag: _Given | None = None
    text: _Given | None = None
    similar_to: Annotated[str, Meta(pattern=r"\S")] | None = None
    min_similarity: Annotated[float, Meta(ge=-1, le=1)] | None = None
    dry_run: bool = False
    all: bool = False

    def which(self) -> EntryFilter:
        """The criteria but `similar_to`."""
        return EntryFilter(**{name: getattr(self, name) for name in FILTERS})

    def criteria(self) -> tuple[str, ...]:
        """The names of those that are given."""
        return tuple(name for name in CRITERIA if getattr(self, name) is not None)


CRITERIA = (*FILTERS, "similar_to")


class MatchedEntry(Struct, frozen=True, kw_only=True):
    """`similarity`: of `text` and `similar_to`, where that was asked for."""

    id: int
    text: str | None
    similarity: float | None = None


class Invalidated(Struct, frozen=True, kw_only=True):
    """`sample`: some of what matched, the newest or the most similar first."""

    matched: int
    removed: int
    dry_run: bool
    sample: Annotated[list[MatchedEntry], Meta(max_length=MAX_SAMPLE)]


class FeedbackRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether an entry's answer, or the answer to a request, was right: one of `entry` and `request_id`."""

    correct: bool
    entry: EntryId | None = None
    request_id: _Given | None = None


class FeedbackTaken(Struct, frozen=True, kw_only=True):
    """What became of the entry. `withdrawn`: from now on it is served by exact match only."""

    entry: int
    action: Action


FORMS = (
    CachedEntryPage,
    CachedEntryDetail,
    Removed,
    InvalidateRequest,
    Invalidated,
    FeedbackRequest,
    FeedbackTaken,
)


def page_of(query: QueryParams) -> tuple[EntryFilter, int | None, int]:
    """The entries that `GET /admin/entries` is asked for: which, `before` and `limit`. Raises RequestError
    (400)."""
    known = (*FILTERS, "before", "limit")
    for name in query:
        if name not in known:
            raise field_error(name[:80], f"expected one of the parameters {', '.join(known)}")
        if len(query.getlist(name)) > 1:
            raise field_error(name, "expected one value, got several")
    given = {name: query[name] for name in FILTERS if name in query}
    for name, value in given.items():
        if not value:
            raise field_error(name, "expected a text that is not empty")
    which = checked(given, EntryFilter, choices={"api": APIS})
    before = _number(query, "before", GREATEST_ID)
    return which, before, _number(query, "limit", MAX_LIMIT) or DEFAULT_LIMIT


def _number(query: QueryParams, name: str, greatest: int) -> int | None:
    given = query.get(name)
    if given is None:
        return None
    number = whole_number(given, greatest)
    if number is None:
        raise field_error(name, f"expected a whole number from 1 to {greatest}, got '{given[:80]}'")
    return number


def whole_number(text: str, greatest: int) -> int | None:
    """None for what is not one from 1 to `greatest`."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(greatest))):
        return None
    number = int(text)
    return number if 1 <= number <= greatest else None


async def body_of(request: Request, max_bytes: int) -> dict[str, Any]:
    """The JSON object that is posted. Raises RequestError (400, 413, and 415 for what is not said to be JSON:
    a form on a web page of somebody else's can post to this machine, but not as JSON)."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(f"content-type: expected application/json, got '{kind[:80]}'.", status=415)
    declared = declared_length(dict(request.scope["headers"]))
    try:
        return parse_object(await read_body(request.receive, declared=declared, limit=max_bytes))
    except ClientLeft:
        raise RequestError("The client left before its body was read.", status=499) from None


def invalidation(body: dict[str, Any]) -> InvalidateRequest:
    """Raises RequestError (400)."""
    form = _form(body, InvalidateRequest)
    if not (form.all or form.criteria()):
        raise field_error(
            None, f'expected at least one of {", ".join(CRITERIA)}, or "all": true to remove every entry'
        )
    if form.all and form.criteria():
        raise field_error("all", f"expected no other criterion beside it, got {', '.join(form.criteria())}")
    if form.min_similarity is not None and form.similar_to is None:
        raise field_error("min_similarity", "expected similar_to beside it")
    return form


def feedback(body: dict[str, Any]) -> FeedbackRequest:
    """Raises RequestError (400)."""
    form = _form(body, FeedbackRequest)
    if (form.entry is None) == (form.request_id is None):
        given = "neither" if form.entry is None else "both"
        raise field_error("entry", f"expected one of entry and request_id, got {given}")
    return form


def _form(body: dict[str, Any], form: type[_Form]) -> _Form:
    for name in body:
        if name not in form.__struct_fields__:
            raise field_error(name[:80], f"expected one of the fields {', '.join(form.__struct_fields__)}")
    return checked(body, form, choices={"api": APIS})
