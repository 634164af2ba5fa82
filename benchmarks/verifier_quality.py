"""How well the verifier tells a same question from a trap, beside the cosine alone.

    python benchmarks/verifier_quality.py [--quick] [--json] [--weights FILE]

Three tables. fow-cache's questions (`fow-cache` from PyPI, fetched by this script, data CC BY 4.0), read by
its own `evaluate`; 200 pairs written by hand (tests/policies/hand_pairs.jsonl); and the held-out figures that
the weights' file tells of itself. All are for evaluation only: nothing is trained, tuned or chosen by them. A
pair one of whose texts, letter case and punctuation aside, is among the questions written for training is
left out and counted. Both stages are measured: `features` alone, and `cascade` with the cross-encoder; also
`cosine`.

--json prints one object: `fow_cache` and `hand_pairs`, each with `pairs`, `left_out`, `same`, `traps` and, by
score, `recall` (share of the same pairs above the threshold that lets 1, 5 and 10 % of the traps through),
`served` and `traps_served` (at the risk that one request pays for at max_error_rate .01, and at ten times
that), `kinds` (share served at the former, by kind); `held_out`; `ms` (per pair: `features`, `cross_encoder`,
medians, one thread); `identity`, `environment`. No seed: nothing is drawn.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import report
from embeddings.onnx_embedder import OnnxEmbedder
from embeddings.pair_encoder import PairEncoder
from gateway.question_groups import read_questions
from gateway.verifier_fitting import recall_at
from gateway.verifier_weights import VerifierFile, read_verifier, shipped
from policies.bounded import SPENT
from policies.calibration_curve import CalibrationCurve

FOW_CACHE = "fow-cache==0.1.0"
HAND_PAIRS = Path(__file__).resolve().parents[1] / "tests" / "policies" / "hand_pairs.jsonl"
SHARES = (0.01, 0.05, 0.1)
BOUND = 0.01
QUICK_PAIRS = 120


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """Two questions and the truth of them."""

    asked: str
    cached: str
    same: bool
    kind: str


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Of N pairs, by name of the score, float64 (N,); and the median milliseconds that a stage takes."""

    by_name: dict[str, Any]
    ms: dict[str, float]


