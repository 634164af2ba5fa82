"""Entries from elsewhere, made entries of this store: found by whoever asks the same of this gateway."""

from __future__ import annotations

import msgspec

from embeddings.protocols import Entry
from gateway.cache_transfer import Incoming, Left, TransferError
from gateway.errors import RequestError
from gateway.kept import new_entry
from gateway.routing import asked_texts
from gateway.wire.dialect import Dialect, Json
from gateway.wire.dialects import Dialects
from policies.identity import exact_key, identify
from policies.sharing import SharingRules


class Rekeyed(msgspec.Struct, frozen=True, kw_only=True):
    """`entry` has no vector yet. `shared`: every tenant is served it."""

    incoming: Incoming
    entry: Entry
    shared: bool


class Rekeying:
    """Finds an entry's keys anew, as `gateway.lookup` does for a request, and holds its answer to what is
    asked of one that is stored here."""

    def __init__(
        self, *, dialects: Dialects, rules: SharingRules, secret: bytes, conversations: bool = False
    ) -> None:
        self._conversations = conversations
        self._dialects = dialects
        self._rules = rules
        self._secret = secret

    def rekeyed(self, incoming: Incoming, now: float, ttl_s: float | None) -> Rekeyed | Left:
        """`ttl_s` is what an entry that has expired gets from now on; None: it is left. Raises
        TransferError."""
        request = incoming.request
        dialect = self._dialects.of(request.api)
        try:
            asked = dialect.check(dict(request.body))
        except RequestError as error:
            raise TransferError(f"{incoming.where}: request: {error}") from None
        if asked.model != request.model:
            raise TransferError(f"{incoming.where}: request: expected the same model twice")
        if why := _why_not_served(dialect, incoming):
            return Left(reason=why)
        chat = dialect.chat_view(request.body)
        restriction = self._rules.restriction(
            request.api, request.body, asked_texts(chat.get("messages") or ())
        )
        expires_at = incoming.expires_at
        if expires_at <= now:
            if ttl_s is None:
                return Left(reason="expired")
            expires_at = now + ttl_s
        if restriction.max_ttl_s is not None:
            expires_at = min(expires_at, incoming.answer.created_at + restriction.max_ttl_s)
            if expires_at <= now:
                return Left(reason=f"not to be kept: {restriction.reason}")
        tenant = self._rules.tenant(request)
        identity = identify(
            request,
            self._secret,
            tenant,
            exact_key(request, self._secret, tenant),
            chat=chat,
            without_question=dialect.without_question,
            conversations=self._conversations,
        )
        comparable = incoming.text is not None and not restriction.reason
        entry = new_entry(
            request,
            identity,
            incoming.answer,
            expires_at=expires_at,
            tags=incoming.tags,
            text=identity.text if comparable else None,
        )
        return Rekeyed(incoming=incoming, entry=entry, shared=tenant == "")


def _why_not_served(dialect: Dialect, incoming: Incoming) -> str:
    """ "" for an answer that a client can be served. Raises TransferError for what is none of its API."""
    body: Json = incoming.answer.body
    try:
        why = dialect.why_not_stored(body)
        if not why:
            fresh = dialect.renewed(body, model=incoming.request.model, now=incoming.answer.created_at)
            dialect.usage(fresh)
            for _ in dialect.events(fresh, include_usage=True):
                pass
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise TransferError(
            f"{incoming.where}: answer.body: expected an answer of the API {dialect.api}"
        ) from None
    return why
