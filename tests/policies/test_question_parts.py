"""One text, read: its stems, its cues, its form, and that synonyms are no opposites."""

from __future__ import annotations

import pytest

from policies import english_words, polarity
from policies.question_cues import cues
from policies.question_parts import HEAD, TAIL, clip, clipped, read, read_word


@pytest.mark.parametrize(
    "words",
    [
        "merge merges merged merging",
        "stop stops stopped stopping",
        "install installs installed installing",
        "try tries tried trying",
        "enable enables enabled enabling",
        "box boxes",
        "search searches searching",
    ],
)
def test_one_english_stem(words: str) -> None:
    assert len({english_words.stem(word) for word in words.split()}) == 1


@pytest.mark.parametrize("word", ["need", "class", "status", "this", "king", "red", "bus", "analysis"])
def test_what_ends_like_an_ending_stays(word: str) -> None:
    assert english_words.stem(word) == word


@pytest.mark.parametrize(
    ("sentence", "passive"),
    [
        ("he was hit by a car", True),
        ("when was it found", True),
        ("it is by the road", False),
        ("who is it", False),
    ],
)
def test_passive(sentence: str, passive: bool) -> None:
    assert english_words.is_passive(sentence.split()) == passive


@pytest.mark.parametrize(
    ("word", "cue"),
    [
        ("who", "wh:who"), ("which", "wh:which"), ("must", "modal:must"), ("tallest", "degree:most"),
        ("or", "joint:or"), ("only", "scope:only"), ("누가", "wh:who"), ("얼마나", "wh:how much"),
        ("먹어야", "modal:must"), ("파일만", "scope:only"), ("모두", "scope:all"), ("했어", "tense:past"),
        ("사자보다", "degree:than"), ("방법을", "wh:how"),
    ],
)  # fmt: skip
def test_cues(word: str, cue: str) -> None:
    assert cue in cues(word)


@pytest.mark.parametrize("word", ["latest", "forest", "protest", "whole-grain", "수도", "만두", "다리"])
def test_words_that_only_look_like_cues(word: str) -> None:
    assert not [cue for cue in cues(word) if not cue.startswith("scope:last")]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Is it safe?", "yes-no"),
        ("Can you explain DNS?", "command"),
        ("Can you explain how DNS works?", "wh"),
        ("Can you freeze rice?", "yes-no"),
        ("What is DNS", "wh"),
        ("Explain DNS", "command"),
        ("DNS is slow", "statement"),
        ("DNS가 뭐야?", "wh"),
        ("DNS를 설명해줘", "command"),
        ("비자가 필요한가요?", "yes-no"),
        ("", "statement"),
    ],
)
def test_form(text: str, form: str) -> None:
    assert read(text).form == form


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Where is Rome? Ask Anna.", {"rome", "anna"}),
        ("NASA and I", {"nasa"}),
        ("Paris is big", set()),
        ("iPhone or Pixel", {"pixel"}),
        ("First.\nSecond", set()),
    ],
)
def test_names_are_capitals_that_no_sentence_asks_for(text: str, names: set[str]) -> None:
    assert read(text).names == names


def test_synonyms_are_one_concept_and_opposites_never() -> None:
    assert read_word("bought").concept != read_word("buy").concept  # irregular forms are not known
    assert read_word("purchasing").concept == read_word("buy").concept
    assert read_word("휴대폰을").concept == read_word("핸드폰").concept
    english = polarity.pairs(polarity.ENGLISH_PAIRS, lambda word: word)
    for word, others in english.items():
        assert all(read_word(word).concept != read_word(other).concept for other in others), word
    for word, others in polarity.KOREAN_OPPOSITES.items():
        assert all(read_word(word).concept != read_word(other).concept for other in others), word


def test_what_is_clipped_and_what_is_kept_make_the_text() -> None:
    text = "".join(map(str, range(1_000)))
    assert clip(text) == f"{text[:HEAD]}\n{text[-TAIL:]}"
    assert text[:HEAD] + clipped(text) + text[-TAIL:] == text
    assert (clip("short"), clipped("short")) == ("short", "")


def test_full_width_and_decomposed_characters_read_as_plain_ones() -> None:
    assert read("ＰＲ １２３").quantities == read("PR 123").quantities
    assert read("\u1112\u1161\u11ab\u1100\u116e\u11a8").words == read("한국").words
