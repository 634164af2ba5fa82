"""Parsed entries kept at hand, so that a hot answer is served without reading the store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import orjson

from embeddings.entry_record import CLOCK_TOLERANCE_S
from embeddings.protocols import Entry

ENTRY_OVERHEAD_BYTES = 512


class HotEntries:
    """The most recently served entries, up to `max_bytes` of body (as JSON), text and vector.

    It must never outlive the store's word: whoever removes or replaces in the store calls `drop`, and
    what was read before that is refused (`generation`). Used from one event loop.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[int, tuple[Entry, int]] = OrderedDict()  # with its size; oldest first
        self._id_by_key: dict[bytes, int] = {}
        self.generation = 0
        """Changes with every `drop`: take it before reading the store, hand it to `add`."""

    def find(self, exact_key: bytes, now: float) -> Entry | None:
        entry_id = self._id_by_key.get(exact_key)
        return None if entry_id is None else self.get(entry_id, now)

    def get(self, entry_id: int, now: float) -> Entry | None:
        held = self._entries.get(entry_id)
        if held is None:
            return None
        if held[0].expires_at <= now or held[0].answer.created_at > now + CLOCK_TOLERANCE_S:
            self._forget(entry_id)
            return None
        self._entries.move_to_end(entry_id)
        return held[0]

    def add(self, entry: Entry, generation: int) -> None:
        if generation != self.generation:
            return
        size = _size(entry)
        if size > self._max_bytes:
            return
        self.drop_key(entry.exact_key)
        self._entries[entry.id] = entry, size
        self._id_by_key[entry.exact_key] = entry.id
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._forget(next(iter(self._entries)))

    def drop(self, ids: Iterable[int]) -> None:
        self.generation += 1
        for entry_id in ids:
            self._forget(entry_id)

    def drop_key(self, exact_key: bytes) -> None:
        entry_id = self._id_by_key.get(exact_key)
        if entry_id is not None:
            self._forget(entry_id)

    def __len__(self) -> int:
        return len(self._entries)

    def _forget(self, entry_id: int) -> None:
        held = self._entries.pop(entry_id, None)
        if held is not None:
            entry, size = held
            self._bytes -= size
            del self._id_by_key[entry.exact_key]


def _size(entry: Entry) -> int:
    size = ENTRY_OVERHEAD_BYTES + len(orjson.dumps(entry.answer.body))
    if entry.text is not None:
        size += len(entry.text.encode())
    if entry.vector is not None:
        size += entry.vector.nbytes
    return size
