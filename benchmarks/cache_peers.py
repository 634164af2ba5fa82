"""Other semantic caches on the streams of `cache_policies.py` and on the pairs of fow-cache.

    python benchmarks/cache_peers.py [--quick] [--json] [--data FOLDER]

Each peer runs in an environment of its own, installed on the first run that is not --quick; one that does not
install or run is reported with the reason. Both take their embedding models from a hub. They are given
all-MiniLM-L6-v2 through their own embedding hooks instead, as our embedder has it in int8: CacheLLM's default
model, not GPTCache's. Thresholds and decisions are the peers' defaults; nothing is evicted.

Streams: vCache's protocol (arXiv:2502.03771). From an empty cache, in order; on a miss the question is
stored; a hit is right when the served question is of the asked one's class. The same questions as in
`cache_policies.py`. `fow-cache` from PyPI (data CC BY 4.0), read and labelled by its own `evaluate`, for
evaluation only: one of a pair is stored in an empty cache, the other asked.

`cpu_ms`: CPU time of the peer's process per request, all threads, hits and misses together: look-up, decision
and, on a miss, storing (GPTCache: Python calls, SQLite and FAISS files; CacheLLM: the whole proxy as an ASGI
application, cache in memory). No embedding model: vectors are looked up. No socket, no upstream.

--json prints one object: `peers`, by name, each with `requirement`, `threshold` (least cosine served, as
shipped) and `versions`; `unavailable`: reasons, by name; `streams`, by name, each with `requests`,
`perfect_hit_rate` and `rows`: `policy` (the peer), `setting` (its threshold), `hit_rate`, `error_rate` (wrong
over all requests), `error_rate_among_hits`, `hits_of_perfect`, `declined` (requests that it held unfit for
caching), `cpu_ms`; `fow_cache`: for `questions` and `conversations` a list of `peer`, `same`, `served` (share
of the same), `traps`, `traps_served` (share of the traps), `declined` (of the asked); `embedder`,
`environment`. Seed: none; the order of the streams is fixed in their files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import report
from benchmarks.cache_policies import DATA, STREAMS, Stream, Tally, summary
from benchmarks.peer_job import Messages, message
from benchmarks.peers import INSTALL_LIMIT_S, Peer, Unavailable, install
from benchmarks.processes import CommandFailed, finish, last_line
from embeddings.onnx_embedder import OnnxEmbedder
from embeddings.protocols import Embedder, FloatMatrix
from gateway.verifier_corpus import held_out_stream
from gateway.verifier_weights import read_verifier, shipped

RUN_LIMIT_S = 1_800.0
QUICK_ROWS, QUICK_PAIRS = 300, 30


class CachePeer(msgspec.Struct, frozen=True, kw_only=True):
    """`beside`: what it would install for itself at its first call. `program`: what its Python runs."""

    package: Peer
    program: str
    beside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.package.name


PEERS = (
    CachePeer(
        package=Peer(name="GPTCache", home="gptcache", requirement="gptcache==0.1.44"),
        program="benchmarks.peer_gptcache",
        beside=("sqlalchemy==2.1.9", "faiss-cpu==1.15.1"),
    ),
    CachePeer(
        package=Peer(name="CacheLLM", home="cachellm", requirement="cachellm-proxy==0.3.0"),
        program="benchmarks.peer_cachellm",
    ),
)
FOW_CACHE = Peer(name="fow-cache", home="fow-cache", requirement="fow-cache==0.1.0")
_READ_FOW_CACHE = """
import json, fow_cache
told = {}
for name in ("questions", "conversations"):
    pairs = []
    judged = fow_cache.evaluate(lambda *pair: float(bool(pairs.append(pair))), dataset=name).results
    told[name] = [(*pair, row.same_answer) for pair, row in zip(pairs, judged, strict=True)]
print(json.dumps(told))
"""


class Pair(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A text or the messages of a conversation, and whether one answer serves both."""

    cached: str | Messages
    asked: str | Messages
    same: bool

    def messages(self) -> list[Messages]:
        return [message(side) if isinstance(side, str) else side for side in (self.cached, self.asked)]


def installed(package: Peer, beside: Sequence[str] = (), *, may_install: bool) -> Path:
    """The Python of the package's own environment. Raises Unavailable."""
    python = install(package, may_install=may_install) / "bin" / "python"
    if beside:
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *beside]
        try:
            finish(command, INSTALL_LIMIT_S)
        except CommandFailed as failure:
            raise Unavailable(f"does not install: {failure}") from None
    return python


def fow_cache(python: Path) -> dict[str, list[Pair]]:
    """Its pairs, by data set, in the order and with the labels of its own `evaluate`. Raises Unavailable."""
    try:
        printed = finish([str(python), "-c", _READ_FOW_CACHE], RUN_LIMIT_S)
    except CommandFailed as failure:
        raise Unavailable(f"does not run: {failure}") from None
    return msgspec.json.decode(printed, type=dict[str, list[Pair]])


