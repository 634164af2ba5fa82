from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from embeddings.faiss_index import FaissIndex
from embeddings.flat_rows import FlatRows
from embeddings.index_partition import Partition
from embeddings.index_tiers import Tiers
from embeddings.protocols import FloatMatrix, StoreError
from embeddings.slab_rows import STEP, SlabRows

D = 32
SMALL = Tiers(
    flat_rows=50,
    one_list_rows=200,
    some_lists=4,
    some_probes=4,
    some_lists_rows=800,
    many_lists=8,
    many_probes=8,
    candidates=1000,
)
"""Every tier within a thousand rows, all lists searched and candidates enough to be as good as exact."""


def unit_rows(n: int, dimension: int, seed: int = 5) -> FloatMatrix:
    rows = np.random.default_rng(seed).standard_normal((n, dimension)).astype(np.float32)
    unit: FloatMatrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def form(index: FaissIndex, partition: bytes = b"p") -> tuple[type[FlatRows | SlabRows], int]:
    """What its rows are kept as, and in how many lists their codes are."""
    home = index._partitions[partition]
    return type(home._rows), 0 if home._codes is None else home._codes.lists or -1


def test_an_emptied_partition_is_dropped() -> None:
    index = FaissIndex(4)
    vectors = unit_rows(100, 4)
    ids = np.arange(100, dtype=np.int64)
    index.add(ids, vectors, [bytes([n]) for n in range(100)])
    assert len(index._partitions) == 100
    index.remove(ids)
    assert not index._partitions
    assert not index._keys
    assert not index._table._pages
    index.add(ids[:1], vectors[:1], [b"a"])
    index.add(ids[:1], vectors[:1], [b"b"])
    assert set(index._partitions) == {b"b"}


def test_exact_at_the_size_of_an_embedding() -> None:
    vectors = unit_rows(2000, 384)
    index = FaissIndex(384, device="cpu")
    ids = np.arange(2000, dtype=np.int64)[::-1].copy()
    index.add(ids, vectors, [b"p"] * 2000)
    similarity, found = index.search(vectors[:200], 3, b"p")
    expected = vectors[:200] @ vectors.T
    assert found[:, 0].tolist() == ids[:200].tolist()
    assert np.allclose(similarity, -np.sort(-expected, axis=1)[:, :3], atol=1e-3)
    assert form(index) == (FlatRows, 0)


def test_finds_what_is_close_beyond_the_exact_tier() -> None:
    vectors = unit_rows(6000, 384)
    index = FaissIndex(384, device="cpu")
    index.add(np.arange(6000, dtype=np.int64), vectors, [b"p"] * 6000)
    assert index.settled(60)
    assert form(index) == (SlabRows, 1)
    near = vectors[:300] + 0.4 * unit_rows(300, 384, seed=6)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    similarity, found = index.search(near, 1, b"p")
    assert found[:, 0].tolist() == list(range(300))
    assert np.allclose(similarity[:, 0], np.einsum("nd,nd->n", near, vectors[:300]), atol=1e-3)


def test_each_tier_there_and_back() -> None:
    index = FaissIndex(D, device="cpu", tiers=SMALL)
    vectors = unit_rows(1500, D)
    ids = np.arange(1500, dtype=np.int64)
    expected_up = {40: (FlatRows, 0), 150: (SlabRows, 1), 700: (SlabRows, 4), 1500: (SlabRows, 8)}
    expected_down = {700: (SlabRows, 4), 390: (SlabRows, 4), 90: (SlabRows, 1), 20: (FlatRows, 0)}
    start = 0
    for end, expected in expected_up.items():
        index.add(ids[start:end], vectors[start:end], [b"p"] * (end - start))
        assert index.settled(60)
        assert form(index) == expected
        assert index.search(vectors[:end], 1, b"p")[1][:, 0].tolist() == ids[:end].tolist()
        start = end
    for end, expected in expected_down.items():
        index.remove(ids[end:start])
        assert index.settled(60)
        assert form(index) == expected
        similarity, found = index.search(vectors[:start], 3, b"p")
        assert found[:end, 0].tolist() == ids[:end].tolist()
        assert found.max() < end
        assert np.allclose(similarity, np.sort(vectors[:start] @ vectors[:end].T)[:, :-4:-1], atol=2e-3)
        start = end


