"""Eight questions one by one against eight at once, through the built-in backend or a running gateway.

    python benchmarks/batching.py [--quick] [--json] [--engine ENGINE] [--url URL --model MODEL]

Each repeat asks a set of different questions in sequence and then another set at once, with greedy answers
of at most `answer_tokens` tokens; repeats are interleaved and medians are reported. The seed draws the
questions. With --url the questions go to that gateway's /v1/chat/completions, with `cache-control: no-cache`,
and tokens per CPU second are left out: the engine is not our child. Results go to
benchmarks/results/batching.json; those of an engine named by --engine to batching-ENGINE.json, and those of
a gateway to batching-gateway.json.

Keys of the JSON object (and of `results` in the file):
  wall_ratio           median wall time of eight at once / eight in sequence; below .5 is the aim
  sequence_s, at_once_s   those medians, in seconds
  repeats              list of {sequence_s, at_once_s, sequence_tokens, at_once_tokens}
  per_token_ratio      the same ratio with each time divided by the tokens it gave: answers end by themselves
                       and sets are not equally long
  by_batch             list of {batch, tokens_per_cpu_s, tokens_per_wall_s}: medians over the repeats for
                       1, 4, 8 (and without --quick 16) questions at once, CPU time of the engine's process
  engine, model, threads, seed, answer_tokens, target   what was measured
Times mean little where `environment.load_average` says that others used the machine; ratios are taken from
interleaved repeats and suffer less.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shlex
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from backends.batched.backend import BatchedBackend
from backends.batched.config import BatchedConfig
from backends.protocols import Call
from benchmarks import report

SEED = 1
ASIDE = 8
SUBJECTS = (
    "bread", "cats", "the moon", "rain", "trees", "the heart", "Rome", "whales", "trains", "gravity",
    "the sea", "winter", "bees", "glass", "salt", "maps", "clocks", "horses", "paper", "volcanoes",
    "bicycles", "coffee", "deserts", "dreams", "stars", "bridges", "rice", "lungs", "silk", "islands",
    "wolves", "music",
)  # fmt: skip

Ask = Callable[[str], Awaitable[int]]


class Target:
    """Something to ask. `cpu_s` is the CPU time its engine has used; None where it cannot be known."""

    def __init__(self, ask: Ask, pid: int | None, about: dict[str, Any]) -> None:
        self.ask = ask
        self.pid = pid
        self.about = about

    def cpu_s(self) -> float | None:
        if self.pid is None:
            return None
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def body_of(question: str, model: str, answer_tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": answer_tokens,
    }


@asynccontextmanager
async def built_in(engine: Any, batch: int, answer_tokens: int) -> AsyncIterator[Target]:
    config = BatchedConfig(engine=engine, max_batch=batch, context_tokens=512)
    backend = BatchedBackend("benchmark", config)
    await backend.start()
    try:
        detail = (await backend.health()).detail

        async def ask(question: str) -> int:
            body = body_of(question, "default", answer_tokens)
            async for chunk in backend.stream(Call(body=body)):
                return int(chunk.events[0]["usage"]["completion_tokens"])
            raise RuntimeError("no answer")

        model, _, name = detail.partition(" on ")
        about = {"target": "built-in backend", "engine": name, "model": model, "threads": config.thread_count}
        yield Target(ask, backend.worker_pid, about)
    finally:
        await backend.aclose()


@asynccontextmanager
async def gateway(url: str, model: str, answer_tokens: int) -> AsyncIterator[Target]:
    headers = {
        "cache-control": "no-cache",
        "authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}",
    }
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=600) as client:

        async def ask(question: str) -> int:
            body = body_of(question, model, answer_tokens)
            answer = await client.post("/v1/chat/completions", json=body)
            answer.raise_for_status()
            return int(answer.json()["usage"]["completion_tokens"])

        yield Target(ask, None, {"target": url, "engine": None, "model": model, "threads": None})


class Questions:
    """Never the same one twice: neither a cache nor a shared prefix may help."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0

    def take(self, count: int) -> list[str]:
        subjects = self._random.sample(SUBJECTS, count)
        self._count += 1
        return [f"Write a long text about {subject}, version {self._count}." for subject in subjects]


