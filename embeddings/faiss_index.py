"""A partitioned exact index: one FAISS flat inner-product index per partition."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embeddings.protocols import FloatMatrix, IdArray, StoreError
from embeddings.read_write_lock import ReadWriteLock

NORM_TOLERANCE = 1e-3
"""How far from 1 a norm may be: float16 rounding stays well below it."""


class FaissIndex:
    """`VectorIndex` over `faiss.IndexFlatIP`: exact, since over unit vectors inner product is cosine.

    Each partition has its own lock, so a search waits for writes to its own partition only. Raises
    StoreError naming the package to install when FAISS is missing.
    """

    def __init__(self, dimension: int) -> None:
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, got {dimension}")
        self.dimension = dimension
        self._faiss = _import_faiss()
        self._writing = threading.Lock()  # one writer at a time: an id is in one partition or in none
        self._partitions: dict[bytes, _Partition] = {}
        self._home: dict[int, bytes] = {}
        self._thread = threading.local()

    def add(self, ids: IdArray, vectors: FloatMatrix, partitions: Sequence[bytes]) -> None:
        """As `VectorIndex.add`. Raises ValueError on shapes, dtypes or norms that do not fit; then nothing
        has been added. Of an id given twice the last row counts."""
        self._check_ids(ids)
        self._check_vectors(vectors)
        if not len(ids) == len(vectors) == len(partitions):
            raise ValueError(
                f"ids, vectors and partitions must be as many: {len(ids)}, {len(vectors)}, {len(partitions)}"
            )
        id_list = ids.tolist()
        if any(entry_id < 0 for entry_id in id_list):
            raise ValueError("ids must not be negative: -1 means none")
        last_row = {entry_id: row for row, entry_id in enumerate(id_list)}
        groups: dict[bytes, list[int]] = {}
        for row in last_row.values():
            groups.setdefault(partitions[row], []).append(row)
        with self._writing:
            self._leave(
                [i for i, row in last_row.items() if self._home.get(i, partitions[row]) != partitions[row]]
            )
            for partition, rows in groups.items():
                home = self._partitions.get(partition)
                if home is None:
                    home = _Partition(self._faiss, self.dimension)
                group = [id_list[row] for row in rows]
                home.put(group, vectors[rows] if len(rows) < len(vectors) else vectors)
                self._partitions[partition] = home
                self._home.update(dict.fromkeys(group, partition))

    def search(self, vectors: FloatMatrix, k: int, partition: bytes) -> tuple[FloatMatrix, IdArray]:
        """As `VectorIndex.search`. Raises ValueError on shapes, dtypes, norms or a `k` that do not fit."""
        self._check_vectors(vectors)
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        similarity = np.full((len(vectors), k), -1, dtype=np.float32)
        ids = np.full((len(vectors), k), -1, dtype=np.int64)
        home = self._partitions.get(partition)
        if home is not None and len(vectors):
            self._use_one_thread()
            found_similarity, found_ids = home.search(np.ascontiguousarray(vectors), k)
            columns = found_ids.shape[1]
            similarity[:, :columns] = found_similarity
            ids[:, :columns] = found_ids
        return similarity, ids

    def remove(self, ids: IdArray) -> int:
        """As `VectorIndex.remove`. Costs the same however large the partition, but for a scan of 4 ns a
        vector."""
        self._check_ids(ids)
        with self._writing:
            return self._leave([i for i in dict.fromkeys(ids.tolist()) if i in self._home])

    def partition_size(self, partition: bytes) -> int:
        home = self._partitions.get(partition)
        return 0 if home is None else len(home)

    def ids(self) -> IdArray:
        return np.fromiter(self._home, dtype=np.int64, count=len(self._home))

    def save(self, path: Path, label: str) -> None:
        raise OSError("snapshots are on their way")

    def load(self, path: Path, label: str) -> bool:
        return False

    def __len__(self) -> int:
        return len(self._home)

    def _leave(self, ids: list[int]) -> int:
        """Take out ids that are known to be here. The caller holds `_writing`."""
        groups: dict[bytes, list[int]] = {}
        for entry_id in ids:
            groups.setdefault(self._home.pop(entry_id), []).append(entry_id)
        for partition, leaving in groups.items():
            home = self._partitions[partition]
            home.remove(leaving)
            if not len(home):
                del self._partitions[partition]
        return len(ids)

    def _use_one_thread(self) -> None:
        """OpenMP's thread count belongs to the calling thread: more than one would fight the event loop."""
        if not getattr(self._thread, "ready", False):
            self._faiss.omp_set_num_threads(1)
            self._thread.ready = True

    def _check_ids(self, ids: IdArray) -> None:
        if not isinstance(ids, np.ndarray) or ids.dtype != np.int64 or ids.ndim != 1:
            raise ValueError(f"ids must be an int64 array of shape (N,), got {_describe(ids)}")

    def _check_vectors(self, vectors: FloatMatrix) -> None:
        fits = isinstance(vectors, np.ndarray) and vectors.dtype == np.float32 and vectors.ndim == 2
        if not fits or vectors.shape[1] != self.dimension:
            raise ValueError(
                f"vectors must be a float32 array of shape (N, {self.dimension}), got {_describe(vectors)}"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("nd,nd->n", vectors, vectors)
        for row, square in enumerate(squares.tolist()):
            if not abs(square - 1) <= 2 * NORM_TOLERANCE:  # so written that NaN is off
                raise ValueError(f"vectors must have unit norm, row {row} has norm {square**0.5}")


class _Partition:
    """Rows 0..n-1 of a flat index, and the id of each. A removed row's place is taken by the last row:
    `IndexIDMap2.remove_ids` rebuilds its whole map, 31 ms for one id among 100,000 against 0.4 ms."""

    def __init__(self, faiss: Any, dimension: int) -> None:
        self._faiss = faiss
        self._dimension = dimension
        self._flat: Any = faiss.IndexFlatIP(dimension)
        self._ids = np.empty(8, dtype=np.int64)  # grown by doubling; the first `ntotal` count
        self._row: dict[int, int] = {}
        self._lock = ReadWriteLock()

    def __len__(self) -> int:
        return len(self._row)

    def put(self, ids: list[int], vectors: FloatMatrix) -> None:
        """Add or replace. No id occurs twice."""
        with self._lock.writing():
            new = [row for row, entry_id in enumerate(ids) if entry_id not in self._row]
            if len(new) < len(ids):
                stored = self._stored()
                for row, entry_id in enumerate(ids):
                    if entry_id in self._row:
                        stored[self._row[entry_id]] = vectors[row]
                ids, vectors = [ids[row] for row in new], vectors[new]
            if not ids:
                return
            start = int(self._flat.ntotal)
            end = start + len(ids)
            self._flat.add(np.ascontiguousarray(vectors))
            if end > len(self._ids):
                self._ids = np.resize(self._ids, max(end, 2 * len(self._ids)))
            self._ids[start:end] = ids
            self._row.update(zip(ids, range(start, end), strict=True))

    def remove(self, ids: list[int]) -> None:
        """All of `ids` are here, none twice."""
        with self._lock.writing():
            end = int(self._flat.ntotal)
            stored = self._stored()
            for entry_id in ids:
                row = self._row.pop(entry_id)
                end -= 1
                if row != end:
                    moved = int(self._ids[end])
                    stored[row] = stored[end]
                    self._ids[row] = moved
                    self._row[moved] = row
            self._flat.remove_ids(self._faiss.IDSelectorRange(end, end + len(ids)))

    def search(self, vectors: FloatMatrix, k: int) -> tuple[FloatMatrix, IdArray]:
        with self._lock.reading():
            k = min(k, int(self._flat.ntotal))
            if not k:  # emptied while we waited for the lock
                return np.empty((len(vectors), 0), dtype=np.float32), np.empty(
                    (len(vectors), 0), dtype=np.int64
                )
            similarity, rows = self._flat.search(vectors, k)
            ids = self._ids[rows]
        return np.clip(similarity, -1, 1), ids

    def _stored(self) -> FloatMatrix:
        """The vectors where FAISS keeps them, writable. Valid until the next add or remove."""
        n = int(self._flat.ntotal)
        if not n:
            return np.empty((0, self._dimension), dtype=np.float32)
        flat: FloatMatrix = self._faiss.rev_swig_ptr(self._flat.get_xb(), n * self._dimension)
        return flat.reshape(n, self._dimension)


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise StoreError("FAISS is not installed: pip install 'lockgate[cpu]' (or [gpu])") from error
    return faiss


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    return type(value).__name__
