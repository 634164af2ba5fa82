"""The index benchmark: recall is of the truly nearest, and every figure of the table is measured."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np

from benchmarks.index import exact, grow, many_partitions, search_all, summary, table
from benchmarks.index_data import KINDS, HalfMatrix, nearest, read, unit
from benchmarks.index_peers import FlatPeer, NumpyPeer
from embeddings.faiss_index import FaissIndex
from embeddings.protocols import FloatMatrix

D = 64


def random_rows(count: int, seed: int) -> FloatMatrix:
    return unit(np.random.default_rng(seed).standard_normal((count, D)).astype(np.float32))


def halves(count: int) -> HalfMatrix:
    return random_rows(count, seed=1).astype(np.float16)


def test_reads_each_text_once_and_the_pairs_that_mean_the_same(tmp_path: Path) -> None:
    rows = [
        {"a": "one", "b": "two", "same": True},
        {"a": "two", "b": "three", "same": False},
        {"text": "four"},
    ]
    for name, part in (("a", rows[:2]), ("b", rows[2:])):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in part)
    texts, pairs = read(tmp_path)
    assert texts == ["one", "two", "three", "four"]
    assert pairs.tolist() == [[0, 1]]
    assert read(tmp_path, 1)[0] == ["one", "two", "four"]


def test_neighbours_are_near_and_others() -> None:
    rows = np.concatenate([random_rows(600, seed=1), random_rows(600, seed=1) + 1e-3])
    near = nearest(unit(rows))
    assert near.shape[0] == 1200
    own = np.arange(1200)
    assert (near[:, 0] % 600 == own % 600).mean() > 0.9  # its twin


def test_exact_is_the_highest_cosine() -> None:
    base, queries = halves(500), random_rows(9, seed=2)
    assert np.allclose(exact(base, queries), (queries @ base.astype(np.float32).T).max(axis=1), atol=1e-6)


class FakeWrongPeer:
    name = "wrong"
    scans = True

    def extend(self, base: HalfMatrix, end: int) -> None:
        pass

    def search(self, query: FloatMatrix) -> int:
        return 0


def test_an_index_that_is_wrong_has_no_recall() -> None:
    base, queries = halves(900), random_rows(30, seed=2)
    index = FaissIndex(D, device="cpu")
    ids = np.arange(1, 901, dtype=np.int64)
    index.add(ids, unit(base.astype(np.float32)), [b"p" * 16] * 900)
    flat, product = FlatPeer(D), NumpyPeer()
    for peer in (flat, product):
        peer.extend(base, 900)
    figures = search_all(index, [flat, product, FakeWrongPeer()], base, queries)
    for name in ("lockgate", "faiss flat", "numpy"):
        assert figures[name]["recall"] == dict.fromkeys(KINDS, 1.0)
    assert max(figures["wrong"]["recall"].values()) < 0.2
    assert figures["lockgate"]["ratio"] == 1


def test_summary_is_in_microseconds() -> None:
    assert summary([1e-6] * 19 + [1e-3]) == {"p50": 1.0, "p95": 51.0, "mean": 50.9}


def test_every_size_and_the_many_are_in_the_table(tmp_path: Path) -> None:
    base, queries = halves(3000), random_rows(30, seed=2)
    np.save(tmp_path / "base.npy", base)
    many = many_partitions(tmp_path / "base.npy", queries)
    assert many["partitions"] == 30
    assert many["recall"] == 1
    sizes = grow(base, queries, (1000, 3000), None)
    assert [size["rows"] for size in sizes] == [1000, 3000]
    shown = table({"sizes": sizes, "many": many})
    for words in ("| 1,000 | lockgate |", "| 3,000 | faiss flat |", "30 partitions of 100"):
        assert words in shown
