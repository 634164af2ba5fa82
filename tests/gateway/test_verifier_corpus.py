"""The public pairs: parted by groups and kinds, with near pairs of other classes and edits beside them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from embeddings.protocols import FloatMatrix
from gateway.verifier_corpus import FILES, HELD_OUT_KINDS, Parts, read_corpus
from gateway.verifier_data import VerifierDataError
from tests.gateway.verifier_cases import FakeEmbedder

KIND = "Change numbers in one of the questions"


def embed(texts: Sequence[str]) -> FloatMatrix:
    return FakeEmbedder().encode(texts).vectors


def pair_rows(name: str, count: int) -> list[dict[str, Any]]:
    """Chains of three questions: the first the same as the second, that not the same as the third."""
    rows = []
    for number in range(count):
        first, second, third = (f"How do I {name} {number} cold {word}?" for word in ("pots", "pans", "cups"))
        rows.append({"a": first, "b": second, "same": True, "category": name})
        rows.append({"a": second, "b": third, "same": False, "category": name})
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    content = {name: pair_rows(name, 60) for name in FILES if name.startswith("pairs_")}
    content["pairs_checklist"] = [
        {"a": f"Is {kind} {i}?", "b": f"Is {kind} {i + 1}?", "same": i % 2 == 0, "category": kind}
        for kind in (KIND, *sorted(HELD_OUT_KINDS))
        for i in range(6)
    ]
    content["stream_qqp"] = [
        {"text": f"Can I heat {number} hot stones {how}?", "class": number if number % 2 else -1}
        for number in range(80)
        for how in ("at home", "quickly")
    ]
    content["stream_parakqc"] = [
        {"text": f"{number}번 방 {thing} 켜줘", "class": number}
        for number in range(60)
        for thing in ("불", "조명", "전등")
    ]
    for name, rows in content.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return tmp_path


def texts(parts: Parts, part: str, source: str) -> set[str]:
    return {
        text
        for name, pairs in parts.items()
        if name == part
        for pair in pairs
        if pair.source == source
        for text in (pair.a, pair.b)
    }


def test_no_question_is_in_two_parts_and_every_part_has_some(folder: Path) -> None:
    parts, files = read_corpus(folder, embed, 0)
    assert [file.name for file in files] == [f"{name}.jsonl.gz" for name in FILES]
    for source in ("qqp", "qqp_near", "parakqc", "ko_question", "pawsx_ko", "negation"):
        of = [texts(parts, part, source) for part in ("train", "calibrate", "evaluate")]
        assert all(of), source
        assert len(set.union(*of)) == sum(map(len, of)), source


def test_near_pairs_are_of_other_classes(folder: Path) -> None:
    parts, _ = read_corpus(folder, embed, 0)
    near = [pair for pairs in parts.values() for pair in pairs if pair.source in ("qqp_near", "parakqc")]
    korean = [pair for pair in near if pair.source == "parakqc"]
    # A class of ParaKQC is the first word here: the same answer exactly where it is the same.
    assert {pair.same for pair in korean} == {True, False}
    assert all(pair.same == (pair.a.split()[0] == pair.b.split()[0]) for pair in korean)
    quora = [pair for pair in near if pair.source == "qqp_near"]
    assert not any(pair.same for pair in quora)
    numbers = [(int(pair.a.split()[3]), int(pair.b.split()[3])) for pair in quora]
    assert all(a != b or a % 2 == 0 for a, b in numbers)  # the even ones are in no class


def test_held_out_kinds_are_for_evaluation_only(folder: Path) -> None:
    parts, _ = read_corpus(folder, embed, 0)
    learnt, held = (texts(parts, part, "checklist") for part in ("train", "evaluate"))
    assert learnt
    assert all(KIND in text for text in learnt)
    assert {kind for kind in HELD_OUT_KINDS if any(kind in text for text in held)} == HELD_OUT_KINDS
    assert not texts(parts, "calibrate", "checklist")


def test_edits_are_of_the_texts_of_their_own_part(folder: Path) -> None:
    parts, _ = read_corpus(folder, embed, 0)
    for part, pairs in parts.items():
        own = texts(parts, part, "qqp") | texts(parts, part, "qqp_near")
        edits = [pair for pair in pairs if pair.source == "edit-number"]
        assert edits
        assert all(pair.a in own for pair in edits)


def test_the_same_seed_gives_the_same_parts(folder: Path) -> None:
    assert read_corpus(folder, embed, 4) == read_corpus(folder, embed, 4)
    assert read_corpus(folder, embed, 4)[0] != read_corpus(folder, embed, 5)[0]


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "pairs_negation.jsonl.gz").unlink()
    with pytest.raises(VerifierDataError, match=r"pairs_negation\.jsonl\.gz: no such file"):
        read_corpus(folder, embed, 0)
