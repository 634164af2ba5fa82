"""Requests that came before, byte for byte: what they say need not be worked out again."""

from __future__ import annotations

from collections import OrderedDict

from policies.types import Request

MAX_BODY_BYTES = 16 * 1024
MAX_TOTAL_BYTES = 2 * 1024 * 1024

Marks = tuple[bytes | str | None, ...]
"""All else that the request and its exact key are made from."""


class RepeatedRequests:
    """The requests answered by exact match lately, with their exact keys: others are hardly asked again.
    Bounded by the bytes of their bodies."""

    def __init__(self, max_total_bytes: int = MAX_TOTAL_BYTES) -> None:
        self._max_total_bytes = max_total_bytes
        self._total_bytes = 0
        self._known: OrderedDict[tuple[bytes, Marks], tuple[Request, bytes]] = OrderedDict()  # oldest first

    def get(self, body: bytes, marks: Marks) -> tuple[Request, bytes] | None:
        if len(body) > MAX_BODY_BYTES:  # it is not there, and megabytes take long to hash
            return None
        known = self._known.get((body, marks))
        if known is not None:
            self._known.move_to_end((body, marks))
        return known

    def add(self, body: bytes, marks: Marks, request: Request, key: bytes) -> None:
        if len(body) > MAX_BODY_BYTES or (body, marks) in self._known:
            return
        self._known[body, marks] = request, key
        self._total_bytes += len(body)
        while self._total_bytes > self._max_total_bytes:
            (oldest, _), _ = self._known.popitem(last=False)
            self._total_bytes -= len(oldest)

    def __len__(self) -> int:
        return len(self._known)
