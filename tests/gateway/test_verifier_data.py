"""Pairs for training: what is read, what is refused, and how they are parted and mined."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

from gateway.verifier_data import (
    Pair,
    VerifierDataError,
    edited,
    groups,
    nearest_of_other_classes,
    part_of,
    read_pairs,
)

GOOD = '{"a": "one?", "b": "1?", "same": true, "more": 3}\n\n{"a": "two?", "b": "three?", "same": false}\n'


def test_pairs_are_read_in_order_packed_or_not(tmp_path: Path) -> None:
    plain, packed = tmp_path / "mine.jsonl", tmp_path / "yours.jsonl.gz"
    plain.write_text(GOOD)
    packed.write_bytes(gzip.compress(GOOD.encode()))
    pairs, files = read_pairs([plain, packed])
    assert pairs == [
        Pair(a="one?", b="1?", same=True, source="mine"),
        Pair(a="two?", b="three?", same=False, source="mine"),
        Pair(a="one?", b="1?", same=True, source="yours"),
        Pair(a="two?", b="three?", same=False, source="yours"),
    ]
    assert [file.name for file in files] == ["mine.jsonl", "yours.jsonl.gz"]
    assert files[0].sha256 == hashlib.sha256(GOOD.encode()).hexdigest()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 4: not JSON"),
        ("[1]", 'line 4: expected an object with "a", "b" and "same"'),
        ('{"b": "x", "same": true}', 'line 4: "a" must be text'),
        ('{"a": "x", "b": " ", "same": true}', 'line 4: "b" must be text that is not empty'),
        ('{"a": "x", "b": 3, "same": true}', 'line 4: "b" must be text'),
        ('{"a": "x", "b": "y"}', 'line 4: "same" must be true or false, not None'),
        ('{"a": "x", "b": "y", "same": 1}', 'line 4: "same" must be true or false, not 1'),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_field(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(GOOD + line + "\n")
    with pytest.raises(VerifierDataError) as caught:
        read_pairs([path])
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerifierDataError, match="no such file"):
        read_pairs([tmp_path / "none.jsonl"])
    for name, content in (("a.jsonl.gz", b"no gzip"), ("b.jsonl", b"\xff\xfe")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(VerifierDataError, match="cannot be read"):
            read_pairs([tmp_path / name])


def test_linked_texts_are_one_group_whatever_the_order() -> None:
    links = [("d", "c"), ("a", "b"), ("x", "y"), ("b", "c"), ("z", "z")]
    found = groups(links)
    assert found == {"a": "a", "b": "a", "c": "a", "d": "a", "x": "x", "y": "x", "z": "z"}
    assert groups(links[::-1]) == found


def test_parts_have_their_shares_and_depend_on_the_seed() -> None:
    names = [f"group {number}" for number in range(4000)]
    parts = [part_of(name, 0, 0.5, 0.1) for name in names]
    assert parts == [part_of(name, 0, 0.5, 0.1) for name in names]
    assert parts.count("evaluate") / len(parts) == pytest.approx(0.5, abs=0.03)
    assert parts.count("calibrate") / len(parts) == pytest.approx(0.1, abs=0.03)
    assert [part_of(name, 1, 0.5, 0.1) for name in names] != parts


def test_the_nearest_of_another_class_is_found() -> None:
    angles = np.array([0.0, 0.1, 0.3, 1.0, 1.1])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    found = nearest_of_other_classes(vectors, np.array([5, 5, -1, 7, -1]), 2)
    # Of the class of 0 is 1; -1 is a class of its own, so 2 and 4 are near each other.
    assert found.tolist() == [[2, 3], [2, 3], [1, 0], [4, 2], [3, 2]]


def test_edits_are_balanced_and_drawn_from_the_texts() -> None:
    texts = [f"How can I fly from Rome to Paris in {number} hot days?" for number in range(2, 30)]
    pairs = edited(texts, np.random.default_rng(0), 4, 0.5)
    counts = {source: sum(pair.source == source for pair in pairs) for source in {p.source for p in pairs}}
    assert counts == {
        "edit-number": 4,
        "edit-negation": 4,
        "edit-opposite": 4,
        "edit-name": 4,
        "edit-direction": 4,
        "edit-harmless": 20,
    }
    assert {pair.same for pair in pairs if pair.source == "edit-harmless"} == {True}
    assert not any(pair.same for pair in pairs if pair.source != "edit-harmless")
    assert {pair.weight for pair in pairs} == {0.5}
    assert all(pair.a in texts and pair.b != pair.a for pair in pairs)
    assert [pair.a for pair in pairs if pair.same] == [pair.a for pair in pairs if not pair.same]
    again = edited(texts, np.random.default_rng(0), 4, 0.5)
    assert pairs == again


def test_a_direction_is_added_where_no_text_has_one() -> None:
    pairs = edited(["What does it cost?", "얼마야?"], np.random.default_rng(0), 2)
    swapped = [pair for pair in pairs if pair.source == "edit-direction"]
    assert len(swapped) == 2
    assert all(sorted(pair.a) == sorted(pair.b) and pair.a != pair.b for pair in swapped)
    assert {text for text in ("What does it cost", "얼마야?") if any(text in pair.a for pair in swapped)} == {
        "What does it cost",
        "얼마야?",
    }
