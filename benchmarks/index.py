"""Our vector index against FAISS flat, hnswlib and plain numpy, from 10,000 vectors to a million.

    python benchmarks/index.py [--quick] [--json] [--sizes N,N] [--data DIR]

One process, one thread a search, one query at a time; the indexes take turns of thirty queries, so a busy
machine hurts all alike and the ratios mean more than the times. The vectors are of real texts
(`index_data.py` says how they become a million); each size is reached by adding to the one before. Recall@1
is the share of queries whose first result is as close as the nearest of all, which float32 products over
the whole base give. Memory is what the process has more of its own (RssAnon); where it takes again what it
had given back, that is not seen. hnswlib (M 16, ef_construction 200, ef 64) has an environment of its own
and is left out beyond 100,000, where building takes too long; `absent` says when it could not be had.

--json prints one object: `sizes`, for each size `rows`; `add_us` (a vector, in batches of 1,000), `build_s`
(from the first of them to an index in its final form), `memory_mb` (of all rows so far), `lone_add_us` and
`remove_us` (`p50`, `p95`, `mean`; one at a time), `save_s`, `load_s`, `file_mb`; `search` by index, each
with `queries`, `p50_us`, `p95_us`, `ratio` (its p50 over ours on the same queries) and `recall` by kind of
query. `many`: as many vectors as the largest size in partitions of 100, `partitions`, `add_us`,
`memory_mb`, `p50_us`, `p95_us`, `recall`. `absent`, `quick`, `seed`, `environment`. Seed: 1.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy is to have one thread too; before it is imported

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import report
from benchmarks.index_data import KINDS, SEED, HalfMatrix, make, unit
from benchmarks.index_peers import FlatPeer, HnswPeer, IndexPeer, NumpyPeer
from benchmarks.peers import Unavailable
from embeddings.faiss_index import FaissIndex
from embeddings.protocols import FloatMatrix

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "cache"
SIZES = (10_000, 100_000, 300_000, 1_000_000)
QUICK_SIZES = (5_000, 20_000)
QUICK_LINES = 250
BATCH = 1_000
PARTITION = b"p" * 16
TENANT_ROWS = 100
LONE_WRITES = 1_000
MOST_HNSW_ROWS = 100_000
SCANNED = 30_000_000
"""Rows that a search through all of them may go through in total: fewer queries where there are more."""
TURN = 30
"""Queries that one index answers before the next has its turn: a multiple of the kinds there are."""
SAME = 2e-4
"""What float16 may take from a cosine."""
SETTLED_WITHIN_S = 3600.0


def memory_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1000


def summary(times_s: list[float]) -> dict[str, float]:
    p50, p95 = (np.percentile(times_s, [50, 95]) * 1e6).tolist()
    return {"p50": round(p50, 1), "p95": round(p95, 1), "mean": round(float(np.mean(times_s)) * 1e6, 1)}


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def exact(base: HalfMatrix, queries: FloatMatrix) -> FloatMatrix:
    """The cosine of each query's nearest."""
    best = np.full(len(queries), -1, dtype=np.float32)
    for start in range(0, len(base), 20_000):
        part = base[start : start + 20_000].astype(np.float32)
        best = np.maximum(best, (queries @ part.T).max(axis=1))
    return best


def fill(index: FaissIndex, base: HalfMatrix, start: int, end: int) -> float:
    """Seconds spent adding rows start..end of the base; a row's id is its number + 1."""
    spent = 0.0
    for first in range(start, end, BATCH):
        last = min(first + BATCH, end)
        vectors = unit(base[first:last].astype(np.float32))
        ids = np.arange(first + 1, last + 1, dtype=np.int64)
        spent += timed(index.add, ids, vectors, [PARTITION] * len(ids))[0]
    return spent


