"""Cache policies side by side on streams of labelled questions: what each answers, and how often wrongly.

vCache's protocol (arXiv:2502.03771): from an empty cache, in order; a cached answer is right when it is of
the question's own class; whoever is not served is answered by the model, and the answer is stored. The exact
look-up comes first, as in the gateway; embedder, index and policies are the gateway's own. Of each stream
only the questions that the shipped verifier was neither trained nor calibrated on are asked.

    python benchmarks/cache_policies.py [--quick] [--json] [--orders N] [--data FOLDER]

Policies: `static` at nine thresholds with its guard; `vcache`, our own implementation of that paper's method;
`bounded` at four bounds, with the shipped verifier, alone and (`learning`) with outcomes: 2 % of what it
serves is verified, and what it asks to have compared is. --orders: further random orders of ParaKQC for the
bound of 1 %.

--json prints one object: `streams`, by name, each with `requests`, `perfect_hit_rate` and `rows`: `policy`,
`setting`, `hit_rate`, `error_rate` (wrong over all requests), `error_rate_among_hits`, `hits_of_perfect`;
`orders`: `bound`, `count`, `kept` (orders in which the error stayed within the bound), `most` (the greatest
error), `hit_rate` (their mean); `space`, `seed`, `environment`. Seed: 7.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import report
from benchmarks.vcache_policy import VCachePolicy
from embeddings.faiss_index import FaissIndex
from embeddings.onnx_embedder import OnnxEmbedder
from embeddings.pair_encoder import PairEncoder
from embeddings.protocols import FloatMatrix
from gateway.verifier_corpus import held_out_stream
from gateway.verifier_weights import VerifierFile, read_verifier, shipped
from policies.bounded import BoundedPolicy
from policies.static import StaticPolicy
from policies.types import Candidate, Identity, Observation, Verdict, Verification

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "cache"
SEED = 7
STREAMS = ("qqp", "parakqc")
THRESHOLDS = (0.92, 0.94, 0.95, 0.96, 0.97, 0.975, 0.98, 0.985, 0.99)
BOUNDS = (0.005, 0.01, 0.02, 0.05)
NEIGHBOURS = 5
VERIFY_SHARE = 0.02
QUICK_ROWS = 600
PARTITION = b"p" * 16


class Policy(Protocol):
    def judge(self, identity: Identity, candidates: Sequence[Candidate], now: float) -> Verdict: ...


class Remembered:
    """The shipped verifier and cross-encoder: what they said of a pair is not worked out again in the next
    order or for the next policy."""

    def __init__(self, file: VerifierFile) -> None:
        self.counts = file.counts
        self._verifier = file.verifier
        self.space, self.identity = self._verifier.space, self._verifier.identity
        self._scorer = None if file.encoder is None else PairEncoder.open(file.encoder, "cpu", 2)
        self._scores: dict[tuple[str, str], float] = {}
        self._said: dict[tuple[str, str, bool], Verification] = {}

    def verify(
        self, asked: str, cached: str, similarity: float, pair_score: float | None = None
    ) -> Verification:
        key = (asked, cached, pair_score is None)
        if key not in self._said:
            self._said[key] = self._verifier.verify(asked, cached, similarity, pair_score)
        return self._said[key]

    def read_together(self, text: str) -> str:
        return self._verifier.read_together(text)

    def scored(self, candidates: list[Candidate], wanted: Mapping[int, tuple[str, str]]) -> list[Candidate]:
        """The candidates, those `wanted` with their pair score."""
        if self._scorer is None or not wanted:
            return candidates
        new = [pair for pair in wanted.values() if pair not in self._scores]
        if new:
            self._scores.update(zip(new, self._scorer.score(new).logits.tolist(), strict=True))
        return [
            replace(one, pair_score=self._scores[wanted[one.entry_id]]) if one.entry_id in wanted else one
            for one in candidates
        ]


class Tally(msgspec.Struct, kw_only=True):
    requests: int = 0
    hits: int = 0
    wrong: int = 0


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Questions in order: texts, their vectors float32 (N, D), and classes; -1 is asked once."""

    texts: Sequence[str]
    vectors: FloatMatrix
    classes: Sequence[int]

    @property
    def perfect_hit_rate(self) -> float:
        """Of a cache that always knows: a class that came before, or the same text."""
        seen: set[object] = set()
        hits = 0
        for text, number in zip(self.texts, self.classes, strict=True):
            hits += number in seen or text in seen
            seen |= {text} if number == -1 else {text, number}
        return hits / len(self.texts)

    def shuffled(self, chance: random.Random) -> Stream:
        order = list(range(len(self.texts)))
        chance.shuffle(order)
        return Stream(
            texts=[self.texts[i] for i in order],
            vectors=self.vectors[order],
            classes=[self.classes[i] for i in order],
        )


