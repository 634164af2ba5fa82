"""Requests that came before, byte for byte: what they say need not be worked out again."""

from __future__ import annotations

from collections import OrderedDict

from policies.types import Request

MAX_BODY_BYTES = 16 * 1024
MAX_TOTAL_BYTES = 2 * 1024 * 1024

Marks = tuple[bytes | str | None, ...]
"""The body, and all else that the request and its exact key are made from."""


class RepeatedRequests:
    """The requests answered by exact match lately, with their exact keys: others are hardly asked again.
    Bounded by the bytes of their bodies."""

    def __init__(self, max_total_bytes: int = MAX_TOTAL_BYTES) -> None:
        self._max_total_bytes = max_total_bytes
        self._total_bytes = 0
        self._known: OrderedDict[Marks, tuple[Request, bytes, int]] = OrderedDict()  # oldest first

    def get(self, marks: Marks) -> tuple[Request, bytes] | None:
        known = self._known.get(marks)
        if known is None:
            return None
        self._known.move_to_end(marks)
        return known[0], known[1]

    def add(self, marks: Marks, size: int, request: Request, key: bytes) -> None:
        """`size` is that of the body in bytes."""
        if size > MAX_BODY_BYTES or marks in self._known:
            return
        self._known[marks] = request, key, size
        self._total_bytes += size
        while self._total_bytes > self._max_total_bytes:
            _, (_, _, oldest) = self._known.popitem(last=False)
            self._total_bytes -= oldest

    def __len__(self) -> int:
        return len(self._known)
