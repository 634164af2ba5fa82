"""What a full cache saves, by who is evicted: ours against LRU and FIFO.

    python benchmarks/eviction.py [--quick] [--json] [--data FOLDER]

Replays requests through the real in-memory store, whose eviction policy alone differs. The questions are
those of the QQP stream; a request draws a class of like questions by Zipf's law, and some classes trade their
places in it as time goes on, so that what was popular fades. The data has questions and no answers: the
tokens of each class's answer are drawn once, log-normal, and so is whether the small or the large model
gives it, at the prices in PRICES; where one model gives all, the answers are worth much the same a byte and
there is less to be gained. A class is asked for by its own key: every hit is right, how well
similarity finds one is not measured here (benchmarks/cache_quality.py). What a hit would have cost is saved.

Keys of the JSON object (and of `results` in the file):
  settings     list of {models, exponent, capacity, max_entries, max_bytes, ours, lru, fifo, belady,
               unlimited, saved_to_lru, saved_to_fifo}. `capacity` says which limit binds; ours, lru and so
               on are {saved_usd, hit_rate}. `belady` knows the future and evicts what is asked for latest;
               it sees neither cost nor size, so it bounds the hit rate where entries are counted and
               nothing else. `unlimited` evicts nothing.
  median_saved_to_lru, median_saved_to_fifo, least_saved_to_lru, least_saved_to_fifo   over the settings
  requests, classes, seed, prices
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import heapq
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import report
from embeddings.capacity import MAX_BYTES
from embeddings.entry_record import to_record
from embeddings.memory_store import MemoryStore
from embeddings.protocols import Entry
from policies.eviction import EntryWorth, EvictionPolicy, GreedyDual
from policies.types import Answer

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SEED = 1
REQUESTS = 30_000
QUICK_REQUESTS = 3_000
QUICK_SERIES = (("two models", 1.0),)
SERIES = (("two models", 0.7), *QUICK_SERIES, ("two models", 1.2), ("one model", 1.0))  # Zipf's exponent
SHARES = (0.01, 0.05, 0.2)  # of all classes, or of the bytes of all their answers
PRICES = {"small": (0.15e-6, 0.60e-6), "large": (2.50e-6, 10.00e-6)}  # dollars a token of prompt and answer
LARGE_SHARES = {"two models": 0.3, "one model": 1.0}
MEDIAN_ANSWER_TOKENS = 200
ANSWER_SIGMA = 1.0
CHARACTERS_PER_TOKEN = 4
DIMENSION = 384
DRIFT_REQUESTS = 1_000  # after so many
DRIFT_SHARE = 0.05  # so many classes trade places


class LeastRecentlyUsed:
    """The priority is the time of the last use."""

    def __init__(self) -> None:
        self._time = 0.0

    def density(self, worth: EntryWorth) -> float:
        return 0.0

    def priority(self, clock: float, density: float, hits: int) -> float:
        self._time += 1
        return self._time


class FirstInFirstOut:
    """The density, which is asked for once an entry, is the time when it came."""

    def __init__(self) -> None:
        self._time = 0.0

    def density(self, worth: EntryWorth) -> float:
        self._time += 1
        return self._time

    def priority(self, clock: float, density: float, hits: int) -> float:
        return density


POLICIES: dict[str, type[GreedyDual] | type[LeastRecentlyUsed] | type[FirstInFirstOut]] = {
    "ours": GreedyDual,
    "lru": LeastRecentlyUsed,
    "fifo": FirstInFirstOut,
}


@dataclass(frozen=True, slots=True)
class Limits:
    capacity: str
    max_entries: int
    max_bytes: int


def questions(data: Path) -> list[str]:
    """One of each class; what is in no class is one of its own."""
    by_class: dict[object, str] = {}
    with gzip.open(data / "cache" / "stream_qqp.jsonl.gz") as lines:
        for number, line in enumerate(lines):
            row = orjson.loads(line)
            by_class.setdefault(("alone", number) if row["class"] < 0 else row["class"], row["text"])
    return list(by_class.values())


def make_entries(texts: Sequence[str], seed: int, large_share: float) -> list[Entry]:
    """An entry for each question. Its vector is no more than room taken."""
    chance = np.random.default_rng(seed)
    tokens = chance.lognormal(np.log(MEDIAN_ANSWER_TOKENS), ANSWER_SIGMA, len(texts)).astype(int) + 1
    large = chance.random(len(texts)) < large_share
    vector = np.full(DIMENSION, DIMENSION**-0.5, dtype=np.float32)
    entries = []
    for number, text in enumerate(texts):
        model = "large" if large[number] else "small"
        prompt_tokens, completion_tokens = len(text) // CHARACTERS_PER_TOKEN + 1, int(tokens[number])
        per_prompt, per_completion = PRICES[model]
        entries.append(
            Entry(
                id=0,
                exact_key=number.to_bytes(32, "big"),
                partition=bytes(16),
                tenant="",
                api="chat",
                model="auto",
                tags=(),
                text=text,
                space="benchmark",
                vector=vector,
                answer=Answer(
                    body={"content": "x" * (CHARACTERS_PER_TOKEN * completion_tokens)},
                    model=model,
                    created_at=0.0,
                    prompt_tokens=prompt_tokens,
                    completion_tokens=completion_tokens,
                    cost_usd=per_prompt * prompt_tokens + per_completion * completion_tokens,
                ),
                expires_at=1e9,
                request=orjson.dumps(["chat", "", "auto", {"messages": [{"role": "user", "content": text}]}]),
            )
        )
    return entries


def draw(classes: int, requests: int, exponent: float, seed: int) -> list[int]:
    """The classes asked for, in order."""
    chance = np.random.default_rng(seed)
    weights = np.arange(1, classes + 1, dtype=np.float64) ** -exponent
    weights /= weights.sum()
    place = chance.permutation(classes)  # place[rank]: the class of this popularity
    drawn: list[npt.NDArray[np.int64]] = []
    for start in range(0, requests, DRIFT_REQUESTS):
        ranks = chance.choice(classes, size=min(DRIFT_REQUESTS, requests - start), p=weights)
        drawn.append(place[ranks])
        trading = chance.choice(classes, size=max(2, int(DRIFT_SHARE * classes)), replace=False)
        place[trading] = place[chance.permutation(trading)]
    return [int(number) for number in np.concatenate(drawn)]


async def replay(
    entries: Sequence[Entry], order: Sequence[int], limits: Limits, policy: EvictionPolicy
) -> dict[str, float]:
    store = MemoryStore(limits.max_entries, limits.max_bytes, policy)
    saved_usd, hits = 0.0, 0
    for now, number in enumerate(order):
        found = await store.find(entries[number].exact_key, float(now))
        if found is None:
            await store.put(entries[number])
        else:
            store.touch(found.id, float(now))
            saved_usd += found.answer.cost_usd
            hits += 1
    await store.aclose()
    return shown(saved_usd, hits, len(order))


def clairvoyant(entries: Sequence[Entry], order: Sequence[int], limits: Limits) -> dict[str, float]:
    """Belady's algorithm ("A study of replacement algorithms for a virtual-storage computer", IBM Systems
    Journal 5, 1966): whatever is asked for latest leaves; what is never asked for again is not kept."""
    never = len(order)
    next_use, later = [never] * len(order), dict[int, int]()
    for now in range(len(order) - 1, -1, -1):
        next_use[now] = later.get(order[now], never)
        later[order[now]] = now
    sizes = [to_record(entry).stored_bytes for entry in entries]
    held: dict[int, int] = {}  # the next use of each
    latest: list[tuple[int, int]] = []
    stored_bytes, saved_usd, hits = 0, 0.0, 0
    for now, number in enumerate(order):
        if number in held:
            saved_usd += entries[number].answer.cost_usd
            hits += 1
        else:
            stored_bytes += sizes[number]
        held[number] = next_use[now]
        heapq.heappush(latest, (-next_use[now], number))
        while len(held) > limits.max_entries or stored_bytes > limits.max_bytes or latest[0][0] == -never:
            negated, left = heapq.heappop(latest)
            if held.get(left) == -negated:
                del held[left]
                stored_bytes -= sizes[left]
            if not latest:
                break
    return shown(saved_usd, hits, len(order))


def shown(saved_usd: float, hits: int, requests: int) -> dict[str, float]:
    return {"saved_usd": round(saved_usd, 4), "hit_rate": round(hits / requests, 4)}


def all_limits(entries: Sequence[Entry], shares: Sequence[float]) -> list[Limits]:
    stored_bytes = sum(to_record(entry).stored_bytes for entry in entries)
    by_entries = [Limits(f"{share:.0%} of entries", int(share * len(entries)), MAX_BYTES) for share in shares]
    # the limit that does not bind still says what room an entry takes: as the default does
    by_bytes = [Limits(f"{share:.0%} of bytes", 100_000, int(share * stored_bytes)) for share in shares]
    return by_entries + by_bytes


async def measure(texts: Sequence[str], requests: int, series: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """`series`: of which models, and by which exponent."""
    settings: list[dict[str, Any]] = []
    for models, exponent in series:
        entries = make_entries(texts, SEED, LARGE_SHARES[models])
        order = draw(len(entries), requests, exponent, SEED)
        unlimited = await replay(entries, order, Limits("", 10**6, 10**12), GreedyDual())
        for limits in all_limits(entries, SHARES):
            found = {name: await replay(entries, order, limits, POLICIES[name]()) for name in POLICIES}
            found["belady"] = clairvoyant(entries, order, limits)
            settings.append(
                {
                    "models": models,
                    "exponent": exponent,
                    "capacity": limits.capacity,
                    "max_entries": limits.max_entries,
                    "max_bytes": limits.max_bytes,
                    **found,
                    "unlimited": unlimited,
                    "saved_to_lru": round(found["ours"]["saved_usd"] / found["lru"]["saved_usd"], 3),
                    "saved_to_fifo": round(found["ours"]["saved_usd"] / found["fifo"]["saved_usd"], 3),
                }
            )
    ratios = {name: [row[f"saved_to_{name}"] for row in settings] for name in ("lru", "fifo")}
    return {
        "settings": settings,
        **{f"median_saved_to_{name}": round(statistics.median(rows), 3) for name, rows in ratios.items()},
        **{f"least_saved_to_{name}": min(rows) for name, rows in ratios.items()},
        "requests": requests,
        "classes": len(texts),
        "seed": SEED,
        "prices": PRICES,
    }


def table(results: dict[str, Any]) -> str:
    lines = [
        f"{'models':10}  {'exponent':>8}  {'capacity':15}  "
        + "  ".join(f"{n:>16}" for n in (*POLICIES, "belady"))
    ]
    lines[0] += "  to LRU  to FIFO"
    for row in results["settings"]:
        cells = [
            f"${row[name]['saved_usd']:8.2f} {row[name]['hit_rate']:6.1%}" for name in (*POLICIES, "belady")
        ]
        lines.append(
            f"{row['models']:10}  {row['exponent']:8}  {row['capacity']:15}  {'  '.join(cells)}"
            f"  {row['saved_to_lru']:6.2f}  {row['saved_to_fifo']:7.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests, one exponent")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument(
        "--data", type=Path, default=DATA, help="the folder that has cache/stream_qqp.jsonl.gz"
    )
    options = parser.parse_args()
    try:
        texts = questions(options.data)
    except OSError as error:
        raise SystemExit(
            f"{options.data}: no questions there ({error}); name their folder by --data"
        ) from error
    requests, series = (QUICK_REQUESTS, QUICK_SERIES) if options.quick else (REQUESTS, SERIES)
    results = asyncio.run(measure(texts, requests, series))
    if not options.quick:
        report.write("eviction", results, shlex.join(["python", "benchmarks/eviction.py", *sys.argv[1:]]))
    if options.json:
        sys.stdout.buffer.write(orjson.dumps(results) + b"\n")
        return
    print(table(results))
    print(
        "money saved, median and least: "
        f"{results['median_saved_to_lru']:.2f} and {results['least_saved_to_lru']:.2f} times LRU's, "
        f"{results['median_saved_to_fifo']:.2f} and {results['least_saved_to_fifo']:.2f} times FIFO's"
    )


if __name__ == "__main__":
    main()
