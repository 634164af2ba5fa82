"""The vectors of a small partition: float16, without a gap, each search goes through all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from embeddings.protocols import FloatMatrix, IdArray

HalfMatrix = npt.NDArray[np.float16]


class FlatRows:
    """Rows 0..n-1 of a FAISS float16 index, and the id of each. Exact up to float16. A removed row's place is
    taken by the last row. Not safe for use while it is written."""

    def __init__(self, faiss: Any, dimension: int) -> None:
        self._faiss = faiss
        self._dimension = dimension
        self._vectors: Any = faiss.IndexScalarQuantizer(
            dimension, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        self._ids = np.empty(8, dtype=np.int64)  # grown by doubling; the first `end` count

    def __len__(self) -> int:
        return self.end

    @property
    def end(self) -> int:
        """One more than the last row that is taken."""
        return int(self._vectors.ntotal)

    def append(self, ids: IdArray, vectors: FloatMatrix) -> IdArray:
        """The rows that the new vectors have been given, int64 (N,)."""
        start = self.end
        end = start + len(ids)
        if end > len(self._ids):
            self._ids = np.resize(self._ids, max(end, 2 * len(self._ids)))
        self._vectors.add(np.ascontiguousarray(vectors))
        self._ids[start:end] = ids
        return np.arange(start, end, dtype=np.int64)

    def replace(self, rows: IdArray, vectors: FloatMatrix) -> None:
        self._stored()[rows] = vectors

    def remove(self, row: int) -> int:
        """The id that has moved into `row`, -1 when none had to."""
        last = self.end - 1
        moved = -1
        if row != last:
            stored = self._stored()
            stored[row] = stored[last]
            moved = int(self._ids[last])
            self._ids[row] = moved
        self._vectors.codes.resize(last * 2 * self._dimension)
        self._vectors.ntotal = last
        return moved

    def ids_of(self, rows: IdArray) -> IdArray:
        """int64 (N,); -1 for a row that is not taken."""
        return np.where(rows < self.end, self._ids[np.minimum(rows, len(self._ids) - 1)], -1)

    def halves(self, rows: IdArray) -> HalfMatrix:
        """A copy of the vectors as they are stored."""
        taken: HalfMatrix = self._stored()[rows]
        return taken

    def search(self, queries: FloatMatrix, k: int) -> tuple[FloatMatrix, IdArray]:
        """Cosines and ids, (N, min(k, rows)), the nearest first."""
        k = min(k, self.end)
        if not k:
            return np.empty((len(queries), 0), dtype=np.float32), np.empty((len(queries), 0), dtype=np.int64)
        similarity, rows = self._vectors.search(queries, k)
        return similarity, self._ids[rows]

    def _stored(self) -> HalfMatrix:
        """The vectors where FAISS keeps them, writable. Valid until the next append or remove."""
        size = self.end * self._dimension * 2
        if not size:
            return np.empty((0, self._dimension), dtype=np.float16)
        stored: npt.NDArray[np.uint8] = self._faiss.rev_swig_ptr(self._vectors.codes.data(), size)
        return stored.view(np.float16).reshape(-1, self._dimension)