def test_a_full_cache_that_replaces_keeps_its_size() -> None:
    """One goes and one comes: codes of what is gone must not pile up, nor rows."""
    index = FaissIndex(D, device="cpu", tiers=SMALL)
    vectors = unit_rows(6000, D)
    index.add(np.arange(600, dtype=np.int64), vectors[:600], [b"p"] * 600)
    for n in range(600, 6000, 20):
        index.remove(np.arange(n - 600, n - 580, dtype=np.int64))
        index.add(np.arange(n, n + 20, dtype=np.int64), vectors[n : n + 20], [b"p"] * 20)
        if n % 200 == 0:
            assert index.settled(60)
    assert index.settled(60)
    home = index._partitions[b"p"]
    assert len(index) == 600
    assert isinstance(home._rows, SlabRows)
    assert home._rows.end <= 620
    assert home._codes is not None
    assert home._codes.count <= 600 + 200 + SMALL.flat_rows
    assert index.search(vectors[5400:], 1, b"p")[1][:, 0].tolist() == list(range(5400, 6000))


def test_memory_of_what_is_removed_is_given_back() -> None:
    count = 3 * STEP
    index = FaissIndex(D, device="cpu")
    vectors = unit_rows(count, D)
    index.add(np.arange(count, dtype=np.int64), vectors, [b"p"] * count)
    assert index.settled(60)
    index.remove(np.arange(count - 5000, dtype=np.int64))
    assert index.settled(60)
    home = index._partitions[b"p"]
    assert isinstance(home._rows, SlabRows)
    assert len(home._rows._ids) <= 2 * STEP
    assert home._codes is not None
    assert home._codes.count <= 5000 * 4 // 3 + Tiers().flat_rows
    similarity, found = index.search(vectors[-50:], 1, b"p")
    assert (similarity > 0.999).all()
    assert (found >= count - 5000).all()


def test_more_than_the_codes_propose_may_be_asked_for() -> None:
    index = FaissIndex(D, device="cpu", tiers=SMALL)
    vectors = unit_rows(500, D)
    index.add(np.arange(500, dtype=np.int64), vectors, [b"p"] * 500)
    assert index.settled(60)
    similarity, found = index.search(vectors[:2], 600, b"p")
    assert sorted(found[0, :500].tolist()) == list(range(500))
    assert (found[:, 500:] == -1).all()
    assert (np.diff(similarity[0]) <= 0).all()


