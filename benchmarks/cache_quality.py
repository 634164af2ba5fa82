"""How often the semantic cache answers, and how often wrongly, for each similarity threshold.

Replays a stream of labelled questions in order, from an empty cache, through the real request path: exact
look-up, embedder, FAISS, cache policy, single flight, routing, store. Only the model is replaced, by a
backend that counts its calls and answers with the label of the question it was asked, so that a cached
answer is wrong exactly when its label is not the question's. Questions with label -1 are asked once: any hit
on them is wrong.

    python benchmarks/cache_quality.py [--quick] [--json] [--embedder default|minilm] [--data FOLDER]

--json prints one object: `streams`, by name, each with `requests`, `perfect_hit_rate` (questions whose label
came before) and `thresholds`: a list of `min_similarity`, `hit_rate`, `semantic_hit_rate`, `error_rate`
(wrong answers over all requests), `error_rate_among_hits`, `upstream_calls`; `embedder`, `environment`.
Seed: none is used; the order of the streams is fixed in their files.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backends.protocols import Call, Chunk, Health, Load
from benchmarks import report
from embeddings.onnx_embedder import OnnxEmbedder
from embeddings.protocols import Embedder, Encoding
from gateway import assembly
from gateway.config import parse
from gateway.generating import ClientContext
from gateway.trace import Trace
from policies.types import Api, Request

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
STREAMS = ("qqp", "parakqc")
THRESHOLDS = {
    "default": (0.92, 0.94, 0.95, 0.96, 0.97, 0.975, 0.98, 0.985, 0.99),
    "minilm": (0.60, 0.70, 0.75, 0.80, 0.85, 0.90, 0.93, 0.96, 0.99),
}
QUICK_ROWS = 1_000
QUICK_THRESHOLDS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One question of a stream. `label` names its answer."""

    text: str
    label: str
    repeated: bool


@dataclass(slots=True)
class Result:
    min_similarity: float
    requests: int = 0
    hits: int = 0
    semantic_hits: int = 0
    wrong: int = 0
    upstream_calls: int = 0

    def summary(self) -> dict[str, float | int]:
        return {
            "min_similarity": self.min_similarity,
            "hit_rate": self.hits / self.requests,
            "semantic_hit_rate": self.semantic_hits / self.requests,
            "error_rate": self.wrong / self.requests,
            "error_rate_among_hits": self.wrong / self.hits if self.hits else 0.0,
            "upstream_calls": self.upstream_calls,
        }


