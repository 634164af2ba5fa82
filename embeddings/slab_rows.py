"""The vectors of a large partition: one float16 array with holes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from embeddings.flat_rows import HalfMatrix
from embeddings.protocols import FloatMatrix, FloatVector, IdArray

STEP = 16_384
"""Rows the array grows by: 12 MB at 384 dimensions. `realloc` moves pages, not bytes, so a step costs 3 ms
however large the array is, and what is not yet used stays small."""
SCAN = 4_096
"""Rows measured at once by `search`."""
DECODED_AT_ONCE = 128
KEPT_BITS = np.int32(0x8FFFE000 - 2**32)
"""All but those that the sign has been copied to."""


class SlabRows:
    """Rows with the id of each, -1 for a hole; holes are filled before the array grows. A row keeps its place
    until `shrink` moves it, so an index over rows stays valid. Not safe for use while it is written."""

    def __init__(self, dimension: int) -> None:
        self._vectors: HalfMatrix = np.empty((0, dimension), dtype=np.float16)
        self._ids: IdArray = np.full(1, -1, dtype=np.int64)
        self._holes: list[int] = []
        self.end = 0

    def __len__(self) -> int:
        return self.end - len(self._holes)

    def append(self, ids: IdArray, vectors: npt.NDArray[np.floating]) -> IdArray:
        """The rows that the new vectors have been given, int64 (N,)."""
        count = min(len(ids), len(self._holes))
        filled = [self._holes.pop() for _ in range(count)]
        end = self.end + len(ids) - count
        rows = np.array(filled + list(range(self.end, end)), dtype=np.int64)
        self._reserve(end)
        self.end = end
        self._vectors[rows] = vectors
        self._ids[rows] = ids
        return rows

    def replace(self, rows: IdArray, vectors: FloatMatrix) -> None:
        self._vectors[rows] = vectors

    def remove(self, row: int) -> int:
        """-1: nothing moves."""
        self._ids[row] = -1
        self._holes.append(row)
        return -1

    def sparse(self) -> bool:
        """Whether so many rows are holes that `shrink` is worth its while."""
        return len(self._holes) > STEP and 3 * len(self._holes) > self.end

    def restore(self, rows: IdArray, ids: IdArray, vectors: npt.NDArray[np.floating]) -> None:
        """Set rows as they were saved, those past the end included; id -1 makes a hole. `close_restored` must
        follow before any other use."""
        end = int(rows.max(initial=-1)) + 1
        if end > self.end:
            self._reserve(end)
            self.end = end
        self._ids[rows] = ids
        self._vectors[rows[ids >= 0]] = vectors

    def close_restored(self) -> None:
        self._holes = np.flatnonzero(self._ids[: self.end] < 0).tolist()

    def shrink(self, most: int) -> IdArray:
        """Move up to `most` of the last rows into holes and cut off what is empty at the end. The rows that
        have new vectors; their ids are there to be looked up."""
        self._holes.sort()
        moved: list[int] = []
        while len(moved) < len(self._holes):
            last = self.end - 1
            if self._holes[-1] == last:
                self._holes.pop()
            elif len(moved) < most:
                row = self._holes[len(moved)]
                self._vectors[row] = self._vectors[last]
                self._ids[row] = self._ids[last]
                self._ids[last] = -1
                moved.append(row)
            else:
                break
            self.end = last
        del self._holes[: len(moved)]
        if len(self._ids) - self.end > 2 * STEP:
            self._resize(self.end + STEP)
        return np.array(moved, dtype=np.int64)

    def ids_of(self, rows: IdArray) -> IdArray:
        """int64 (N,); -1 for a row that is not taken."""
        return self._ids.take(rows, mode="clip")  # past the end there is at least one, and all are -1

    def halves(self, rows: IdArray) -> HalfMatrix:
        """A copy of the vectors as they are stored."""
        return self._vectors[rows]

    def cosines(self, query: FloatVector, rows: IdArray) -> FloatVector:
        """Of `query` (D,) and the vectors of `rows`, float32 (N,)."""
        cosines: FloatVector = decoded(self._vectors[rows]) @ query
        return cosines

    def search(self, query: FloatVector, k: int) -> tuple[FloatVector, IdArray]:
        """Exact and slow: goes through every row. Cosines and ids, up to `k`, the nearest first."""
        cosines = np.full(self.end, -2, dtype=np.float32)
        for start in range(0, self.end, SCAN):
            part = slice(start, min(start + SCAN, self.end))
            cosines[part] = decoded(self._vectors[part]) @ query
        cosines[self._ids[: self.end] < 0] = -2
        k = min(k, len(self))
        rows = np.argpartition(-cosines, k - 1)[:k] if k else np.empty(0, dtype=np.int64)
        rows = rows[np.argsort(-cosines[rows], kind="stable")]
        return cosines[rows], self._ids[rows]

    def _reserve(self, end: int) -> None:
        if end >= len(self._ids):
            self._resize(end + STEP)

    def _resize(self, rows: int) -> None:
        # in place, which numpy.resize is not; no view of either array outlives the lock it was made under
        self._vectors.resize((rows, self._vectors.shape[1]), refcheck=False)
        self._ids.resize(rows, refcheck=False)
        self._ids[self.end :] = -1


def decoded(halves: HalfMatrix) -> FloatMatrix:
    """float16 to float32, exactly, for finite values: five times as fast as `astype`. Sign, exponent and
    fraction are moved to where float32 has them; the exponents' bias differs by 112."""
    single = np.empty(halves.shape, dtype=np.float32)
    for start in range(0, len(halves), DECODED_AT_ONCE):  # what lies between stays in the processor's cache
        bits = halves[start : start + DECODED_AT_ONCE].view(np.int16).astype(np.int32)
        bits <<= 13
        bits &= KEPT_BITS
        np.multiply(bits.view(np.float32), np.float32(2.0**112), out=single[start : start + DECODED_AT_ONCE])
    return single