def fow_cache() -> list[Judged]:
    """Its question pairs, as its own `evaluate` hands and labels them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, FOW_CACHE]
        subprocess.run(command, check=True, capture_output=True)
        sys.path.insert(0, folder)
        try:
            import fow_cache  # type: ignore[import-not-found]

            pairs: list[tuple[str, str]] = []

            def check(cached: str, asked: str) -> float:
                pairs.append((asked, cached))
                return 0.0

            told = fow_cache.evaluate(check, dataset="questions")
        finally:
            sys.path.remove(folder)
    return [
        Judged(asked=asked, cached=cached, same=bool(result.same_answer), kind=result.group)
        for (asked, cached), result in zip(pairs, told.results, strict=True)
    ]


def hand_pairs() -> list[Judged]:
    rows = map(json.loads, HAND_PAIRS.read_text(encoding="utf-8").splitlines())
    return [
        Judged(
            asked=row["asked"],
            cached=row["cached"],
            same=row["same"],
            kind=f"{row['lang']} {row['kind']}",
        )
        for row in rows
    ]


def skeleton(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def trained_on() -> set[str]:
    """Skeletons of the questions written for training."""
    folder = Path(str(resources.files("gateway") / "questions"))
    groups = read_questions(sorted([*folder.glob("en-*.txt"), *folder.glob("ko-*.txt")]))
    return {
        skeleton(text)
        for group in groups
        for text in (group.question, *group.same, *(trap.text for trap in group.traps))
    }


def scored(
    pairs: Sequence[Judged], file: VerifierFile, embedder: OnnxEmbedder, scorer: PairEncoder | None
) -> Scores:
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.asked, pair.cached)))
    rows = np.concatenate([embedder.encode(texts[i : i + 64]).vectors for i in range(0, len(texts), 64)])
    vectors = dict(zip(texts, rows, strict=True))
    found: dict[str, list[float]] = {"cosine": [], "features": [], "cascade": []}
    times: dict[str, list[float]] = {"features": [], "cross_encoder": []}
    verifier = file.verifier
    for pair in pairs:
        cosine = float(vectors[pair.asked] @ vectors[pair.cached])
        began = time.perf_counter()
        said = verifier.verify(pair.asked, pair.cached, cosine)
        times["features"].append(time.perf_counter() - began)
        found["cosine"].append(cosine)
        found["features"].append(said.probability)
        if said.open and scorer is not None:
            began = time.perf_counter()
            logit = float(scorer.score([(pair.asked, pair.cached)]).logits[0])
            times["cross_encoder"].append(time.perf_counter() - began)
            said = verifier.verify(pair.asked, pair.cached, cosine, logit)
        found["cascade"].append(said.probability)
    return Scores(
        by_name={name: np.array(values) for name, values in found.items()},
        ms={name: statistics.median(of) * 1000 for name, of in times.items() if of},
    )


def table(pairs: Sequence[Judged], file: VerifierFile, scores: Scores) -> dict[str, Any]:
    same = np.array([pair.same for pair in pairs])
    curve = CalibrationCurve(file.counts)
    told: dict[str, Any] = {"pairs": len(pairs), "same": int(same.sum()), "traps": int((~same).sum())}
    for name, values in scores.by_name.items():
        row: dict[str, Any] = {
            "recall": {str(share): round(recall_at(values, same, share), 4) for share in SHARES}
        }
        if name != "cosine":
            risks = np.array([curve.risk(float(value)) for value in values])
            for factor in (1, 10):
                served = risks <= factor * SPENT * BOUND
                row[f"at {factor} x"] = {
                    "served": round(float(served[same].mean()), 4),
                    "traps_served": round(float(served[~same].mean()), 4),
                }
            row["kinds"] = _by_kind(pairs, risks <= SPENT * BOUND)
        told[name] = row
    return told


def _by_kind(pairs: Sequence[Judged], served: Any) -> dict[str, float]:
    kinds: dict[str, list[bool]] = defaultdict(list)
    for pair, was_served in zip(pairs, served.tolist(), strict=True):
        kinds[pair.kind].append(was_served)
    return {kind: round(sum(of) / len(of), 4) for kind, of in sorted(kinds.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: some pairs of each table")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--weights", type=Path, help="a verifier's file; without it the shipped one")
    options = parser.parse_args()
    file = read_verifier(options.weights or shipped())
    embedder = OnnxEmbedder.open("default", "cpu", 1)
    file.verifier.of_space(embedder.space)
    scorer = None if file.encoder is None else PairEncoder.open(file.encoder, "cpu", 1)
    payload: dict[str, Any] = {"identity": file.verifier.identity}
    seen = trained_on()
    for name, all_pairs in (("fow_cache", fow_cache()), ("hand_pairs", hand_pairs())):
        pairs = [
            pair
            for pair in all_pairs
            if skeleton(pair.asked) not in seen and skeleton(pair.cached) not in seen
        ]
        left_out = len(all_pairs) - len(pairs)
        pairs = pairs[:: max(1, len(pairs) // QUICK_PAIRS)] if options.quick else pairs
        scores = scored(pairs, file, embedder, scorer)
        payload[name] = {**table(pairs, file, scores), "left_out": left_out}
        payload.setdefault("ms", scores.ms)
        if not options.json:
            print(f"{name}: {json.dumps(payload[name], indent=1, ensure_ascii=False)}", flush=True)
    payload["held_out"] = file.about.get("held_out", {})
    if not options.quick:
        command = " ".join(["python benchmarks/verifier_quality.py", *sys.argv[1:]])
        report.write("verifier_quality", payload, command)
    if options.json:
        print(json.dumps({**payload, "environment": report.environment()}))
    else:
        print(json.dumps({"ms": payload["ms"], "held_out": payload["held_out"]}, indent=1))


if __name__ == "__main__":
    main()
