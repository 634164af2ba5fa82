from __future__ import annotations

import numpy as np
import pytest

from embeddings.protocols import FloatMatrix, IdArray
from embeddings.row_codes import TOGETHER, GpuCodes, RabitqCodes, centres_of

faiss = pytest.importorskip("faiss")
D = 64


def clustered(count: int, seed: int) -> FloatMatrix:
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((20, D))
    rows = centres[random.integers(20, size=count)] + 0.5 * random.standard_normal((count, D))
    unit: FloatMatrix = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def filled(vectors: FloatMatrix) -> tuple[RabitqCodes, IdArray]:
    codes = RabitqCodes.over(faiss, centres_of(faiss, vectors, 8), 8)
    rows = np.arange(len(vectors), dtype=np.int64) * 2
    codes.add(rows, vectors)
    return codes, rows


def test_proposes_the_nearest() -> None:
    vectors = clustered(3000, seed=1)
    codes, rows = filled(vectors)
    queries = clustered(200, seed=2)
    nearest = rows[(queries @ vectors.T).argmax(axis=1)].tolist()
    proposed = [codes.search(queries[n : n + 1], 64).tolist() for n in range(len(queries))]
    found = sum(row in rows for row, rows in zip(nearest, proposed, strict=True))
    assert found >= 175  # of 200: a bit for each of only 64 dimensions


def test_a_few_are_found_before_they_have_a_code() -> None:
    codes, _ = filled(clustered(500, seed=1))
    late = clustered(3 * TOGETHER, seed=3)
    for n in range(len(late)):
        codes.add(np.array([10_000 + n], dtype=np.int64), late[n : n + 1])
        assert codes.count == 501 + n
        for row in (0, n):
            assert 10_000 + row in codes.search(late[row : row + 1], 10)


def test_what_is_dumped_is_parsed() -> None:
    vectors = clustered(700, seed=1)
    codes, _ = filled(vectors)
    codes.add(np.array([9_999], dtype=np.int64), -vectors[:1])
    again = RabitqCodes.parse(faiss, codes.dump())
    assert (again.count, again.lists) == (codes.count, codes.lists) == (701, 8)
    for n in range(20):
        query = vectors[n : n + 1]
        assert sorted(again.search(query, 9).tolist()) == sorted(codes.search(query, 9).tolist())


def test_centres_are_the_same_again_and_apart() -> None:
    sample = clustered(2000, seed=1)
    centres = centres_of(faiss, sample, 20)
    assert (centres == centres_of(faiss, sample, 20)).all()
    assert np.allclose(np.linalg.norm(centres, axis=1), 1, atol=1e-5)
    assert (sample @ centres.T).max(axis=1).mean() > 0.8 > (sample @ centres[:1].T).mean()


def test_centres_of_rows_that_are_all_the_same() -> None:
    sample = np.repeat(clustered(1, seed=1), 30, axis=0)
    assert np.allclose(centres_of(faiss, sample, 4) @ sample[0], 1, atol=1e-5)


class Ended(Exception):
    pass


def test_training_can_be_ended() -> None:
    def keep_on() -> None:
        raise Ended

    with pytest.raises(Ended):
        centres_of(faiss, clustered(100, seed=1), 4, keep_on)


@pytest.mark.gpu
def test_gpu_proposes_the_nearest() -> None:
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        pytest.skip("needs faiss-gpu and a CUDA device")
    vectors, queries = clustered(3000, seed=1), clustered(50, seed=2)
    codes = GpuCodes(faiss, D)
    for start in range(0, 3000, 500):
        codes.add(np.arange(start, start + 500, dtype=np.int64) * 2, vectors[start : start + 500])
    assert codes.count == 3000
    for n, nearest in enumerate((queries @ vectors.T).argmax(axis=1).tolist()):
        assert 2 * nearest in codes.search(queries[n : n + 1], 8)
