"""A partitioned cosine index that is exact while a partition is small and stays quick when it is large."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from embeddings import index_snapshot
from embeddings.id_table import IdTable
from embeddings.index_builder import IndexBuilder
from embeddings.index_partition import Partition
from embeddings.index_tiers import Tiers
from embeddings.protocols import FloatMatrix, IdArray, StoreError

NORM_TOLERANCE = 1e-3
"""How far from 1 a norm may be: float16 rounding stays well below it."""
WRITTEN_AT_ONCE = 256
"""Vectors added under a partition's lock at once: a search waits for a few milliseconds at most."""
BLAS_FROM = 20
"""Rows from which FAISS multiplies matrices; its own default leaves batches ten times slower."""

Device = Literal["auto", "cpu", "cuda"]

logger = logging.getLogger(__name__)


class FaissIndex:
    """`VectorIndex` over FAISS: vectors as float16, exact in partitions up to `tiers.flat_rows`; beyond,
    codes of one bit a dimension propose candidates, whose similarity is then measured. A similarity is
    always the cosine to the float16 vector.

    Each partition has its own lock, so a search waits for writes to its own partition only. A partition
    that grows or shrinks past a tier gets its new form on a daemon thread, meanwhile the old one serves.
    Large partitions are searched on the GPU where FAISS finds one and `device` is not "cpu". Raises
    StoreError naming the package to install when FAISS is missing.
    """

    def __init__(self, dimension: int, *, device: Device = "auto", tiers: Tiers | None = None) -> None:
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, got {dimension}")
        self.dimension = dimension
        self._tiers = Tiers() if tiers is None else tiers
        self._faiss = _import_faiss()
        self._on_gpu = device != "cpu" and _gpus(self._faiss) > 0
        if device == "cuda" and not self._on_gpu:
            raise StoreError("FAISS finds no GPU: pip install 'lockgate[gpu]', or device = \"cpu\"")
        self._writing = threading.Lock()  # one writer at a time: an id is in one partition or in none
        self._partitions: dict[bytes, Partition] = {}
        self._keys: dict[int, bytes] = {}  # of each partition by its slot
        self._next_slot = 0
        self._table = IdTable()
        self._builder = IndexBuilder(self._writing)
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
        if not len(ids):
            return
        if ids.min() < 0:
            raise ValueError("ids must not be negative: -1 means none")
        self._use_one_thread()
        with self._writing:
            for partition, rows in _grouped(ids, partitions).items():
                self._put(partition, ids[rows], vectors[rows])

    def search(self, vectors: FloatMatrix, k: int, partition: bytes) -> tuple[FloatMatrix, IdArray]:
        """As `VectorIndex.search`. Raises ValueError on shapes, dtypes, norms or a `k` that do not fit."""
        self._check_vectors(vectors)
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        home = self._partitions.get(partition)
        if home is None or not len(vectors):
            none = np.full((len(vectors), k), -1, dtype=np.float32)
            return none, none.astype(np.int64)
        self._use_one_thread()
        return home.search(np.ascontiguousarray(vectors), k)

    def remove(self, ids: IdArray) -> int:
        """As `VectorIndex.remove`. Costs the same however large the partition."""
        self._check_ids(ids)
        with self._writing:
            return self._leave(ids)

    def partition_size(self, partition: bytes) -> int:
        home = self._partitions.get(partition)
        return 0 if home is None else len(home)

    def ids(self) -> IdArray:
        with self._writing:
            return self._table.ids()

    def save(self, path: Path, label: str) -> None:
        """As `VectorIndex.save`. Searches and writes go on meanwhile; what is written then may be in it or
        not."""
        with self._writing:
            partitions = list(self._partitions.items())
        index_snapshot.write(path, self.dimension, label, partitions)

    def load(self, path: Path, label: str) -> bool:
        """As `VectorIndex.load`. Raises ValueError when the index is not empty."""
        if len(self):
            raise ValueError("a snapshot is loaded into an empty index only")
        self._use_one_thread()
        try:
            saved = list(index_snapshot.read(self._faiss, path, self.dimension, label))
        except FileNotFoundError:
            return False
        except (OSError, index_snapshot.DamagedSnapshot, RuntimeError, ValueError) as error:
            logger.warning("the index is not taken from %s: %s", path, error)
            return False
        with self._writing:
            for one in saved:
                self._restore(one)
        for home in list(self._partitions.values()):
            self._builder.consider(home)
        return True

    def settled(self, timeout_s: float) -> bool:
        """Wait until no partition is being given another form; False when that takes longer."""
        return self._builder.wait(timeout_s)

    def __len__(self) -> int:
        return len(self._table)

    def _put(self, partition: bytes, ids: IdArray, vectors: FloatMatrix) -> None:
        """The caller holds `_writing`; no id occurs twice."""
        home = self._partitions.get(partition)
        if home is None:
            home = self._open(partition)
        slots, _ = self._table.find_all(ids)
        elsewhere = (slots >= 0) & (slots != home.slot)
        if elsewhere.any():
            self._leave(ids[elsewhere])
        for start in range(0, len(ids), WRITTEN_AT_ONCE):
            part = slice(start, start + WRITTEN_AT_ONCE)
            home.put(ids[part], vectors[part])
        self._partitions[partition] = home
        self._keys[home.slot] = partition
        self._builder.consider(home)

    def _open(self, partition: bytes) -> Partition:
        """A new one, not yet to be found."""
        slot = self._next_slot
        self._next_slot += 1
        return Partition(self._faiss, self.dimension, self._tiers, slot, self._table, on_gpu=self._on_gpu)

    def _restore(self, saved: index_snapshot.Restored) -> None:
        home = self._open(saved.key)
        home.restore(saved.rows, None if self._on_gpu else saved.codes)
        ids, rows = home.located()
        slots, _ = self._table.find_all(ids)
        self._leave(ids[slots >= 0])
        self._table.set_all(ids, home.slot, rows)
        if len(home):
            self._partitions[saved.key] = home
            self._keys[home.slot] = saved.key

    def _leave(self, ids: IdArray) -> int:
        """Take out what is here. The caller holds `_writing`."""
        groups: dict[int, list[int]] = {}
        for entry_id in dict.fromkeys(ids.tolist()):
            slot, _ = self._table.find(entry_id) if entry_id >= 0 else (-1, -1)
            if slot >= 0:
                groups.setdefault(slot, []).append(entry_id)
        for slot, leaving in groups.items():
            home = self._partitions[self._keys[slot]]
            for start in range(0, len(leaving), WRITTEN_AT_ONCE):
                home.remove(leaving[start : start + WRITTEN_AT_ONCE])
            if len(home):
                self._builder.consider(home)
            else:
                del self._partitions[self._keys.pop(slot)]
        return sum(map(len, groups.values()))

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


def _grouped(ids: IdArray, partitions: Sequence[bytes]) -> dict[bytes, list[int] | slice]:
    """The rows of each partition; of an id given twice the last row only."""
    if len(ids) == 1:
        return {partitions[0]: slice(None)}
    last_row = {entry_id: row for row, entry_id in enumerate(ids.tolist())}
    groups: dict[bytes, list[int]] = {}
    for row in last_row.values():
        groups.setdefault(partitions[row], []).append(row)
    return dict(groups)


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise StoreError("FAISS is not installed: pip install 'lockgate[cpu]' (or [gpu])") from error
    faiss.cvar.distance_compute_blas_threshold = BLAS_FROM
    return faiss


def _gpus(faiss: Any) -> int:
    """How many GPUs FAISS can use; 0 for the build without them."""
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    return type(value).__name__
