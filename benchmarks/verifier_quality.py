"""How well the verifier tells a same question from a trap, beside the cosine alone.

    python benchmarks/verifier_quality.py [--quick] [--json] [--weights FILE]

Three tables. fow-cache's questions (`fow-cache` from PyPI, fetched by this script, data CC BY 4.0), read by
its own `evaluate`; 200 pairs written by hand (tests/policies/hand_pairs.jsonl); and the held-out figures that
the weights' file tells of itself. All are for evaluation only: nothing is trained, tuned or chosen by them. A
pair one of whose texts, letter case and punctuation aside, is among the questions written for training is
left out and counted. Both stages are measured: `features` alone, and `cascade` with the cross-encoder; also
`cosine`.

fow-cache's conversations go to the verifier of conversations.

--json prints one object: `fow_conversations`; `fow_cache` and `hand_pairs`, each with `pairs`, `left_out`,
`same`, `traps` and, by score, `recall` (share of the same pairs above the threshold that lets 1, 5 and 10 %
of the traps through), `served` and `traps_served` (at the risk that one request pays for at max_error_rate
.01, and at ten times that), `kinds` (share served at the former, by kind); `held_out`; `ms` (per pair:
`features`, `cross_encoder`, medians, one thread); `identity`, `environment`. No seed: nothing is drawn.
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
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import report
from embeddings.onnx_embedder import OnnxEmbedder
from embeddings.pair_encoder import PairEncoder
from gateway.conversation_weights import read_conversations_file, shipped_conversations
from gateway.question_groups import read_questions
from gateway.verifier_fitting import recall_at
from gateway.verifier_weights import VerifierFile, read_verifier, shipped
from policies.bounded import MAX_RISK, SPENT
from policies.calibration_curve import CalibrationCurve
from policies.conversation import as_text, turns_of
from policies.conversation_verifier import ConversationVerifier

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


def fow_cache() -> tuple[list[Judged], list[Judged]]:
    """Its question pairs and its conversation pairs, as its own `evaluate` hands and labels them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, FOW_CACHE]
        subprocess.run(command, check=True, capture_output=True)
        sys.path.insert(0, folder)
        try:
            import fow_cache  # type: ignore[import-not-found]

            return _asked_of(fow_cache, "questions", str), _asked_of(fow_cache, "conversations", talk)
        finally:
            sys.path.remove(folder)


def _asked_of(package: Any, dataset: str, read: Callable[[Any], str]) -> list[Judged]:
    """Its pairs, in its own `evaluate`'s order and by its own labels."""
    pairs: list[tuple[str, str]] = []

    def check(cached: Any, asked: Any) -> float:
        pairs.append((read(asked), read(cached)))
        return 0.0

    told = package.evaluate(check, dataset=dataset)
    return [
        Judged(asked=asked, cached=cached, same=bool(result.same_answer), kind=result.group)
        for (asked, cached), result in zip(pairs, told.results, strict=True)
    ]


def talk(messages: Sequence[Mapping[str, Any]]) -> str:
    turns = turns_of(messages)
    text = None if turns is None else as_text(turns)
    assert text is not None, "a conversation that the gateway does not compare"
    return text


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


def conversations(pairs: Sequence[Judged], space: str, scorer: PairEncoder) -> dict[str, Any]:
    """The shipped verifier of conversations: recall at shares of the traps, milliseconds for a whole pair,
    and what is served, by kind and length, at the risk that .01 allows at most."""
    file = read_conversations_file(shipped_conversations())
    verifier = ConversationVerifier(file.weights, space)
    curve = CalibrationCurve(file.counts)
    same = np.array([pair.same for pair in pairs])
    found, times = [], []
    for pair in pairs:
        began = time.perf_counter()
        said = verifier.verify(pair.asked, pair.cached, 1.0)
        if said.open:
            read = [(verifier.read_together(pair.asked), verifier.read_together(pair.cached))]
            said = verifier.verify(pair.asked, pair.cached, 1.0, float(scorer.score(read).logits[0]))
        times.append(time.perf_counter() - began)
        found.append(said.probability)
    values = np.array(found)
    risks = np.array([curve.risk(value) for value in found])
    return {
        "pairs": len(pairs),
        "same": int(same.sum()),
        "traps": int((~same).sum()),
        "recall": {str(share): round(recall_at(values, same, share), 4) for share in (0.01, 0.03, 0.1)},
        "ms": statistics.median(times) * 1000,
        "at most": {
            "served": round(float((risks[same] <= MAX_RISK).mean()), 4),
            "traps_served": round(float((risks[~same] <= MAX_RISK).mean()), 4),
            "kinds": _by_kind(pairs, risks <= MAX_RISK),
        },
    }


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
    questions, talks = fow_cache()
    if scorer is not None:
        chosen = talks[:: max(1, len(talks) // QUICK_PAIRS)] if options.quick else talks
        payload["fow_conversations"] = conversations(chosen, embedder.space, scorer)
    for name, all_pairs in (("fow_cache", questions), ("hand_pairs", hand_pairs())):
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
        rest = {name: payload.get(name) for name in ("fow_conversations", "ms", "held_out")}
        print(json.dumps(rest, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