async def in_sequence(target: Target, questions: Sequence[str]) -> tuple[float, int]:
    started = time.perf_counter()
    tokens = sum([await target.ask(question) for question in questions])
    return time.perf_counter() - started, tokens


async def at_once(target: Target, questions: Sequence[str]) -> tuple[float, int]:
    started = time.perf_counter()
    tokens = sum(await asyncio.gather(*(target.ask(question) for question in questions)))
    return time.perf_counter() - started, tokens


async def compare(target: Target, questions: Questions, repeats: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for _ in range(repeats):
        sequence_s, sequence_tokens = await in_sequence(target, questions.take(ASIDE))
        at_once_s, at_once_tokens = await at_once(target, questions.take(ASIDE))
        rows.append(
            {
                "sequence_s": round(sequence_s, 3),
                "at_once_s": round(at_once_s, 3),
                "sequence_tokens": sequence_tokens,
                "at_once_tokens": at_once_tokens,
            }
        )
    sequence_s = statistics.median(row["sequence_s"] for row in rows)
    at_once_s = statistics.median(row["at_once_s"] for row in rows)
    each = [
        (row["at_once_s"] / row["at_once_tokens"]) / (row["sequence_s"] / row["sequence_tokens"])
        for row in rows
    ]
    return {
        "wall_ratio": round(at_once_s / sequence_s, 3),
        "per_token_ratio": round(statistics.median(each), 3),
        "sequence_s": sequence_s,
        "at_once_s": at_once_s,
        "repeats": rows,
    }


async def by_batch(
    target: Target, questions: Questions, sizes: Sequence[int], repeats: int
) -> list[dict[str, Any]]:
    seen: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    for _ in range(repeats):
        for size in sizes:
            before = target.cpu_s()
            wall_s, tokens = await at_once(target, questions.take(size))
            after = target.cpu_s()
            if before is not None and after is not None:
                seen[size].append((tokens / (after - before), tokens / wall_s))
    return [
        {
            "batch": size,
            "tokens_per_cpu_s": round(statistics.median(cpu for cpu, _ in rows), 1),
            "tokens_per_wall_s": round(statistics.median(wall for _, wall in rows), 1),
        }
        for size, rows in seen.items()
        if rows
    ]


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    sizes = [1, 4, 8] if options.quick else [1, 4, 8, 16]
    repeats = 2 if options.quick else 3
    answer_tokens = 32 if options.quick else 48
    questions = Questions(SEED)
    if options.url:
        made = gateway(options.url, options.model, answer_tokens)
    else:
        made = built_in(options.engine, max(sizes), answer_tokens)
    async with made as target:
        await at_once(target, questions.take(max(sizes)))  # every slot has been used once
        results = await compare(target, questions, repeats)
        results["by_batch"] = await by_batch(target, questions, sizes, repeats) if target.pid else []
        return results | target.about | {"seed": SEED, "answer_tokens": answer_tokens}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--engine", default="auto", choices=("auto", "llamacpp", "transformers"))
    parser.add_argument("--url", help="a running gateway instead of the built-in backend")
    parser.add_argument("--model", default="auto", help="the model to ask that gateway for")
    options = parser.parse_args()
    results = asyncio.run(measure(options))
    name = "batching"
    if options.url:
        name += "-gateway"
    elif options.engine != "auto":
        name += f"-{options.engine}"
    path = report.write(name, results, shlex.join(["python", "benchmarks/batching.py", *sys.argv[1:]]))
    if options.json:
        sys.stdout.buffer.write(orjson.dumps(results) + b"\n")
        return
    print(f"{results['model']} on {results['engine'] or results['target']}")
    print(f"eight in sequence {results['sequence_s']:.2f} s, at once {results['at_once_s']:.2f} s")
    print(f"wall ratio {results['wall_ratio']:.2f} (per token {results['per_token_ratio']:.2f})")
    for row in results["by_batch"]:
        print(f"batch {row['batch']:2}: {row['tokens_per_cpu_s']:6.1f} tokens per CPU second")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