def replay(
    stream: Stream, policy: Policy, learning: Learning | None = None, verifier: Remembered | None = None
) -> Tally:
    index = FaissIndex(stream.vectors.shape[1])
    tally = Tally()
    by_text: dict[str, int] = {}
    for row, text in enumerate(stream.texts):
        tally.requests += 1
        if text in by_text:
            tally.hits += 1
            tally.wrong += not _same(stream, row, by_text[text])
            continue
        query = stream.vectors[row : row + 1]
        cosines, ids = index.search(query, NEIGHBOURS, PARTITION)
        candidates = [
            Candidate(entry_id=int(i), similarity=float(s), text=stream.texts[int(i) - 1], created_at=0.0)
            for i, s in zip(ids[0], cosines[0], strict=True)
            if i > 0
        ]
        identity = Identity(exact_key=b"", partition=PARTITION, text=text)
        if verifier is not None and isinstance(policy, BoundedPolicy):
            candidates = verifier.scored(candidates, policy.undecided(identity, candidates))
        verdict = policy.judge(identity, candidates, float(row))
        right = partial(_serves, stream, row)
        if verdict.candidate is not None:
            tally.hits += 1
            tally.wrong += not right(verdict.candidate.entry_id)
        stores = verdict.candidate is None
        if learning is not None:
            stores = learning.after(verdict, right) and stores
        if verdict.candidate is None:
            by_text[text] = row
        if stores:
            index.add(np.array([row + 1], dtype=np.int64), query, [PARTITION])
    return tally


def _serves(stream: Stream, row: int, entry_id: int) -> bool:
    return _same(stream, row, entry_id - 1)


def _same(stream: Stream, row: int, other: int) -> bool:
    if stream.texts[row] == stream.texts[other]:
        return True
    return stream.classes[row] == stream.classes[other] != -1


class Learning(Protocol):
    def after(self, verdict: Verdict, right: Callable[[int], bool]) -> bool:
        """Whether an answer that was generated is to be stored."""
        ...


class VCacheLearning:
    """Whoever is not served compares the new answer with the nearest entry's."""

    def __init__(self, policy: VCachePolicy) -> None:
        self._policy = policy

    def after(self, verdict: Verdict, right: Callable[[int], bool]) -> bool:
        considered = self._policy.considered
        if verdict.candidate is not None or considered is None:
            return True
        was_right = right(considered.entry_id)
        self._policy.learn(considered.entry_id, considered.similarity, right=was_right)
        return not was_right


class BoundedLearning:
    def __init__(self, policy: BoundedPolicy, chance: random.Random) -> None:
        self._policy = policy
        self._chance = chance

    def after(self, verdict: Verdict, right: Callable[[int], bool]) -> bool:
        assert isinstance(verdict, Verdict)
        considered, probability = verdict.considered, verdict.probability
        if considered is None or probability is None:
            return True
        served = verdict.candidate is not None
        if not (verdict.compare or (served and self._chance.random() < VERIFY_SHARE)):
            return True
        was_right = right(considered.entry_id)
        self._policy.learn(
            Observation(
                entry_id=considered.entry_id,
                probability=probability,
                right=was_right,
                source="verification" if served else "exploration",
            )
        )
        return verdict.keeps(right=was_right)


def bounded(verifier: Remembered, bound: float, *, learning: bool) -> tuple[BoundedPolicy, Learning | None]:
    chance = random.Random(SEED)
    policy = BoundedPolicy(
        verifier,
        max_error_rate=bound,
        random=chance.random,
        counts=verifier.counts,
        explore_share=0.02 if learning else 0.0,
    )
    return policy, BoundedLearning(policy, chance) if learning else None


