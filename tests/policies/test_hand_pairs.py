"""The form of `hand_pairs.jsonl`: 200 pairs written by hand, as people ask and as caches err.

The set is for evaluation only. It is never trained on, no threshold is set by it, and no word list or rule is
fitted to it; or its figures say nothing of questions that nobody has seen.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from policies.pair_features import pair_features


class HandPair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asked: str
    cached: str
    same: bool
    kind: str
    lang: str


LINES = Path(__file__).with_name("hand_pairs.jsonl").read_text(encoding="utf-8").splitlines()
PAIRS = [msgspec.json.decode(line, type=HandPair) for line in LINES]
TRAPS = [pair for pair in PAIRS if not pair.same]


def test_there_are_200_in_two_languages_and_half_are_traps() -> None:
    assert Counter((pair.lang, pair.same) for pair in PAIRS) == {
        ("en", True): 60,
        ("en", False): 60,
        ("ko", True): 40,
        ("ko", False): 40,
    }


def test_no_pair_is_there_twice_and_none_is_of_one_text() -> None:
    assert len({frozenset((pair.asked, pair.cached)) for pair in PAIRS}) == len(PAIRS)
    assert all(pair.asked != pair.cached for pair in PAIRS)
    assert all(text == text.strip() and text for pair in PAIRS for text in (pair.asked, pair.cached))


def test_korean_pairs_are_korean() -> None:
    for pair in PAIRS:
        for text in (pair.asked, pair.cached):
            assert (pair.lang == "ko") == any("가" <= c <= "힣" for c in text), text


def test_each_kind_of_trap_is_in_it() -> None:
    kinds = {pair.kind for pair in TRAPS}
    assert kinds >= {"opposite", "number", "dose", "date", "unit", "order", "before-after", "name", "wh-word"}
    assert kinds >= {"scope", "comparative", "negation", "voice", "modality", "tense", "conjunction"}


@pytest.mark.parametrize("pair", TRAPS, ids=lambda pair: pair.asked)
def test_no_trap_looks_like_the_same_text_twice(pair: HandPair) -> None:
    assert pair_features(pair.asked, pair.cached, 1.0) != pair_features(pair.cached, pair.cached, 1.0)
