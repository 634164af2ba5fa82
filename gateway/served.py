"""Which entry answered which request: kept for a while, so that people can say that it was wrong."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

MAX_REQUESTS = 100_000


class Served(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The entry that answered a request, or that its answer was stored as."""

    entry_id: int
    by_similarity: bool


class ServedAnswers:
    """By request id, of the latest requests. Of two that came under the same id the later counts."""

    def __init__(self, max_requests: int = MAX_REQUESTS) -> None:
        self._max_requests = max_requests
        self._served: OrderedDict[str, Served] = OrderedDict()  # oldest first

    def note(self, request_id: str, entry_id: int, *, by_similarity: bool) -> None:
        self._served.pop(request_id, None)
        self._served[request_id] = Served(entry_id=entry_id, by_similarity=by_similarity)
        if len(self._served) > self._max_requests:
            self._served.popitem(last=False)

    def find(self, request_id: str) -> Served | None:
        return self._served.get(request_id)

    def __len__(self) -> int:
        return len(self._served)