def test_a_failed_build_leaves_the_old_form(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(Partition, "_new_codes", fail)
    index = FaissIndex(D, device="cpu", tiers=SMALL)
    vectors = unit_rows(110, D)
    ids = np.arange(110, dtype=np.int64)
    index.add(ids[:60], vectors[:60], [b"p"] * 60)
    assert index.settled(60)
    index.add(ids[60:], vectors[60:], [b"p"] * 50)
    assert index.settled(60)
    assert form(index) == (FlatRows, 0)
    assert [record.message for record in caplog.records] == [
        "a partition of 60 vectors keeps its form: no memory"
    ]
    assert index.search(vectors, 1, b"p")[1][:, 0].tolist() == ids.tolist()
    monkeypatch.undo()
    index.add(ids + 110, vectors, [b"p"] * 110)
    assert index.settled(60)
    assert form(index)[0] is SlabRows


@pytest.mark.parametrize("rows", [40, 150, 700, 1500])
def test_a_snapshot_keeps_the_form(rows: int, tmp_path: Path) -> None:
    saved = FaissIndex(D, device="cpu", tiers=SMALL)
    vectors = unit_rows(rows, D)
    ids = np.arange(rows, dtype=np.int64)
    saved.add(ids, vectors, [b"p"] * rows)
    assert saved.settled(60)
    saved.remove(ids[::7])
    assert saved.settled(60)
    saved.save(tmp_path / "index", "x")
    loaded = FaissIndex(D, device="cpu", tiers=SMALL)
    assert loaded.load(tmp_path / "index", "x")
    assert form(loaded) == form(saved)
    left = np.setdiff1d(ids, ids[::7])
    assert loaded.search(vectors[left], 1, b"p")[1][:, 0].tolist() == left.tolist()
    loaded.add(ids[::7], vectors[::7], [b"p"] * len(ids[::7]))
    assert loaded.search(vectors, 1, b"p")[1][:, 0].tolist() == ids.tolist()


def test_a_snapshot_is_loaded_into_an_empty_index(tmp_path: Path) -> None:
    index = FaissIndex(D)
    index.add(np.array([1], dtype=np.int64), unit_rows(1, D), [b"p"])
    with pytest.raises(ValueError, match="empty"):
        index.load(tmp_path / "index", "x")


def test_reads_writes_builds_and_saves_at_once(tmp_path: Path) -> None:
    """Two partitions grow and shrink through all tiers under four writers, each with ids of its own, while
    others search and save. No search leaves its partition, finds what is known to be removed or misses a
    vector that is there throughout; each snapshot has the ids that were there throughout, with their
    vectors."""
    index = FaissIndex(D, device="cpu", tiers=SMALL)
    fixed, moving = unit_rows(30, D, seed=1), unit_rows(2000, D, seed=2)
    every = np.concatenate([fixed, moving])
    names = (b"a", b"b")
    partitions = [names[n % 2] for n in range(len(every))]
    index.add(np.arange(30, dtype=np.int64), fixed, partitions[:30])
    writing = threading.Event()
    writing.set()

    def write(worker: int) -> None:
        own = np.arange(30 + worker, len(every), 4, dtype=np.int64)
        for _ in range(4):
            for start in range(0, len(own), 25):
                ids = own[start : start + 25]
                index.add(ids, every[ids], [partitions[n] for n in ids.tolist()])
            for start in range(0, len(own), 25):
                ids = own[start : start + 25]
                index.remove(ids)
                found = index.search(every[ids[:2]], 5, partitions[ids[0]])[1]
                assert not np.isin(found, ids).any()

    def search(worker: int) -> None:
        random = np.random.default_rng(worker)
        while writing.is_set():
            n = int(random.integers(30))
            similarity, ids = index.search(every[n : n + 1], 8, partitions[n])
            assert ids[0, 0] == n
            found = ids[0][ids[0] >= 0]
            assert len(set(found.tolist())) == len(found)
            assert {partitions[entry_id] for entry_id in found.tolist()} == {partitions[n]}
            assert np.allclose(similarity[0, : len(found)], every[found] @ every[n], atol=2e-3)

    def save() -> int:
        saved = 0
        while writing.is_set():
            index.save(tmp_path / "index", "x")
            loaded = FaissIndex(D, device="cpu", tiers=SMALL)
            assert loaded.load(tmp_path / "index", "x")
            assert np.isin(np.arange(30), loaded.ids()).all()
            for name in names:
                mine = [n for n in range(30) if partitions[n] == name]
                assert loaded.search(fixed[mine], 1, name)[1][:, 0].tolist() == mine
            saved += 1
        return saved

    with ThreadPoolExecutor(7) as pool:
        readers = [pool.submit(search, worker) for worker in range(2)]
        saver = pool.submit(save)
        writers = [pool.submit(write, worker) for worker in range(4)]
        try:
            for future in writers:
                future.result(timeout=120)
        finally:
            writing.clear()
        for reader in readers:
            reader.result(timeout=120)
        assert saver.result(timeout=120) > 0
    assert sorted(index.ids().tolist()) == list(range(30))
    assert index.settled(60)
    assert form(index, b"a") == (FlatRows, 0)


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


def test_a_gpu_that_is_asked_for_must_be_there() -> None:
    faiss = pytest.importorskip("faiss")
    if hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus():
        pytest.skip("there is a GPU")
    with pytest.raises(StoreError, match="no GPU"):
        FaissIndex(4, device="cuda")


@pytest.mark.gpu
def test_gpu_finds_what_the_cpu_finds() -> None:
    faiss = pytest.importorskip("faiss")
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        pytest.skip("needs faiss-gpu and a CUDA device")
    vectors = unit_rows(5000, 384)
    ids = np.arange(5000, dtype=np.int64)
    index = FaissIndex(384, device="cuda")
    index.add(ids, vectors, [b"p"] * 5000)
    assert index.settled(60)
    index.remove(ids[::3])
    index.add(ids[:9], vectors[:9], [b"p"] * 9)
    left = np.union1d(np.setdiff1d(ids, ids[::3]), ids[:9])
    assert index.search(vectors[left], 1, b"p")[1][:, 0].tolist() == left.tolist()
    assert not np.isin(index.search(vectors[9:300:3], 5, b"p")[1], ids[9::3]).any()


def test_importing_the_cache_does_not_import_faiss() -> None:
    code = "import sys, embeddings.semantic_cache, embeddings.faiss_index; sys.exit('faiss' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_process_ends_while_a_partition_is_built() -> None:
    code = (
        "import numpy as np\nfrom embeddings.faiss_index import FaissIndex\n"
        "rows = np.random.default_rng(1).standard_normal((60000, 64)).astype(np.float32)\n"
        "rows /= np.linalg.norm(rows, axis=1, keepdims=True)\n"
        "index = FaissIndex(64, device='cpu')\n"
        "index.add(np.arange(60000), rows, [b'p'] * 60000)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, timeout=60, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
