"""Short codes of a partition's rows, which propose what may be near; who asks measures the rows
themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from embeddings.protocols import FloatMatrix, IdArray

SAMPLE_PER_LIST = 160
"""Rows that a list's centre is trained on: with fewer, more lists must be searched for the same recall."""
ITERATIONS = 16
SEED = 7
BATCH = 2_048
"""Rows that go through FAISS at once: what a build does between two looks at whether it should stop."""
TOGETHER = 64
"""Rows that wait for a code together, searched exactly in the meantime: finding its list costs a lone row
three times as much as one of many."""
MOST_ON_GPU = 2_048
"""FAISS's limit of `k` on a GPU."""


class RowCodes(Protocol):
    """Rows by their codes. A row added again has two codes and a removed one keeps its code: both are for the
    caller to notice. `search` may run in several threads at once, `add` alone."""

    @property
    def count(self) -> int:
        """How many codes there are, those of removed rows included."""
        ...

    @property
    def lists(self) -> int | None:
        """How many lists the codes are in; None when that is no matter."""
        ...

    def add(self, rows: IdArray, vectors: FloatMatrix) -> None: ...

    def search(self, query: FloatMatrix, k: int) -> IdArray:
        """Up to `k` rows that are likely the nearest to `query` (1, D), in any order, perhaps one twice."""
        ...

    def dump(self) -> bytes:
        """What `RabitqCodes.parse` takes, alone as `add`; empty when building anew is as quick."""
        ...


class RabitqCodes:
    """One bit a dimension and two factors (RaBitQ, arXiv:2405.12497) in FAISS's inverted lists for fast
    scans: 56 bytes a row at 384 dimensions, and its number."""

    def __init__(self, faiss: Any, index: Any) -> None:
        self._faiss = faiss
        self._index = index
        self._waiting = np.empty((TOGETHER, index.d), dtype=np.float32)
        self._waiting_rows = np.empty(TOGETHER, dtype=np.int64)
        self._waiting_count = 0

    @classmethod
    def over(cls, faiss: Any, centres: FloatMatrix, probes: int) -> RabitqCodes:
        """Without a row yet; one list for each centre (L, D). A search goes through the lists of the `probes`
        centres nearest to it."""
        lists, dimension = centres.shape
        # float16 halves what a search reads to find its lists; L2 orders unit vectors as cosine does
        quantizer: Any = faiss.IndexScalarQuantizer(dimension, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_L2)
        quantizer.add(centres)
        index: Any = faiss.IndexIVFRaBitQFastScan(quantizer, dimension, lists, faiss.METRIC_L2)
        index.own_fields = True  # FAISS is to free the quantizer, not Python
        quantizer.this.disown()
        index.train(centres)
        index.nprobe = probes
        return cls(faiss, index)

    @classmethod
    def parse(cls, faiss: Any, dumped: bytes) -> RabitqCodes:
        """`dumped` must be known to be what `dump` gave. Raises RuntimeError when FAISS cannot read it."""
        return cls(faiss, faiss.deserialize_index(np.frombuffer(dumped, dtype=np.uint8)))

    @property
    def count(self) -> int:
        coded: int = self._index.ntotal
        return coded + self._waiting_count

    @property
    def lists(self) -> int:
        return int(self._index.nlist)

    def add(self, rows: IdArray, vectors: FloatMatrix) -> None:
        if len(rows) >= TOGETHER:
            self._index.add_with_ids(np.ascontiguousarray(vectors), rows)
            return
        if self._waiting_count + len(rows) > TOGETHER:
            self._flush()
        start, self._waiting_count = self._waiting_count, self._waiting_count + len(rows)
        self._waiting[start : self._waiting_count] = vectors
        self._waiting_rows[start : self._waiting_count] = rows

    def search(self, query: FloatMatrix, k: int) -> IdArray:
        rows: IdArray = self._index.search(query, k)[1][0]
        rows = rows[rows >= 0]
        if not self._waiting_count:
            return rows
        waiting = self._waiting_rows[: self._waiting_count]
        if len(waiting) > k:
            waiting = waiting[np.argpartition(self._waiting[: self._waiting_count] @ query[0], -k)[-k:]]
        return np.concatenate([rows, waiting])

    def dump(self) -> bytes:
        self._flush()
        return bytes(self._faiss.serialize_index(self._index).data)

    def _flush(self) -> None:
        if self._waiting_count:
            self._index.add_with_ids(
                self._waiting[: self._waiting_count], self._waiting_rows[: self._waiting_count]
            )
            self._waiting_count = 0


class GpuCodes:
    """All rows as float16 on the first GPU, each search through all of them. FAISS's GPU indexes take one
    caller at a time, readers too."""

    def __init__(self, faiss: Any, dimension: int) -> None:
        options = faiss.GpuIndexFlatConfig()
        options.useFloat16 = True
        self._resources: Any = faiss.StandardGpuResources()
        self._index: Any = faiss.GpuIndexFlatIP(self._resources, dimension, options)
        self._rows = np.empty(0, dtype=np.int64)  # of each place in the index; grown by a quarter
        self._one_at_a_time = threading.Lock()

    @property
    def count(self) -> int:
        return int(self._index.ntotal)

    @property
    def lists(self) -> None:
        return None

    def add(self, rows: IdArray, vectors: FloatMatrix) -> None:
        with self._one_at_a_time:
            start = self.count
            end = start + len(rows)
            if end > len(self._rows):
                self._rows = np.resize(self._rows, end + end // 4)
            self._index.add(np.ascontiguousarray(vectors))
            self._rows[start:end] = rows

    def search(self, query: FloatMatrix, k: int) -> IdArray:
        with self._one_at_a_time:
            places = self._index.search(query, min(k, MOST_ON_GPU))[1][0]
            rows: IdArray = self._rows[places[places >= 0]]
            return rows

    def dump(self) -> bytes:
        return b""


def centres_of(
    faiss: Any, sample: FloatMatrix, lists: int, keep_on: Callable[[], None] = lambda: None
) -> FloatMatrix:
    """Spherical k-means over `sample` (at least `lists` rows), the same for the same sample. `keep_on` is
    called after each batch: what it raises ends the work. FAISS's own training would not stop."""
    random = np.random.default_rng(SEED)
    centres: FloatMatrix = sample[np.sort(random.permutation(len(sample))[:lists])]
    for _ in range(ITERATIONS if lists > 1 else 1):
        index = faiss.IndexFlatIP(sample.shape[1])
        index.add(np.ascontiguousarray(centres))
        sums = np.zeros_like(centres)
        for start in range(0, len(sample), BATCH):
            part = sample[start : start + BATCH]
            nearest = index.search(part, 1)[1][:, 0]
            order = np.argsort(nearest, kind="stable")
            chosen, first = np.unique(nearest[order], return_index=True)
            sums[chosen] += np.add.reduceat(part[order], first, axis=0)
            keep_on()
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        lonely = lengths[:, 0] == 0  # no row is nearest to it: it starts again at some row
        sums[lonely] = sample[random.integers(len(sample), size=int(lonely.sum()))]
        centres = (sums / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return centres
