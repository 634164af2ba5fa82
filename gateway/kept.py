"""An answer as the entry that it is kept as."""

from __future__ import annotations

from embeddings.protocols import Entry, FloatVector
from policies.types import Answer, Identity, Request


def new_entry(
    request: Request,
    identity: Identity,
    answer: Answer,
    *,
    expires_at: float,
    tags: tuple[str, ...] = (),
    text: str | None = None,
    space: str | None = None,
    vector: FloatVector | None = None,
) -> Entry:
    """The entry under the request's own keys. `text`, `space` and `vector` as in `Entry`."""
    return Entry(
        id=0,
        exact_key=identity.exact_key,
        partition=identity.partition,
        tenant=request.tenant,
        api=request.api,
        model=request.model,
        tags=tags,
        text=text,
        space=space,
        vector=vector,
        answer=answer,
        expires_at=expires_at,
        request=identity.request,
    )