def told_by(peer: CachePeer, python: Path, job: Mapping[str, Any], embedder: Embedder) -> dict[str, Any]:
    """What peer_job.replay tells of the job, and the peer's threshold and versions. Raises Unavailable."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(job), "utf-8")
        _run(peer, python, "texts", folder)
        texts = json.loads((folder / "texts.json").read_text("utf-8"))
        np.save(folder / "vectors.npy", encoded(embedder, texts))
        _run(peer, python, "replay", folder)
        told: dict[str, Any] = json.loads((folder / "told.json").read_text("utf-8"))
        return told


def encoded(embedder: Embedder, texts: Sequence[str]) -> FloatMatrix:
    return np.concatenate([embedder.encode(texts[i : i + 64]).vectors for i in range(0, len(texts), 64)])


def _run(peer: CachePeer, python: Path, action: str, folder: Path) -> None:
    # Nothing of the caller's environment: both peers read settings and keys from there.
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    environment |= {"OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(python), "-W", "ignore", "-m", peer.program, action, str(folder)]
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=RUN_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"does not end within {RUN_LIMIT_S:g} s") from None
    if ended.returncode:
        raise Unavailable(f"does not run: {last_line(ended.stderr)}")


def stream_row(name: str, threshold: float, stream: Stream, told: Mapping[str, Any]) -> dict[str, Any]:
    """A row as cache_policies has it, of what a peer served: for each question the row whose answer it got,
    or None."""
    # Of class -1 a question is its own and nobody else's.
    labels = [
        text if number == -1 else number for text, number in zip(stream.texts, stream.classes, strict=True)
    ]
    hits = [(row, served) for row, served in enumerate(told["served"]) if served is not None]
    tally = Tally(
        requests=len(labels),
        hits=len(hits),
        wrong=sum(labels[row] != labels[served] for row, served in hits),
    )
    return {
        **summary(name, threshold, tally, stream.perfect_hit_rate),
        "declined": told["declined"],
        "cpu_ms": told["cpu_s"] / tally.requests * 1_000,
    }


def pair_row(name: str, pairs: Sequence[Pair], told: Mapping[str, Any]) -> dict[str, Any]:
    served = {
        same: [hit for pair, hit in zip(pairs, told["served"], strict=True) if pair.same == same]
        for same in (True, False)
    }
    return {
        "peer": name,
        "same": len(served[True]),
        "served": sum(served[True]) / len(served[True]),
        "traps": len(served[False]),
        "traps_served": sum(served[False]) / len(served[False]),
        "declined": told["declined"],
    }


def measured(
    streams: Mapping[str, Stream], pairs: Mapping[str, list[Pair]], embedder: Embedder, *, may_install: bool
) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "peers": {},
        "unavailable": {},
        "streams": {
            name: {"requests": len(stream.texts), "perfect_hit_rate": stream.perfect_hit_rate, "rows": []}
            for name, stream in streams.items()
        },
        "fow_cache": {name: [] for name in pairs},
        "embedder": embedder.space,
    }
    job = {
        "streams": {name: stream.texts for name, stream in streams.items()},
        "pairs": {name: [pair.messages() for pair in both] for name, both in pairs.items()},
    }
    for peer in PEERS:
        try:
            python = installed(peer.package, peer.beside, may_install=may_install)
            told = told_by(peer, python, job, embedder)
        except Unavailable as reason:
            payload["unavailable"][peer.name] = str(reason)
            continue
        threshold = told["threshold"]
        payload["peers"][peer.name] = {
            "requirement": peer.package.requirement,
            "threshold": threshold,
            "versions": told["versions"],
        }
        for name, stream in streams.items():
            row = stream_row(peer.name, threshold, stream, told["streams"][name])
            payload["streams"][name]["rows"].append(row)
        for name, both in pairs.items():
            payload["fow_cache"][name].append(pair_row(peer.name, both, told["pairs"][name]))
    return payload


def table(payload: Mapping[str, Any]) -> str:
    lines = [f"{name}: {reason}" for name, reason in payload["unavailable"].items()]
    for name, stream in payload["streams"].items():
        lines += [
            f"{name}: {stream['requests']} requests, a perfect cache would answer "
            f"{stream['perfect_hit_rate']:.1%}",
            "  peer       least cosine     hits   wrong/requests   wrong/hits   declined   CPU ms",
        ]
        lines += [
            f"  {row['policy']:<10} {row['setting']:12.3f}   {row['hit_rate']:6.2%}"
            f"   {row['error_rate']:14.3%}   {row['error_rate_among_hits']:10.2%}"
            f"   {row['declined']:8d}   {row['cpu_ms']:6.2f}"
            for row in stream["rows"]
        ]
    for name, rows in payload["fow_cache"].items():
        lines += [
            f"fow-cache, {name}: {row['peer']} served {row['served']:.1%} of {row['same']} same, "
            f"{row['traps_served']:.1%} of {row['traps']} traps; it declined {row['declined']}"
            for row in rows
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: installs nothing, some of each")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with stream_*.jsonl.gz")
    options = parser.parse_args()
    seed = int(read_verifier(shipped()).about["seed"])
    embedder = OnnxEmbedder.open("minilm", "cpu", 1)
    streams = {}
    for name in STREAMS:
        asked = held_out_stream(options.data, name, seed)[: QUICK_ROWS if options.quick else None]
        texts = [text for text, _ in asked]
        streams[name] = Stream(
            texts=texts, vectors=encoded(embedder, texts), classes=[number for _, number in asked]
        )
    pairs: dict[str, list[Pair]] = {}
    not_read = {}
    try:
        pairs = fow_cache(installed(FOW_CACHE, may_install=not options.quick))
    except Unavailable as reason:
        not_read[FOW_CACHE.name] = str(reason)
    if options.quick:
        pairs = {name: both[:: max(1, len(both) // QUICK_PAIRS)] for name, both in pairs.items()}
    payload = measured(streams, pairs, embedder, may_install=not options.quick)
    payload["unavailable"] |= not_read
    embedder.close()
    if not options.quick:
        report.write("cache_peers", payload, " ".join(["python benchmarks/cache_peers.py", *sys.argv[1:]]))
    print(json.dumps({**payload, "environment": report.environment()}) if options.json else table(payload))


if __name__ == "__main__":
    main()
