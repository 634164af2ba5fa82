from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from embeddings.faiss_index import FaissIndex
from embeddings.protocols import FloatMatrix, StoreError


def unit_rows(n: int, dimension: int) -> FloatMatrix:
    rows = np.random.default_rng(5).standard_normal((n, dimension)).astype(np.float32)
    unit: FloatMatrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def test_an_emptied_partition_is_dropped() -> None:
    index = FaissIndex(4)
    vectors = unit_rows(100, 4)
    ids = np.arange(100, dtype=np.int64)
    index.add(ids, vectors, [bytes([n]) for n in range(100)])
    assert len(index._partitions) == 100
    index.remove(ids)
    assert not index._partitions
    assert not index._home
    index.add(ids[:1], vectors[:1], [b"a"])
    index.add(ids[:1], vectors[:1], [b"b"])
    assert set(index._partitions) == {b"b"}


def test_exact_at_the_size_of_an_embedding() -> None:
    vectors = unit_rows(3000, 384)
    index = FaissIndex(384)
    ids = np.arange(3000, dtype=np.int64)[::-1].copy()
    index.add(ids, vectors, [b"p"] * 3000)
    similarity, found = index.search(vectors[:200], 3, b"p")
    expected = vectors[:200] @ vectors.T
    assert found[:, 0].tolist() == ids[:200].tolist()
    assert np.allclose(similarity, -np.sort(-expected, axis=1)[:, :3], atol=1e-5)


def test_searches_on_one_thread() -> None:
    index = FaissIndex(4)
    index._faiss.omp_set_num_threads(2)
    index.add(np.array([1], dtype=np.int64), unit_rows(1, 4), [b"p"])
    index.search(unit_rows(1, 4), 1, b"p")
    assert index._faiss.omp_get_max_threads() == 1


def test_dimension_must_be_positive() -> None:
    with pytest.raises(ValueError, match="dimension"):
        FaissIndex(0)


def test_missing_faiss_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(StoreError, match=r"pip install 'lockgate\[cpu\]'"):
        FaissIndex(4)


def test_importing_the_cache_does_not_import_faiss() -> None:
    code = "import sys, embeddings.semantic_cache, embeddings.faiss_index; sys.exit('faiss' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