class LabelBackend:
    """Answers with the label the request carries in a field that is no part of its identity."""

    name = "labels"
    apis: frozenset[Api] = frozenset({"chat"})

    def __init__(self) -> None:
        self.calls = 0

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        self.calls += 1
        message = {"role": "assistant", "content": call.body["metadata"]["label"]}
        body = {
            "id": "chatcmpl-label",
            "object": "chat.completion",
            "created": 0,
            "model": "labels",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        yield Chunk(data=orjson.dumps(body), events=(body,), whole=True)

    async def load(self) -> Load:
        return Load(queued=0, running=0)

    async def health(self) -> Health:
        return Health(ready=True, detail="labels")

    async def aclose(self) -> None:
        pass


class RememberingEmbedder:
    """The real embedder, asked once for each text: thresholds are compared on the same vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, tuple[Any, int, bool]] = {}
        self.space = embedder.space
        self.dimension = embedder.dimension
        self.max_tokens = embedder.max_tokens

    def encode(self, texts: Sequence[str]) -> Encoding:
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if new:
            encoding = self._embedder.encode(new)
            for i, text in enumerate(new):
                self._known[text] = (
                    encoding.vectors[i], int(encoding.token_counts[i]), bool(encoding.truncated[i])
                )  # fmt: skip
        rows = [self._known[text] for text in texts]
        return Encoding(
            vectors=np.stack([row[0] for row in rows]),
            token_counts=np.array([row[1] for row in rows], dtype=np.int64),
            truncated=np.array([row[2] for row in rows], dtype=np.bool_),
        )

    def close(self) -> None:
        """Kept open: the next threshold needs it."""


def read(path: Path, limit: int | None) -> list[Row]:
    seen: set[int] = set()
    rows = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if limit is not None and number >= limit:
                break
            row = json.loads(line)
            label = row["class"]
            rows.append(Row(row["text"], str(label) if label >= 0 else f"once-{number}", label in seen))
            if label >= 0:
                seen.add(label)
    return rows


async def replay(rows: Sequence[Row], embedder: Embedder, threshold: float) -> Result:
    table = {
        "embeddings": {"deadline_ms": 60_000},  # a busy machine must not turn hits into misses
        "cache": {"store": "memory", "policy": {"kind": "static", "min_similarity": threshold}},
        "ledger": {"enabled": False},
        "backends": {"labels": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"}},
        "models": {"labels": {"backend": "labels", "name": "labels"}},
    }
    settings = parse(table, {}, source="benchmark")
    backend = LabelBackend()
    gateway = await assembly.assemble(
        settings, lambda part, state: None, backends={"labels": backend}, embedder=embedder
    )
    result = Result(threshold)
    try:
        for row in rows:
            body = {
                "model": "labels",
                "messages": [{"role": "user", "content": row.text}],
                "metadata": {"label": row.label},
            }
            trace = Trace(request_id="benchmark")
            request = Request(api="chat", model="labels", body=body, tenant="benchmark")
            reply = await gateway.pipeline.answer(request, ClientContext(), trace)
            answer = json.loads(reply.body or b"")["choices"][0]["message"]["content"]
            hit = trace.cache in ("hit-exact", "hit-semantic")
            result.requests += 1
            result.hits += hit
            result.semantic_hits += trace.cache == "hit-semantic"
            result.wrong += answer != row.label
        result.upstream_calls = backend.calls
    finally:
        await gateway.aclose()
    return result


def table(name: str, rows: Sequence[Row], results: Sequence[Result]) -> str:
    perfect = sum(row.repeated for row in rows) / len(rows)
    lines = [
        f"{name}: {len(rows)} requests, a perfect cache would answer {perfect:.1%}",
        "  threshold   hit rate   semantic   wrong / requests   wrong / hits   upstream calls",
    ]
    for result in results:
        s = result.summary()
        lines.append(
            f"  {s['min_similarity']:9.3f}   {s['hit_rate']:8.2%}   {s['semantic_hit_rate']:8.2%}"
            f"   {s['error_rate']:16.3%}   {s['error_rate_among_hits']:12.2%}   {s['upstream_calls']:14d}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: the beginning of each stream")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--embedder", default="default", choices=sorted(THRESHOLDS))
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with cache/stream_*.jsonl.gz")
    options = parser.parse_args()
    paths = {name: options.data / "cache" / f"stream_{name}.jsonl.gz" for name in STREAMS}
    for path in paths.values():
        if not path.exists():
            sys.exit(f"cache_quality: no file {path}; name the data folder with --data")
    thresholds: Sequence[float] = THRESHOLDS[options.embedder]
    if options.quick:
        thresholds = thresholds[-QUICK_THRESHOLDS:]
    opened = OnnxEmbedder.open(options.embedder, "cpu", 1)
    embedder = RememberingEmbedder(opened)
    payload: dict[str, Any] = {"embedder": opened.space, "streams": {}}
    for name, path in paths.items():
        rows = read(path, QUICK_ROWS if options.quick else None)
        embedder.encode([row.text for row in rows])
        results = [asyncio.run(replay(rows, embedder, threshold)) for threshold in thresholds]
        payload["streams"][name] = {
            "requests": len(rows),
            "perfect_hit_rate": sum(row.repeated for row in rows) / len(rows),
            "thresholds": [result.summary() for result in results],
        }
        if not options.json:
            print(table(name, rows, results), flush=True)
    opened.close()
    suffix = "" if options.embedder == "default" else f"_{options.embedder}"
    if not options.quick:
        command = " ".join(["python benchmarks/cache_quality.py", *sys.argv[1:]])
        report.write(f"cache_quality{suffix}", payload, command)
    if options.json:
        print(json.dumps({**payload, "environment": report.environment()}))


if __name__ == "__main__":
    main()
