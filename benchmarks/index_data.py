"""Vectors to search among and for, made from real texts.

The texts are the questions and commands in shared/data/cache: 87,851 different ones, English and Korean,
embedded with the packaged model. A thousand are held out. The base is the rest, and beyond it vectors on
the way between neighbours, as SMOTE makes them (arXiv:1106.1813): from a text towards one of its 32
nearest, any part of the way, and then moved as one real paraphrase lies from another, between half and one
and a half times as far. So the base has the clusters of real texts, and a text has paraphrases.

Three kinds of query, in equal parts: `near`, a vector of the base moved by a real paraphrase of cosine .9 or
more; `real`, a text held out; `new`, made as the base is but not in it.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from embeddings import model_cache
from embeddings.onnx_embedder import OnnxEmbedder
from embeddings.protocols import FloatMatrix, IdArray

SEED = 1
HELD_OUT = 1_000
NEIGHBOURS = 32
PARAPHRASE = 0.9
BATCH = 64
PIECE = 50_000
KINDS = ("near", "real", "new")

HalfMatrix = npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """`base`: float16 (N, D) of unit norm. `queries`: float32 (Q, D), a third of each of `KINDS`, taking
    turns; those that are near lie near one of the first `near_among` of the base."""

    base: HalfMatrix
    queries: FloatMatrix
    near_among: int


def make(folder: Path, count: int, queries: int, near_among: int, lines: int | None = None) -> Data:
    """`folder` holds the texts; of each file only the first `lines` are read. The same for the same
    arguments."""
    random = np.random.default_rng(SEED)
    texts, pairs = read(folder, lines)
    real = embedded(texts)
    cosines = np.einsum("nd,nd->n", real[pairs[:, 0]], real[pairs[:, 1]])
    pairs = pairs[(cosines >= PARAPHRASE) & (cosines < 0.999)]
    moves = real[pairs[:, 1]] - real[pairs[:, 0]]
    order = random.permutation(len(real))
    held_out = min(HELD_OUT, len(real) // 4)
    held, kept = real[order[:held_out]], real[order[held_out:]]
    neighbours = nearest(kept)

    def between(size: int) -> FloatMatrix:
        rows = random.integers(len(kept), size=size)
        others = neighbours[rows, random.integers(NEIGHBOURS, size=size)]
        way = random.random((size, 1), dtype=np.float32)
        far = random.random((size, 1), dtype=np.float32) + np.float32(0.5)
        made: FloatMatrix = kept[rows] + way * (kept[others] - kept[rows])
        return unit(made + far * moves[random.integers(len(moves), size=size)])

    base = np.empty((count, real.shape[1]), dtype=np.float16)
    first = min(count, len(kept))
    base[:first] = kept[:first]
    for start in range(first, count, PIECE):
        end = min(start + PIECE, count)
        base[start:end] = between(end - start)
    base = base[random.permutation(count)]
    third = queries // 3
    near = base[random.integers(near_among, size=third)] + moves[random.integers(len(moves), size=third)]
    asked = np.empty((3 * third, real.shape[1]), dtype=np.float32)
    asked[0::3], asked[1::3], asked[2::3] = unit(near), held[:third], between(third)
    return Data(base=base, queries=asked, near_among=near_among)


def read(folder: Path, most: int | None = None) -> tuple[list[str], IdArray]:
    """Every text once, and the pairs (M, 2) of those that mean the same."""
    known: dict[str, int] = {}
    pairs = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in itertools.islice(lines, most):
                row = json.loads(line)
                numbers = [known.setdefault(row[key], len(known)) for key in ("a", "b", "text") if key in row]
                if row.get("same"):
                    pairs.append(numbers)
    return list(known), np.array(pairs, dtype=np.int64)


def embedded(texts: list[str]) -> FloatMatrix:
    """Kept in the cache folder: embedding takes minutes."""
    embedder = OnnxEmbedder.open("default", "cpu", 2)
    try:
        what = hashlib.blake2b("\0".join([embedder.space, *texts]).encode(), digest_size=6).hexdigest()

        def build(folder: Path) -> None:
            vectors = np.empty((len(texts), embedder.dimension), dtype=np.float16)
            order = np.argsort([len(text) for text in texts], kind="stable")
            for start in range(0, len(texts), BATCH):
                rows = order[start : start + BATCH]
                vectors[rows] = embedder.encode([texts[row] for row in rows]).vectors
            np.save(folder / "vectors.npy", vectors)

        folder = model_cache.ensure(f"index-benchmark-{what}", build)
    finally:
        embedder.close()
    return unit(np.load(folder / "vectors.npy").astype(np.float32))


def nearest(vectors: FloatMatrix) -> IdArray:
    """(N, NEIGHBOURS): for each vector rows near it, found by inverted lists, the nearest left out
    (itself)."""
    import faiss

    index: Any = faiss.index_factory(vectors.shape[1], "IVF16,Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[::3])
    index.add(vectors)
    index.nprobe = 2
    found: IdArray = index.search(vectors, NEIGHBOURS + 1)[1][:, 1:]
    rows = np.arange(len(vectors))[:, None]
    return np.where(found < 0, rows, found)


def unit(vectors: FloatMatrix) -> FloatMatrix:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: FloatMatrix = (vectors / lengths).astype(np.float32)
    return scaled
