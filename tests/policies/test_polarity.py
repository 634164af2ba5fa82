"""Which words deny, and which name opposites."""

from __future__ import annotations

import pytest

from policies import english_words, polarity
from policies.polarity import KOREAN_OPPOSITES, is_negation, korean_poles, without_prefix


@pytest.mark.parametrize(
    "word",
    [
        "not", "no", "never", "can't", "isn't", "won't", "without", "cannot", "except",
        "안", "못", "않는", "않나요", "없는", "아닌", "못해", "못하는", "안돼", "말고", "제외",
    ],
)  # fmt: skip
def test_negations(word: str) -> None:
    assert is_negation(word)


@pytest.mark.parametrize(
    "word", ["note", "know", "another", "can", "with", "안녕하세요", "안전", "안내", "있는", "말하는"]
)
def test_words_that_deny_nothing(word: str) -> None:
    assert not is_negation(word)


@pytest.mark.parametrize(
    ("stem", "bare"),
    [
        ("unlock", "lock"), ("disadvantage", "advantage"), ("impossible", "possible"), ("non-stop", "stop"),
        ("irregular", "regular"), ("비공개", "공개"), ("불가능", "가능"), ("미성년", "성년"),
        ("lock", ""), ("unit", ""),
    ],
)  # fmt: skip
def test_prefixes(stem: str, bare: str) -> None:
    assert without_prefix(stem) == bare


def test_opposites_go_both_ways() -> None:
    english = polarity.pairs(polarity.ENGLISH_PAIRS, english_words.stem)
    for table in (english, KOREAN_OPPOSITES):
        assert all(word in table[other] for word, others in table.items() for other in others)
    assert english_words.stem("disabling") in english[english_words.stem("enabled")]


@pytest.mark.parametrize(
    ("one", "other"),
    [("켜는", "끄는"), ("큰", "작은"), ("무거운", "가벼운"), ("파는", "사는"), ("전에", "후에")],
)
def test_korean_opposites_in_their_forms(one: str, other: str) -> None:
    opposed = {word for pole in korean_poles(one) for word in KOREAN_OPPOSITES[pole]}
    assert opposed & set(korean_poles(other))