def search_all(
    index: FaissIndex, peers: list[IndexPeer], base: HalfMatrix, queries: FloatMatrix
) -> dict[str, Any]:
    """Every index on every query in turn, the slow ones on the first of them only."""
    truth = exact(base, queries)
    few = max(len(KINDS) * 8, min(len(queries), SCANNED // len(base) // len(KINDS) * len(KINDS)))
    asked = {peer.name: few if peer.scans else len(queries) for peer in peers} | {"lockgate": len(queries)}
    times: dict[str, list[float]] = {name: [] for name in asked}
    right: dict[str, list[bool]] = {name: [] for name in asked}
    for start in range(0, len(queries), TURN):
        turn = range(start, min(start + TURN, len(queries)))
        for n in turn:
            spent, (cosines, _) = timed(index.search, queries[n : n + 1], 1, PARTITION)
            times["lockgate"].append(spent)
            right["lockgate"].append(bool(cosines[0, 0] >= truth[n] - SAME))
        for peer in peers:
            for n in range(start, min(turn.stop, asked[peer.name])):
                spent, row = timed(peer.search, queries[n : n + 1])
                times[peer.name].append(spent)
                cosine = base[row].astype(np.float32) @ queries[n]
                right[peer.name].append(bool(cosine >= truth[n] - SAME))
    figures = {}
    for name, spent_s in times.items():
        of = summary(spent_s)
        ours = summary(times["lockgate"][: len(spent_s)])
        figures[name] = {
            "queries": len(spent_s),
            "p50_us": of["p50"],
            "p95_us": of["p95"],
            "ratio": round(of["p50"] / ours["p50"], 2),
            "recall": {
                kind: round(float(np.mean(right[name][place :: len(KINDS)])), 4)
                for place, kind in enumerate(KINDS)
            },
        }
    return figures


def lone_writes(index: FaissIndex, base: HalfMatrix) -> dict[str, Any]:
    vectors = unit(base[:LONE_WRITES].astype(np.float32))
    ids = np.arange(LONE_WRITES, dtype=np.int64) + index.ids().max() + 1
    adds = [timed(index.add, ids[n : n + 1], vectors[n : n + 1], [PARTITION])[0] for n in range(LONE_WRITES)]
    removes = [timed(index.remove, ids[n : n + 1])[0] for n in range(LONE_WRITES)]
    return {"lone_add_us": summary(adds), "remove_us": summary(removes)}


def snapshot(index: FaissIndex, queries: FloatMatrix) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        save_s, _ = timed(index.save, path, "benchmark")
        again = FaissIndex(index.dimension, device="cpu")
        load_s, is_loaded = timed(again.load, path, "benchmark")
        same = again.search(queries, 1, PARTITION)[1] == index.search(queries, 1, PARTITION)[1]
        if not is_loaded or same.mean() < 0.99:
            raise SystemExit("the snapshot does not hold what was saved")
        size_mb = path.stat().st_size / 1e6
    return {"save_s": round(save_s, 2), "load_s": round(load_s, 2), "file_mb": round(size_mb, 1)}


def grow(base: HalfMatrix, queries: FloatMatrix, sizes: tuple[int, ...], hnsw: HnswPeer | None) -> Any:
    index = FaissIndex(base.shape[1], device="cpu")
    peers: list[IndexPeer] = [FlatPeer(base.shape[1]), NumpyPeer(), *([hnsw] if hnsw else [])]
    figures, memory, start = [], 0.0, 0
    for end in sizes:
        before, began = memory_mb(), time.perf_counter()
        spent = fill(index, base, start, end)
        if not index.settled(SETTLED_WITHIN_S):
            raise SystemExit("the index is not built within an hour")
        build_s = time.perf_counter() - began
        memory += memory_mb() - before
        peers = [peer for peer in peers if not isinstance(peer, HnswPeer) or end <= MOST_HNSW_ROWS]
        for peer in peers:
            peer.extend(base, end)
        figures.append(
            {
                "rows": end,
                "add_us": round(spent / (end - start) * 1e6, 1),
                "build_s": round(build_s, 1),
                "memory_mb": round(memory, 1),
                "search": search_all(index, peers, base[:end], queries),
                **lone_writes(index, base),
                **snapshot(index, queries[:100]),
            }
        )
        print(json.dumps(figures[-1]), file=sys.stderr, flush=True)
        start = end
    return figures


def many_partitions(path: Path, queries: FloatMatrix) -> dict[str, Any]:
    """In a process of its own, so that its memory is. The queries go to the partitions in turn."""
    base = np.load(path, mmap_mode="r")
    count = len(base) // TENANT_ROWS
    keys = [number.to_bytes(16, "big") for number in range(count)]
    index = FaissIndex(base.shape[1], device="cpu")
    before, spent = memory_mb(), 0.0
    for start in range(0, count * TENANT_ROWS, BATCH):
        ids = np.arange(start + 1, min(start + BATCH, count * TENANT_ROWS) + 1, dtype=np.int64)
        vectors = unit(base[ids - 1].astype(np.float32))
        of = [keys[row] for row in ((ids - 1) % count).tolist()]  # each partition is there from the start
        spent += timed(index.add, ids, vectors, of)[0]
    memory = memory_mb() - before
    times, right = [], []
    for n in range(len(queries)):
        tenant = n * 7 % count
        rows = base[tenant : count * TENANT_ROWS : count].astype(np.float32)
        took, (cosines, _) = timed(index.search, queries[n : n + 1], 1, keys[tenant])
        times.append(took)
        right.append(cosines[0, 0] >= (rows @ queries[n]).max() - SAME)
    of_search = summary(times)
    return {
        "partitions": count,
        "add_us": round(spent / (count * TENANT_ROWS) * 1e6, 1),
        "memory_mb": round(memory, 1),
        "p50_us": of_search["p50"],
        "p95_us": of_search["p95"],
        "recall": round(float(np.mean(right)), 4),
    }


def table(results: Mapping[str, Any]) -> str:
    lines = [
        "| Vectors | Index | Search p50 / p95, µs | of ours | Recall@1 near / real / new |",
        "| --- | --- | --- | --- | --- |",
    ]
    for size in results["sizes"]:
        for name, of in size["search"].items():
            recall = " / ".join(f"{of['recall'][kind]:.3f}" for kind in KINDS)
            times = f"{of['p50_us']:,.0f} / {of['p95_us']:,.0f}"
            lines.append(f"| {size['rows']:,} | {name} | {times} | {of['ratio']} | {recall} |")
    lines += ["", "| Vectors | Add, µs | lone | Remove, µs | Memory, MB | Built, s | Save / load, s |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    lines += [
        f"| {size['rows']:,} | {size['add_us']} | {size['lone_add_us']['p50']} | {size['remove_us']['p50']} "
        f"| {size['memory_mb']} | {size['build_s']} | {size['save_s']} / {size['load_s']} |"
        for size in results["sizes"]
    ]
    many = results["many"]
    lines += ["", f"{many['partitions']:,} partitions of {TENANT_ROWS}: {many}"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few texts, up to 20,000 vectors")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    parser.add_argument("--sizes", help="numbers of vectors, growing, with commas between")
    parser.add_argument("--queries", type=int, help="how many, a multiple of three")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds the texts")
    arguments = parser.parse_args()
    if not any(arguments.data.glob("*.jsonl.gz")):
        raise SystemExit(f"{arguments.data}: no texts there; name the folder that holds *.jsonl.gz: --data")
    usual = ",".join(map(str, QUICK_SIZES if arguments.quick else SIZES))
    sizes = tuple(map(int, (arguments.sizes or usual).split(",")))
    count = arguments.queries or (90 if arguments.quick else 900)
    lines = QUICK_LINES if arguments.quick else None
    data = make(arguments.data, sizes[-1], count, near_among=sizes[0], lines=lines)
    absent = {}
    try:
        hnsw = HnswPeer(data.base.shape[1], MOST_HNSW_ROWS, may_install=not arguments.quick)
    except Unavailable as reason:
        hnsw, absent = None, {"hnswlib": str(reason)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.npy"
        np.save(path, data.base)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:
            many = apart.submit(many_partitions, path, data.queries).result()
    payload = {
        "seed": SEED,
        "quick": arguments.quick,
        "absent": absent,
        "many": many,
        "sizes": grow(data.base, data.queries, sizes, hnsw),
    }
    written = report.write("index", payload, " ".join(["python", "benchmarks/index.py", *sys.argv[1:]]))
    if arguments.json:
        print(json.dumps({**payload, "environment": report.environment()}))
    else:
        print(f"{table(payload)}\n\nSeed {SEED}; {written}")


if __name__ == "__main__":
    main()
