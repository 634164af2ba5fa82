"""Other indexes, each filled from the same base and asked for the nearest row."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Protocol

import numpy as np

from benchmarks.index_data import HalfMatrix, unit
from benchmarks.peers import Peer, Unavailable, install
from embeddings.protocols import FloatMatrix

PIECE = 20_000
HNSW = Peer(name="hnswlib", home="hnswlib", requirement="hnswlib==0.8.0")


class IndexPeer(Protocol):
    """`scans`: a search goes through every row."""

    name: str
    scans: bool

    def extend(self, base: HalfMatrix, end: int) -> None:
        """Take in the rows of the base up to `end` that are not there yet."""
        ...

    def search(self, query: FloatMatrix) -> int:
        """The row nearest to the query (1, D)."""
        ...


class FlatPeer:
    """`faiss.IndexFlatIP`."""

    name = "faiss flat"
    scans = True

    def __init__(self, dimension: int) -> None:
        import faiss

        faiss.omp_set_num_threads(1)
        self._index: Any = faiss.IndexFlatIP(dimension)

    def extend(self, base: HalfMatrix, end: int) -> None:
        for start in range(self._index.ntotal, end, PIECE):
            self._index.add(unit(base[start : min(start + PIECE, end)].astype(np.float32)))

    def search(self, query: FloatMatrix) -> int:
        return int(self._index.search(query, 1)[1][0, 0])


class NumpyPeer:
    """One product and `argmax`."""

    name = "numpy"
    scans = True

    def __init__(self) -> None:
        self._vectors: FloatMatrix = np.empty((0, 0), dtype=np.float32)

    def extend(self, base: HalfMatrix, end: int) -> None:
        self._vectors = unit(base[:end].astype(np.float32))

    def search(self, query: FloatMatrix) -> int:
        return int((self._vectors @ query[0]).argmax())


class HnswPeer:
    """`hnswlib`, on one thread. Raises Unavailable when it cannot be installed."""

    name = "hnswlib"
    scans = False

    def __init__(self, dimension: int, most: int, *, may_install: bool) -> None:
        folder = install(HNSW, may_install=may_install)
        places = sorted(folder.glob("lib/python*/site-packages"))
        sys.path += [str(place) for place in places]  # last: what it brings along must not hide ours
        try:
            hnswlib = importlib.import_module("hnswlib")
        except ImportError as error:
            raise Unavailable(f"does not import: {error}") from error
        self._index: Any = hnswlib.Index(space="ip", dim=dimension)
        self._index.init_index(max_elements=most, M=16, ef_construction=200, random_seed=1)
        self._index.set_ef(64)

    def extend(self, base: HalfMatrix, end: int) -> None:
        for start in range(self._index.get_current_count(), end, PIECE):
            last = min(start + PIECE, end)
            vectors = unit(base[start:last].astype(np.float32))
            self._index.add_items(vectors, np.arange(start, last), num_threads=1)

    def search(self, query: FloatMatrix) -> int:
        return int(self._index.knn_query(query, k=1, num_threads=1)[0][0, 0])
