"""Which entry answered which request: kept for a while, so that people can say that it was wrong."""

from __future__ import annotations

import msgspec

KEPT = 25_000


class Served(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The entry that answered a request, or that its answer was stored as. `probability`: what the verifier
    had said, where an entry was served by similarity."""

    entry_id: int
    by_similarity: bool
    probability: float | None = None


class ServedAnswers:
    """By request id, of the latest `kept` requests at least, and twice as many at most. Of two that came
    under the same id the later counts."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._young: dict[str, Served] = {}
        self._old: dict[str, Served] = {}

    def note(
        self, request_id: str, entry_id: int, *, by_similarity: bool, probability: float | None = None
    ) -> None:
        if len(self._young) == self._kept:
            self._old, self._young = self._young, {}
        self._young[request_id] = Served(
            entry_id=entry_id, by_similarity=by_similarity, probability=probability
        )

    def find(self, request_id: str) -> Served | None:
        return self._young.get(request_id) or self._old.get(request_id)
