"""The public question pairs that the shipped verifier learns from.

Half of each data set is for evaluation only, a tenth for the calibration, the rest for training: parted by
groups of questions that are compared with each other, the checklist by kinds. Weights: a pair that somebody
labelled counts 1; a near text of another class of Quora .3, since half of them are duplicates nobody
labelled; a pair of a template .3 and an edit .5, being many of a kind.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Final

import numpy as np

from embeddings.protocols import FloatMatrix
from gateway.question_groups import QuestionGroup, read_questions
from gateway.router_data import SourceFile
from gateway.verifier_data import (
    Pair,
    Part,
    edited,
    groups,
    nearest_of_other_classes,
    part_of,
    read_pairs,
    read_rows,
    varied,
)

Parts = dict[Part, list[Pair]]
Embed = Callable[[Sequence[str]], FloatMatrix]

FILES: Final = (
    "pairs_qqp",
    "stream_qqp",
    "stream_parakqc",
    "pairs_ko_question",
    "pairs_pawsx_ko",
    "pairs_negation",
    "pairs_checklist",
)
HELD_OUT_KINDS: Final = frozenset(
    {
        "Change location in one of the questions",
        "Is it {ok, dangerous, ...} to {smoke, rest, ...} after != before",
        "Is person X != Did person use to be X",
        "Modifier: adj",
        "Preamble is relevant (different injuries)",
        "different adjectives",
        "traditional SRL: wrong active / passive swap with people",
        "How can I become more {synonym}?",
        "Irrelevant modifiers - animals",
        "Order does not matter for symmetric relations",
    }
)
"""Kinds of the checklist that nothing is trained on."""
_EVALUATED, _CALIBRATED, _BLENDED = 0.5, 0.06, 0.04
_OWN_EVALUATED, _OWN_CALIBRATED, _OWN_BLENDED = 0.1, 0.1, 0.1  # of the groups written for training
_TRAPS_OF_SAME = 8  # pairs of a paraphrase and a trap of one group
_NEAR_WEIGHT, _TEMPLATE_WEIGHT, _EDIT_WEIGHT = 0.3, 0.3, 0.5
_NEAR = 3  # texts of other classes per text
_PARAPHRASES = 15  # pairs of each group of ten
_PER_KIND = 150  # pairs of each kind of the checklist in training
_EDITS: Final[dict[Part, int]] = {"train": 500, "blend": 40, "calibrate": 60, "evaluate": 300}
"""Of each kind and language."""
_VARIED: Final = 5
"""Times as many are reworded."""


def read_corpus(folder: Path, embed: Embed, seed: int) -> tuple[Parts, list[SourceFile]]:
    """Every part of the data in `folder`, which holds FILES as `.jsonl.gz`. `embed` gives unit vectors,
    float32 (N, D). Raises VerifierDataError and what `embed` raises."""
    parts = no_parts()
    rng = np.random.default_rng(seed)
    _add_quora(parts, folder, embed, seed, rng)
    _add_parakqc(parts, folder, embed, seed, rng)
    for name, weight in (("pairs_ko_question", 1.0), ("pairs_pawsx_ko", 0.5), ("pairs_negation", 0.5)):
        pairs = _labelled(folder, name)
        group = groups((pair.a, pair.b) for pair in pairs)
        for pair in pairs:
            parts[_part(group[pair.a], seed)].append(replace(pair, weight=weight))
    _add_checklist(parts, folder, rng)
    files = [_source_file(folder / f"{name}.jsonl.gz") for name in FILES]
    return parts, files


def _add_quora(parts: Parts, folder: Path, embed: Embed, seed: int, rng: np.random.Generator) -> None:
    pairs = _labelled(folder, "pairs_qqp")
    texts, classes = _stream(folder, "stream_qqp")
    group = _quora_groups(pairs, list(zip(texts, classes, strict=True)))
    for pair in pairs:
        parts[_part(group[pair.a], seed)].append(pair)
    for part in parts:
        rows = [i for i, text in enumerate(texts) if _part(group[text], seed) == part]
        of_part = [texts[i] for i in rows]
        near = _near(of_part, [classes[i] for i in rows], embed, "qqp_near")
        parts[part] += [replace(pair, weight=_NEAR_WEIGHT) for pair in near]
        # Quora's longest questions are stories; nobody asks a cache one with a single word changed.
        short = [text for text in of_part if len(text) < 150]
        asked = [pair.a for pair in pairs if _part(group[pair.a], seed) == part and len(pair.a) < 150]
        chosen = list(dict.fromkeys(short + asked))
        changed = edited(chosen, rng, _EDITS[part], _EDIT_WEIGHT)
        apart = [(pair.a, pair.b) for pair in changed if not pair.same]
        parts[part] += changed + varied(chosen, apart, rng, _VARIED * _EDITS[part], _EDIT_WEIGHT)


def _add_parakqc(parts: Parts, folder: Path, embed: Embed, seed: int, rng: np.random.Generator) -> None:
    texts, classes = _stream(folder, "stream_parakqc")
    members: dict[Part, dict[int, list[str]]] = {part: defaultdict(list) for part in parts}
    for text, number in zip(texts, classes, strict=True):
        members[_part(f"parakqc {number}", seed)][number].append(text)
    for part, of_class in members.items():
        for group in of_class.values():
            both = [(a, b) for i, a in enumerate(group) for b in group[:i] if a != b]
            chosen = rng.permutation(len(both))[:_PARAPHRASES]
            parts[part] += [Pair(a=both[i][0], b=both[i][1], same=True, source="parakqc") for i in chosen]
        flat = [(text, number) for number, group in of_class.items() for text in group]
        of_part = [text for text, _ in flat]
        parts[part] += _near(of_part, [number for _, number in flat], embed, "parakqc")
        korean = [
            replace(pair, source=pair.source + "-ko") for pair in edited(of_part, rng, _EDITS[part] // 2)
        ]
        parts[part] += [replace(pair, weight=_EDIT_WEIGHT) for pair in korean]


def written_questions() -> tuple[list[QuestionGroup], list[SourceFile]]:
    """The groups of questions that come with the code, and their files."""
    folder = Path(str(resources.files("gateway") / "questions"))
    paths = sorted([*folder.glob("en-*.txt"), *folder.glob("ko-*.txt")])
    files = [
        SourceFile(name=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths
    ]
    return read_questions(paths), files


def written_parts(groups: Sequence[QuestionGroup], seed: int) -> Parts:
    """The pairs of the groups that were written for training: in each, what says the same with each other,
    and with the traps. Of two traps it is not known whether one answer serves both."""
    parts = no_parts()
    rng = np.random.default_rng(seed)
    for group in groups:
        part = written_part(group, seed)
        same = [group.question, *group.same]
        both = [(a, b, True, "written") for i, a in enumerate(same) for b in same[:i]]
        both += [(group.question, trap.text, False, "written") for trap in group.traps]
        crossed = [(a, trap.text, False, "written") for a in group.same for trap in group.traps]
        both += [crossed[int(i)] for i in rng.permutation(len(crossed))[:_TRAPS_OF_SAME]]
        parts[part] += [
            Pair(a=a, b=b, same=is_same, source=source) for a, b, is_same, source in both if a != b
        ]
    for part, pairs in parts.items():
        texts = list(dict.fromkeys(pair.a for pair in pairs if len(pair.a) < 150))
        apart = [(pair.a, pair.b) for pair in pairs if not pair.same]
        parts[part] = pairs + edited(texts, rng, _EDITS[part] // 2, _EDIT_WEIGHT)
        parts[part] += varied(texts, apart, rng, _VARIED * _EDITS[part], _EDIT_WEIGHT)
    return parts


def written_part(group: QuestionGroup, seed: int) -> Part:
    return part_of(group.question, seed, _OWN_EVALUATED, _OWN_CALIBRATED, _OWN_BLENDED)


def no_parts() -> Parts:
    return {"train": [], "blend": [], "calibrate": [], "evaluate": []}


def held_out_stream(folder: Path, name: str, seed: int) -> list[tuple[str, int]]:
    """Of the stream `name` ("qqp" or "parakqc") in its order, texts with their classes: those that neither
    training nor calibration with this seed has seen."""
    return _part_of_stream(folder, name, seed, "evaluate")


def calibration_stream(folder: Path, name: str, seed: int) -> list[tuple[str, int]]:
    """As `held_out_stream`, those that are for the calibration."""
    return _part_of_stream(folder, name, seed, "calibrate")


def _part_of_stream(folder: Path, name: str, seed: int, part: Part) -> list[tuple[str, int]]:
    rows = [(row["text"], int(row["class"])) for _, row in read_rows(folder / f"stream_{name}.jsonl.gz")]
    if name == "parakqc":
        return [(text, number) for text, number in rows if _part(f"parakqc {number}", seed) == part]
    group = _quora_groups(_labelled(folder, "pairs_qqp"), rows)
    return [(text, number) for text, number in rows if _part(group[text], seed) == part]


def _quora_groups(pairs: Sequence[Pair], rows: Sequence[tuple[str, int]]) -> dict[str, str]:
    """Of every text, the group of all that are compared with it or of its class."""
    links = [(pair.a, pair.b) for pair in pairs]
    first: dict[int, str] = {}
    for text, number in rows:
        links.append((text, first.setdefault(number, text) if number != -1 else text))
    return groups(links)


def _add_checklist(parts: Parts, folder: Path, rng: np.random.Generator) -> None:
    kinds: dict[str, list[Pair]] = defaultdict(list)
    for where, row in read_rows(folder / "pairs_checklist.jsonl.gz"):
        del where
        kinds[row["category"]].append(
            Pair(a=row["a"], b=row["b"], same=row["same"], source="checklist", weight=_TEMPLATE_WEIGHT)
        )
    for kind, pairs in kinds.items():
        if kind in HELD_OUT_KINDS:
            parts["evaluate"] += pairs
        else:
            parts["train"] += [pairs[int(i)] for i in rng.permutation(len(pairs))[:_PER_KIND]]


def _near(texts: Sequence[str], classes: Sequence[int], embed: Embed, source: str) -> list[Pair]:
    """The nearest texts of another class, each two of them once."""
    found = nearest_of_other_classes(embed(texts), np.array(classes, np.int64), _NEAR)
    seen: dict[tuple[str, str], None] = {}
    for at, row in enumerate(found):
        for other in row:
            low, high = sorted((texts[at], texts[other]))
            if low != high and (classes[at] != classes[other] or classes[at] == -1):
                seen.setdefault((low, high))
    return [Pair(a=a, b=b, same=False, source=source) for a, b in seen]


def _labelled(folder: Path, name: str) -> list[Pair]:
    pairs, _ = read_pairs([folder / f"{name}.jsonl.gz"])
    return [replace(pair, source=name.removeprefix("pairs_")) for pair in pairs]


def _stream(folder: Path, name: str) -> tuple[list[str], list[int]]:
    """The texts, each once, and their classes."""
    rows = {row["text"]: int(row["class"]) for _, row in read_rows(folder / f"{name}.jsonl.gz")}
    return list(rows), list(rows.values())


def _part(group: str, seed: int) -> Part:
    return part_of(group, seed, _EVALUATED, _CALIBRATED, _BLENDED)


def _source_file(path: Path) -> SourceFile:
    return SourceFile(name=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
