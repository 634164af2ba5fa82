"""What every vector index must do, against an oracle in numpy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embeddings.faiss_index import FaissIndex
from embeddings.index_tiers import Tiers
from embeddings.protocols import FloatMatrix, IdArray, VectorIndex

D = 8
A, B = b"a" * 16, b"b" * 16
# every form of a partition within a few rows, and each so searched that it is exact
TIERS = Tiers(
    flat_rows=6,
    one_list_rows=12,
    some_lists=2,
    some_probes=2,
    some_lists_rows=24,
    many_lists=4,
    many_probes=4,
    candidates=4096,
)
BUILDERS: dict[str, Callable[[int], VectorIndex]] = {
    "faiss": FaissIndex,
    "faiss in small tiers": partial(FaissIndex, tiers=TIERS),
}
NEAR = 1e-3
"""How far float16 may move a cosine."""


def unit_rows(n: int, seed: int, dimension: int = D) -> FloatMatrix:
    rows = np.random.default_rng(seed).standard_normal((n, dimension)).astype(np.float32)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    # an index may keep float16: so rounded, the order of the nearest is the same for it as for the oracle
    rounded: FloatMatrix = unit.astype(np.float16).astype(np.float32)
    return rounded


def int_ids(*ids: int) -> IdArray:
    return np.array(ids, dtype=np.int64)


@pytest.fixture(params=list(BUILDERS))
def index(request: pytest.FixtureRequest) -> VectorIndex:
    return BUILDERS[request.param](D)


def test_finds_the_nearest_first(index: VectorIndex) -> None:
    vectors = unit_rows(50, seed=1)
    index.add(np.arange(50, dtype=np.int64) + 100, vectors, [A] * 50)
    queries = unit_rows(3, seed=2)
    similarity, ids = index.search(queries, 4, A)
    assert similarity.dtype == np.float32
    assert ids.dtype == np.int64
    expected = queries @ vectors.T
    order = np.argsort(-expected, axis=1)[:, :4]
    assert ids.tolist() == (order + 100).tolist()
    assert np.allclose(similarity, np.take_along_axis(expected, order, axis=1), atol=1e-6)


def test_pads_with_none(index: VectorIndex) -> None:
    vectors = unit_rows(2, seed=1)
    index.add(int_ids(7, 8), vectors, [A, A])
    similarity, ids = index.search(vectors[:1], 5, A)
    assert ids[0, 0] == 7
    assert ids[0, 2:].tolist() == [-1, -1, -1]
    assert similarity[0, 2:].tolist() == [-1, -1, -1]


def test_unknown_partition_is_empty(index: VectorIndex) -> None:
    similarity, ids = index.search(unit_rows(2, seed=1), 3, A)
    assert similarity.tolist() == [[-1] * 3] * 2
    assert ids.tolist() == [[-1] * 3] * 2
    assert index.partition_size(A) == 0


def test_search_of_nothing(index: VectorIndex) -> None:
    index.add(int_ids(1), unit_rows(1, seed=1), [A])
    similarity, ids = index.search(np.empty((0, D), dtype=np.float32), 3, A)
    assert similarity.shape == ids.shape == (0, 3)


def test_add_of_nothing(index: VectorIndex) -> None:
    index.add(int_ids(), np.empty((0, D), dtype=np.float32), [])
    assert len(index) == 0
    assert index.remove(int_ids()) == 0


def test_search_never_leaves_its_partition(index: VectorIndex) -> None:
    vector = unit_rows(1, seed=1)
    index.add(int_ids(1, 2), np.repeat(vector, 2, axis=0), [A, B])
    for partition, expected in ((A, 1), (B, 2)):
        similarity, ids = index.search(vector, 2, partition)
        assert ids.tolist() == [[expected, -1]]
        assert similarity[0, 0] == pytest.approx(1, abs=NEAR)


def test_similarity_stays_within_its_bounds(index: VectorIndex) -> None:
    vectors = unit_rows(500, seed=3) * np.float32(1.0005)
    index.add(np.arange(500, dtype=np.int64), vectors, [A] * 500)
    similarity, _ = index.search(np.concatenate([vectors, -vectors]), 500, A)
    assert similarity.max() == 1
    assert similarity.min() == -1


def test_adding_again_replaces(index: VectorIndex) -> None:
    old, new = unit_rows(2, seed=1)[:1], unit_rows(2, seed=1)[1:]
    index.add(int_ids(5), old, [A])
    index.add(int_ids(5), new, [A])
    assert len(index) == index.partition_size(A) == 1
    similarity, ids = index.search(new, 2, A)
    assert ids.tolist() == [[5, -1]]
    assert similarity[0, 0] == pytest.approx(1, abs=NEAR)


def test_adding_again_elsewhere_moves(index: VectorIndex) -> None:
    vectors = unit_rows(2, seed=1)
    index.add(int_ids(5, 6), vectors, [A, A])
    index.add(int_ids(5), vectors[1:], [B])
    assert index.search(vectors[1:], 2, A)[1].tolist() == [[6, -1]]
    assert index.search(vectors[1:], 2, B)[1].tolist() == [[5, -1]]
    assert len(index) == 2


def test_of_an_id_given_twice_the_last_counts(index: VectorIndex) -> None:
    vectors = unit_rows(3, seed=1)
    index.add(int_ids(5, 5, 5), vectors, [A, B, A])
    assert len(index) == 1
    assert index.partition_size(B) == 0
    similarity, _ = index.search(vectors[2:], 1, A)
    assert similarity[0, 0] == pytest.approx(1, abs=NEAR)


def test_remove(index: VectorIndex) -> None:
    vectors = unit_rows(6, seed=1)
    index.add(np.arange(6, dtype=np.int64), vectors, [A, A, A, A, B, B])
    assert index.remove(int_ids(0, 3, 4, 5, 99, 0)) == 4
    assert index.remove(int_ids(0, 3)) == 0
    assert len(index) == 2
    assert sorted(index.search(vectors[:1], 6, A)[1][0].tolist()) == [-1, -1, -1, -1, 1, 2]
    assert index.search(vectors[4:5], 1, B)[1].tolist() == [[-1]]
    index.add(int_ids(0), vectors[:1], [B])
    assert index.search(vectors[:1], 1, B)[1].tolist() == [[0]]


def test_holds_its_own_copy(index: VectorIndex) -> None:
    vectors = unit_rows(2, seed=1)
    kept = vectors.copy()
    index.add(int_ids(1, 2), vectors, [A, A])
    vectors[:] = 0
    assert index.search(kept[:1], 1, A)[0][0, 0] == pytest.approx(1, abs=NEAR)


def test_takes_strided_and_read_only_arrays(index: VectorIndex) -> None:
    wide = np.asfortranarray(unit_rows(20, seed=1))
    wide.setflags(write=False)
    ids = np.arange(20, dtype=np.int64)
    index.add(ids[::2], wide[::2], [A] * 10)
    similarity, found = index.search(wide[::2], 1, A)
    assert found[:, 0].tolist() == ids[::2].tolist()
    assert np.allclose(similarity, 1, atol=NEAR)


BAD_VECTORS: dict[str, Any] = {
    "one dimension": unit_rows(1, seed=1)[0],
    "wrong dimension": unit_rows(1, seed=1, dimension=D + 1),
    "float64": unit_rows(1, seed=1).astype(np.float64),
    "list": unit_rows(1, seed=1).tolist(),
    "zero": np.zeros((1, D), dtype=np.float32),
    "short": unit_rows(1, seed=1) * np.float32(0.998),
    "nan": np.full((1, D), np.nan, dtype=np.float32),
    "infinite": np.full((1, D), np.inf, dtype=np.float32),
    "huge": np.full((1, D), 1e30, dtype=np.float32),
}


@pytest.mark.parametrize("what", list(BAD_VECTORS))
def test_refuses_vectors_that_do_not_fit(index: VectorIndex, what: str) -> None:
    index.add(int_ids(1), unit_rows(1, seed=1), [A])
    with pytest.raises(ValueError, match="vectors must"):
        index.add(int_ids(2), BAD_VECTORS[what], [A])
    with pytest.raises(ValueError, match="vectors must"):
        index.search(BAD_VECTORS[what], 1, A)
    assert len(index) == 1


def test_one_bad_row_leaves_all_out(index: VectorIndex) -> None:
    vectors = unit_rows(3, seed=1)
    vectors[1] = np.nan
    with pytest.raises(ValueError, match="row 1"):
        index.add(int_ids(1, 2, 3), vectors, [A, A, A])
    assert len(index) == 0


def test_refuses_ids_that_do_not_fit(index: VectorIndex) -> None:
    vector = unit_rows(1, seed=1)
    bad: list[Any] = [np.array([1], dtype=np.int32), np.array([[1]], dtype=np.int64), [1], int_ids(-1)]
    for ids in bad:
        with pytest.raises(ValueError, match="ids must"):
            index.add(ids, vector, [A])
    with pytest.raises(ValueError, match="ids must"):
        index.remove(bad[0])
    with pytest.raises(ValueError, match="as many"):
        index.add(int_ids(1, 2), vector, [A])
    with pytest.raises(ValueError, match="as many"):
        index.add(int_ids(1), vector, [A, B])
    with pytest.raises(ValueError, match="k must"):
        index.search(vector, 0, A)


def filled(index: VectorIndex) -> tuple[IdArray, FloatMatrix, list[bytes]]:
    ids = np.arange(40, dtype=np.int64) * 3
    vectors = unit_rows(40, seed=4)
    partitions = [A if n % 4 else B for n in range(40)]
    index.add(ids, vectors, partitions)
    index.remove(ids[:5])
    return ids[5:], vectors[5:], partitions[5:]


@pytest.mark.parametrize("kind", list(BUILDERS))
def test_a_snapshot_brings_everything_back(kind: str, tmp_path: Path) -> None:
    saved, loaded = BUILDERS[kind](D), BUILDERS[kind](D)
    ids, vectors, partitions = filled(saved)
    path = tmp_path / "index"
    saved.save(path, "some space")
    assert path.stat().st_mode & 0o777 == 0o600
    assert loaded.load(path, "some space")
    assert sorted(loaded.ids().tolist()) == sorted(saved.ids().tolist()) == ids.tolist()
    for partition in (A, B):
        assert loaded.partition_size(partition) == saved.partition_size(partition)
        similarity, found = loaded.search(vectors, 50, partition)
        expected_similarity, expected = saved.search(vectors, 50, partition)
        assert np.allclose(similarity, expected_similarity, atol=1e-6)
        assert found.tolist() == expected.tolist()
    assert loaded.remove(ids[:1]) == 1
    loaded.add(ids[:1], vectors[:1], partitions[:1])
    assert loaded.search(vectors[:1], 1, partitions[0])[1].tolist() == [[ids[0]]]


def test_a_snapshot_replaces_the_one_before(index: VectorIndex, tmp_path: Path) -> None:
    path = tmp_path / "index"
    index.save(path, "s")
    filled(index)
    index.save(path, "s")
    assert [child.name for child in tmp_path.iterdir()] == ["index"]
    loaded = FaissIndex(D)
    assert loaded.load(path, "s")
    assert len(loaded) == len(index)


def test_there_is_no_snapshot(index: VectorIndex, tmp_path: Path) -> None:
    assert not index.load(tmp_path / "none", "s")


@pytest.mark.parametrize("damage", ["cut", "flipped", "longer", "empty", "foreign", "short"])
def test_a_damaged_snapshot_is_not_taken(index: VectorIndex, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "index"
    filled(index)
    index.save(path, "s")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1 if damage == "flipped" else 0
    whole = bytes(content)
    cases = {"cut": whole[:-100], "longer": whole + b"x", "empty": b"", "foreign": b"SQLite" * 99}
    path.write_bytes(cases.get(damage, whole[:10] if damage == "short" else whole))
    loaded = FaissIndex(D)
    assert not loaded.load(path, "s")
    assert len(loaded) == len(loaded.ids()) == 0
    path.write_bytes(whole if damage != "flipped" else whole[: len(whole) // 2])
    assert loaded.load(path, "s") == (damage != "flipped")


def test_a_snapshot_of_something_else_is_not_taken(index: VectorIndex, tmp_path: Path) -> None:
    path = tmp_path / "index"
    filled(index)
    index.save(path, "one space")
    assert not FaissIndex(D).load(path, "another")
    assert not FaissIndex(D + 8).load(path, "one space")
    assert FaissIndex(D).load(path, "one space")


def test_ids(index: VectorIndex) -> None:
    assert index.ids().dtype == np.int64
    assert index.ids().tolist() == []
    far = [3, 10_000_000_000, 2**40]
    index.add(int_ids(*far), unit_rows(3, seed=1), [A, B, A])
    assert sorted(index.ids().tolist()) == far
    index.remove(int_ids(far[1]))
    assert sorted(index.ids().tolist()) == [far[0], far[2]]


IDS = st.integers(min_value=0, max_value=45)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.tuples(IDS, st.sampled_from([A, B])), max_size=25)),
        st.tuples(st.just("remove"), st.lists(st.tuples(IDS, st.just(A)), max_size=25)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("kind", list(BUILDERS))
@settings(max_examples=100, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**32 - 1), k=st.integers(1, 50))
def test_agrees_with_the_oracle(kind: str, steps: list[tuple[str, Any]], seed: int, k: int) -> None:
    index = BUILDERS[kind](D)
    oracle: dict[int, tuple[FloatMatrix, bytes]] = {}
    for step, (operation, rows) in enumerate(steps):
        ids = np.array([entry_id for entry_id, _ in rows], dtype=np.int64)
        if operation == "add":
            vectors = unit_rows(len(rows), seed=seed + step)
            index.add(ids, vectors, [partition for _, partition in rows])
            oracle.update({i: (vectors[row], partition) for row, (i, partition) in enumerate(rows)})
        else:
            there = set(ids.tolist()) & set(oracle)
            assert index.remove(ids) == len(there)
            for entry_id in there:
                del oracle[entry_id]
        assert len(index) == len(oracle)
    query = unit_rows(1, seed=seed + 1000)
    for partition in (A, B):
        expected = {i: float(query[0] @ vector) for i, (vector, home) in oracle.items() if home == partition}
        assert index.partition_size(partition) == len(expected)
        similarity, found = index.search(query, k, partition)
        n = min(k, len(expected))
        assert np.allclose(similarity[0, :n], sorted(expected.values(), reverse=True)[:n], atol=1e-5)
        assert len(set(found[0, :n].tolist())) == n
        assert np.allclose(similarity[0, :n], [expected[i] for i in found[0, :n].tolist()], atol=1e-5)
        assert (found[0, n:] == -1).all()
        assert (similarity[0, n:] == -1).all()


def test_concurrent_use_gives_no_wrong_result(index: VectorIndex) -> None:
    """Fixed points stay while others come, go and move around them. Each search must find its fixed point
    first, and each id it returns must be of its partition and have that id's own similarity."""
    fixed = unit_rows(8, seed=1)
    moving = unit_rows(600, seed=2)
    every = np.concatenate([fixed, moving])
    partitions = [(A, B)[n % 2] for n in range(len(every))]
    index.add(np.arange(8, dtype=np.int64), fixed, partitions[:8])
    stop = threading.Event()

    turns = [0, 0, 0]

    def churn(worker: int) -> None:
        rng = np.random.default_rng(worker)
        own = np.arange(8 + worker, len(every), 3)
        while not stop.is_set():
            ids = rng.choice(own, size=20, replace=False).astype(np.int64)
            index.add(ids, every[ids], [partitions[i] for i in ids.tolist()])
            index.remove(rng.choice(own, size=20, replace=False).astype(np.int64))
            turns[worker] += 1

    def search(worker: int) -> None:
        rng = np.random.default_rng(100 + worker)
        searches = 0
        while searches < 1500 or min(turns) < 10:
            searches += 1
            n = int(rng.integers(8))
            similarity, ids = index.search(fixed[n : n + 1], 10, partitions[n])
            assert ids[0, 0] == n
            for entry_id, cosine in zip(ids[0].tolist(), similarity[0].tolist(), strict=True):
                if entry_id >= 0:
                    assert partitions[entry_id] == partitions[n]
                    assert cosine == pytest.approx(min(1, float(fixed[n] @ every[entry_id])), abs=1e-5)

    with ThreadPoolExecutor(6) as pool:
        churning = [pool.submit(churn, worker) for worker in range(3)]
        searching = [pool.submit(search, worker) for worker in range(3)]
        try:
            for future in searching:
                future.result(timeout=120)
        finally:
            stop.set()
        for future in churning:
            future.result(timeout=120)
    left = [index.search(every[i : i + 1], 1, partitions[i])[1][0, 0] == i for i in range(len(every))]
    assert sum(left) == len(index)
