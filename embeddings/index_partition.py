"""One partition of the index: its vectors, and how they are found."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from embeddings.flat_rows import FlatRows, HalfMatrix
from embeddings.id_table import IdTable
from embeddings.index_tiers import Tiers
from embeddings.protocols import FloatMatrix, IdArray
from embeddings.read_write_lock import ReadWriteLock
from embeddings.row_codes import BATCH, SAMPLE_PER_LIST, SEED, GpuCodes, RabitqCodes, RowCodes, centres_of
from embeddings.slab_rows import SlabRows, decoded

MOVES = 128
"""Rows moved, and given a code, under the lock at once."""
MOST_CANDIDATES = 1_024
CATCH_UPS = 8

logger = logging.getLogger(__name__)

Log = list[IdArray]


class Partition:
    """Small, it is `FlatRows`, exact. Large, it is `SlabRows` with `RowCodes` over them: the codes propose
    rows and the rows are measured, so a code of a row that is gone or has changed costs time and never a
    wrong answer.

    Writers and `rebuild`'s short steps hold the index's `writing` lock, which also guards `table`; searches
    only this partition's own.
    """

    def __init__(
        self, faiss: Any, dimension: int, tiers: Tiers, slot: int, table: IdTable, *, on_gpu: bool = False
    ) -> None:
        self.slot = slot
        self._faiss = faiss
        self._dimension = dimension
        self._tiers = tiers
        self._table = table
        self._on_gpu = on_gpu
        self._rows: FlatRows | SlabRows = FlatRows(faiss, dimension)
        self._codes: RowCodes | None = None
        self._logs: list[Log] = []  # each takes down the rows that change while it is open
        self._lock = ReadWriteLock()

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, ids: IdArray, vectors: FloatMatrix) -> None:
        """Add or replace. No id occurs twice, none is in another partition."""
        with self._lock.writing():
            slots, rows = self._table.find_all(ids)
            old = slots == self.slot
            if not old.any():
                rows = self._rows.append(ids, vectors)
                self._table.set_all(ids, self.slot, rows)
            else:
                new = ~old
                self._rows.replace(rows[old], vectors[old])
                rows[new] = self._rows.append(ids[new], vectors[new])
                self._table.set_all(ids[new], self.slot, rows[new])
            if self._codes is not None:
                self._codes.add(rows, vectors)
            self._note(rows)

    def remove(self, ids: list[int]) -> None:
        """All of `ids` are here, none twice."""
        with self._lock.writing():
            for entry_id in ids:
                _, row = self._table.find(entry_id)
                self._table.remove(entry_id)
                changed = [row]
                moved = self._rows.remove(row)
                if moved >= 0:
                    self._table.set_row(moved, row)
                    changed.append(self._rows.end)
                if self._logs:
                    self._note(np.array(changed, dtype=np.int64))

    def search(self, queries: FloatMatrix, k: int) -> tuple[FloatMatrix, IdArray]:
        """Cosines and ids (N, k), the nearest first; -1 and -1 where there are no more."""
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        similarity = ids.astype(np.float32)
        with self._lock.reading():
            if isinstance(self._rows, FlatRows):
                cosines, found = self._rows.search(queries, k)
                similarity[:, : cosines.shape[1]] = cosines
                ids[:, : found.shape[1]] = found
            elif self._codes is not None:
                for n in range(len(queries)):
                    cosine, one = self._nearest(self._rows, self._codes, queries[n : n + 1], k)
                    similarity[n, : len(cosine)] = cosine
                    ids[n, : len(one)] = one
        np.minimum(similarity, 1, out=similarity)
        return np.maximum(similarity, -1, out=similarity), ids

    def _nearest(
        self, slab: SlabRows, codes: RowCodes, query: FloatMatrix, k: int
    ) -> tuple[FloatMatrix, IdArray]:
        """Asks for more candidates while too many of them are of rows that are gone, at last measures all."""
        count = max(self._tiers.candidates, 2 * k)
        enough = min(len(slab), k + self._tiers.candidates // 4)
        while count <= max(MOST_CANDIDATES, self._tiers.candidates):
            rows = codes.search(query, count)
            rows.sort()
            ids = slab.ids_of(rows)
            here = ids >= 0
            here[1:] &= rows[1:] != rows[:-1]
            rows, ids = rows[here], ids[here]
            if len(rows) >= enough:
                cosines = slab.cosines(query[0], rows)
                order = np.argsort(-cosines, kind="stable")[:k] if k > 1 else [int(cosines.argmax())]
                return cosines[order], ids[order]
            count *= 4
        return slab.search(query[0], k)

    def due(self) -> bool:
        """Whether `rebuild` would change how this partition is found."""
        rows, codes = len(self._rows), self._codes
        if codes is None:
            return self._tiers.lists(rows) > 0
        lists = (
            self._tiers.lists(rows) if codes.lists is None and rows > self._tiers.flat_rows else codes.lists
        )
        return self._tiers.rebuild(rows, lists or 1, codes.count)

    def rebuild(self, writing: threading.Lock, keep_on: Callable[[], None]) -> None:
        """Give the partition the form that fits its size. Searches and writes go on; each of the two waits
        for a few milliseconds at a time. `keep_on` is called often: what it raises ends the work, and the
        partition stays as it was. For one thread at a time, which FAISS gets no second one from."""
        self._faiss.omp_set_num_threads(1)
        self._close_holes(writing, keep_on)
        if not self._tiers.lists(2 * len(self._rows)):
            self._become_flat(writing)
            return
        with self.logging() as log:
            codes = self._new_codes(keep_on)
            self._encode(codes, np.arange(self._rows.end, dtype=np.int64), keep_on)
            for _ in range(CATCH_UPS):
                if sum(map(len, log)) < MOVES:
                    break
                self._encode(codes, self._drain(log), keep_on)
            with writing:
                self._encode(codes, self._drain(log), lambda: None)
                rows = _slab_of(self._rows, self._dimension)
                with self._lock.writing():
                    self._rows, self._codes = rows, codes

    def copy(self) -> Iterator[tuple[IdArray, HalfMatrix]]:
        """All rows in order, in pieces: ids, -1 for a hole, and the vectors of what is not one. Rows may
        change in between; `changes` then tells what they have become."""
        start = 0
        while True:
            with self._lock.reading():
                rows = np.arange(start, min(start + BATCH, self._rows.end), dtype=np.int64)
                ids = self._rows.ids_of(rows)
                halves = self._rows.halves(rows[ids >= 0])
            if not len(rows):
                return
            yield ids, halves
            start += len(rows)

    def changes(self, log: Log) -> tuple[IdArray, IdArray, HalfMatrix, bytes]:
        """Rows of the log, ids (-1: gone), vectors of those that are not gone, and the codes of the same
        moment."""
        with self._lock.writing():
            rows = _distinct(log)
            ids = self._rows.ids_of(rows)
            halves = self._rows.halves(rows[ids >= 0])
            return rows, ids, halves, b"" if self._codes is None else self._codes.dump()

    def restore(self, slab: SlabRows, codes: RowCodes | None) -> None:
        """Take over what was saved; the table is the caller's to fill. For a partition still empty."""
        if codes is None:
            rows = np.flatnonzero(slab.ids_of(np.arange(slab.end, dtype=np.int64)) >= 0)
            if len(rows):
                self._rows.append(slab.ids_of(rows), decoded(slab.halves(rows)))
        else:
            self._rows, self._codes = slab, codes

    def located(self) -> tuple[IdArray, IdArray]:
        """Ids and their rows."""
        rows = np.arange(self._rows.end, dtype=np.int64)
        ids = self._rows.ids_of(rows)
        return ids[ids >= 0], rows[ids >= 0]

    def _note(self, rows: IdArray) -> None:
        for log in self._logs:
            log.append(rows)

    @contextmanager
    def logging(self) -> Iterator[Log]:
        """A log of the rows that change while it is open."""
        log: Log = []
        with self._lock.writing():
            self._logs.append(log)
        try:
            yield log
        finally:
            with self._lock.writing():
                self._logs = [other for other in self._logs if other is not log]

    def _drain(self, log: Log) -> IdArray:
        with self._lock.writing():
            rows = _distinct(log)
            log.clear()
        return rows

    def _encode(self, codes: RowCodes, rows: IdArray, keep_on: Callable[[], None]) -> None:
        for start in range(0, len(rows), BATCH):
            there, vectors = self._read(rows[start : start + BATCH])
            codes.add(there, vectors)
            keep_on()

    def _read(self, rows: IdArray) -> tuple[IdArray, FloatMatrix]:
        """Those of `rows` that are taken, and their vectors."""
        with self._lock.reading():
            there = rows[self._rows.ids_of(rows) >= 0]
            halves = self._rows.halves(there)
        return there, decoded(halves)

    def _new_codes(self, keep_on: Callable[[], None]) -> RowCodes:
        if self._on_gpu:
            try:
                return GpuCodes(self._faiss, self._dimension)
            except RuntimeError as error:
                logger.warning("the GPU does not take a partition, the CPU does: %s", error)
        lists = max(1, self._tiers.lists(len(self._rows)))
        wanted = max(lists * SAMPLE_PER_LIST, BATCH)
        rows = np.arange(self._rows.end, dtype=np.int64)
        if len(rows) > wanted:
            rows = np.sort(np.random.default_rng(SEED).choice(rows, wanted, replace=False))
        parts = [self._read(rows[start : start + BATCH])[1] for start in range(0, len(rows), BATCH)]
        sample = np.concatenate(parts)
        centres = centres_of(self._faiss, sample, min(lists, len(sample)), keep_on)
        return RabitqCodes.over(self._faiss, centres, self._tiers.probes(lists))

    def _close_holes(self, writing: threading.Lock, keep_on: Callable[[], None]) -> None:
        """When holes are a third of the rows: fill them with the last rows, and give the memory back."""
        while isinstance(self._rows, SlabRows) and self._codes is not None:
            with writing, self._lock.writing():
                if not self._rows.sparse():
                    return
                moved = self._rows.shrink(MOVES)
                ids = self._rows.ids_of(moved)
                self._table.set_all(ids, self.slot, moved)
                self._codes.add(moved, decoded(self._rows.halves(moved)))
                self._note(np.arange(self._rows.end, self._rows.end + MOVES, dtype=np.int64))
                self._note(moved)
            keep_on()

    def _become_flat(self, writing: threading.Lock) -> None:
        with writing:
            flat = FlatRows(self._faiss, self._dimension)
            ids, rows = self.located()
            if len(ids):
                flat.append(ids, decoded(self._rows.halves(rows)))
                self._table.set_all(ids, self.slot, np.arange(len(ids), dtype=np.int64))
            with self._lock.writing():
                self._note(np.arange(self._rows.end, dtype=np.int64))
                self._rows, self._codes = flat, None


def _slab_of(rows: FlatRows | SlabRows, dimension: int) -> SlabRows:
    if isinstance(rows, SlabRows):
        return rows
    slab = SlabRows(dimension)
    taken = np.arange(rows.end, dtype=np.int64)
    slab.append(rows.ids_of(taken), rows.halves(taken))
    return slab


def _distinct(log: Log) -> IdArray:
    return np.unique(np.concatenate(log)) if log else np.empty(0, dtype=np.int64)