def summary(policy: str, setting: float, tally: Tally, perfect: float) -> dict[str, Any]:
    hit_rate = tally.hits / tally.requests
    return {
        "policy": policy,
        "setting": setting,
        "hit_rate": hit_rate,
        "error_rate": tally.wrong / tally.requests,
        "error_rate_among_hits": tally.wrong / tally.hits if tally.hits else 0.0,
        "hits_of_perfect": hit_rate / perfect if perfect else 0.0,
    }


def side_by_side(stream: Stream, verifier: Remembered) -> list[dict[str, Any]]:
    perfect = stream.perfect_hit_rate
    rows = [summary("exact", 0.0, replay(stream, StaticPolicy(1.0)), perfect)]
    rows += [
        summary("static", threshold, replay(stream, StaticPolicy(threshold)), perfect)
        for threshold in THRESHOLDS
    ]
    for bound in BOUNDS:
        vcache = VCachePolicy(max_error_rate=bound, random=random.Random(SEED).random)
        rows.append(summary("vcache", bound, replay(stream, vcache, VCacheLearning(vcache)), perfect))
    for learning in (False, True):
        for bound in BOUNDS:
            policy, learns = bounded(verifier, bound, learning=learning)
            name = "bounded, learning" if learning else "bounded"
            rows.append(summary(name, bound, replay(stream, policy, learns, verifier), perfect))
    return rows


def in_orders(stream: Stream, verifier: Remembered, count: int, bound: float = 0.01) -> dict[str, Any]:
    chance = random.Random(SEED)
    tallies = []
    for _ in range(count):
        policy, learns = bounded(verifier, bound, learning=True)
        tallies.append(replay(stream.shuffled(chance), policy, learns, verifier))
    errors = [tally.wrong / tally.requests for tally in tallies]
    return {
        "bound": bound,
        "count": count,
        "kept": sum(error <= bound for error in errors),
        "most": max(errors),
        "hit_rate": sum(tally.hits / tally.requests for tally in tallies) / count,
    }


def table(name: str, told: dict[str, Any]) -> str:
    lines = [
        f"{name}: {told['requests']} requests, a perfect cache would answer {told['perfect_hit_rate']:.1%}",
        "  policy             setting   hits     of perfect   wrong/requests   wrong/hits",
    ]
    lines += map(_line, told["rows"])
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    return (
        f"  {row['policy']:<18} {row['setting']:7.3f}   {row['hit_rate']:6.2%}"
        f"   {row['hits_of_perfect']:10.1%}   {row['error_rate']:14.3%}"
        f"   {row['error_rate_among_hits']:10.2%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: the beginning of each stream")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--orders", type=int, default=40)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with stream_*.jsonl.gz")
    options = parser.parse_args()
    file = read_verifier(shipped())
    seed = int(file.about["seed"])
    embedder = OnnxEmbedder.open("default", "cpu", 2)
    file.verifier.of_space(embedder.space)
    verifier = Remembered(file)
    payload: dict[str, Any] = {"space": embedder.space, "seed": SEED, "streams": {}}
    for name in STREAMS:
        asked = held_out_stream(options.data, name, seed)[: QUICK_ROWS if options.quick else None]
        texts = [text for text, _ in asked]
        vectors = np.concatenate(
            [embedder.encode(texts[i : i + 64]).vectors for i in range(0, len(texts), 64)]
        )
        stream = Stream(texts=texts, vectors=vectors, classes=[number for _, number in asked])
        told = {
            "requests": len(texts),
            "perfect_hit_rate": stream.perfect_hit_rate,
            "rows": side_by_side(stream, verifier),
        }
        payload["streams"][name] = told
        if not options.json:
            print(table(name, told), flush=True)
    count = 2 if options.quick else options.orders
    payload["orders"] = in_orders(stream, verifier, count)
    embedder.close()
    if not options.quick:
        report.write(
            "cache_policies", payload, " ".join(["python benchmarks/cache_policies.py", *sys.argv[1:]])
        )
    print(json.dumps({**payload, "environment": report.environment()}) if options.json else payload["orders"])


if __name__ == "__main__":
    main()
