"""Where each id is: a table by the id itself, in pages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from embeddings.protocols import IdArray

PAGE = 4096
"""Ids to a page. Ids of a store only grow and are never used again, so pages fill one after another and old
ones empty; a dict of a million ids takes 100 MB, these pages 8."""

_NONE = -1


class IdTable:
    """id -> (slot, row), both int32. 8 bytes an id where ids lie close together; a page is dropped with the
    last id in it. Not safe for use from several threads at once."""

    def __init__(self) -> None:
        self._pages: dict[int, npt.NDArray[np.int32]] = {}  # (PAGE, 2); slot -1: not here
        self._used: dict[int, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, entry_id: int) -> tuple[int, int]:
        """(slot, row); slot -1 when the id is not here."""
        page = self._pages.get(entry_id // PAGE)
        if page is None:
            return _NONE, _NONE
        slot, row = page[entry_id % PAGE].tolist()
        return slot, row

    def find_all(self, ids: IdArray) -> tuple[IdArray, IdArray]:
        """Slots and rows, int64 (N,), of ids that are not negative; slot -1 for what is not here."""
        if len(ids) == 1:
            slot, row = self.find(int(ids[0]))
            return np.array([slot]), np.array([row])
        found = np.full((len(ids), 2), _NONE, dtype=np.int64)
        for number, where in self._by_page(ids):
            page = self._pages.get(number)
            if page is not None:
                found[where] = page[ids[where] % PAGE]
        return found[:, 0], found[:, 1]

    def set_all(self, ids: IdArray, slot: int, rows: IdArray) -> None:
        """No id occurs twice."""
        for number, where in self._by_page(ids):
            page = self._pages.get(number)
            if page is None:
                page = np.full((PAGE, 2), _NONE, dtype=np.int32)
                self._pages[number] = page
                self._used[number] = 0
            places = ids[where] % PAGE
            new = int((page[places, 0] == _NONE).sum())
            page[places, 0] = slot
            page[places, 1] = rows[where]
            self._used[number] += new
            self._count += new

    def set_row(self, entry_id: int, row: int) -> None:
        """Of an id that is here."""
        self._pages[entry_id // PAGE][entry_id % PAGE, 1] = row

    def remove(self, entry_id: int) -> None:
        """Of an id that is here."""
        number = entry_id // PAGE
        self._pages[number][entry_id % PAGE] = _NONE
        self._count -= 1
        self._used[number] -= 1
        if not self._used[number]:
            del self._pages[number], self._used[number]

    def ids(self) -> IdArray:
        """Every id here, int64 (N,), page by page."""
        parts = [np.flatnonzero(page[:, 0] != _NONE) + number * PAGE for number, page in self._pages.items()]
        return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, dtype=np.int64)

    @staticmethod
    def _by_page(ids: IdArray) -> list[tuple[int, IdArray | slice]]:
        if len(ids) == 1:
            return [(int(ids[0]) // PAGE, slice(None))]
        if not len(ids):
            return []
        numbers = ids // PAGE
        distinct = np.unique(numbers).tolist()
        if len(distinct) == 1:
            return [(distinct[0], slice(None))]
        order = np.argsort(numbers, kind="stable")
        starts = np.searchsorted(numbers[order], distinct).tolist()
        return list(zip(distinct, np.split(order, starts[1:]), strict=True))
