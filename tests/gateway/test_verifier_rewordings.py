"""Rewordings by rule: they say the same, several at once, and never touch what a question turns on."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gateway.question_groups import QuestionGroup
from gateway.verifier_corpus import written_questions
from gateway.verifier_data import varied
from gateway.verifier_rewordings import reworded


def all_of(text: str, tries: int = 300) -> set[str]:
    rng = np.random.default_rng(0)
    return {made for _ in range(tries) if (made := reworded(text, rng))}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("How do I reset my password?", "How can I reset my password?"),
        ("What is the capital of France?", "What's the capital of France?"),
        ("What is the capital of France?", "What is France's capital?"),
        ("Who is the author of Faust?", "Tell me who the author of Faust is."),
        ("Can I bring my dog?", "Is it possible to bring my dog?"),
        ("Write a poem about rain.", "Please write a poem about rain."),
        ("Can I cancel within 14 days?", "Can I cancel within two weeks?"),
        ("거실 불 켜줘", "거실 불 켜 주세요"),
        ("회원 탈퇴는 어떻게 하나요?", "회원 탈퇴 어떻게 하나요?"),
    ],
)
def test_a_question_is_put_in_other_words(text: str, wanted: str) -> None:
    assert wanted in all_of(text, 2000)


def test_several_rules_act_at_once() -> None:
    made = all_of("What is the capital of France?")
    assert any("capital city" in one and "France's" in one for one in made)
    assert len(made) > 30


@pytest.mark.parametrize("text", ["Why?", "", "123"])
def test_what_no_rule_knows_is_left_alone_or_only_styled(text: str) -> None:
    letters = re.sub(r"\W", "", text).casefold()
    assert all(letters in re.sub(r"\W", "", one).casefold() for one in all_of(text))


def test_it_is_the_same_with_the_same_seed() -> None:
    texts = [group.question for group in groups()[:100]]
    runs = [[reworded(text, rng) for text in texts] for rng in map(np.random.default_rng, (5, 5, 6))]
    assert runs[0] == runs[1] != runs[2]


def test_digits_and_quoted_parts_stay_where_they_are() -> None:
    rng = np.random.default_rng(0)
    for group in groups():
        for number in re.findall(r"\b\d{3,}\b", group.question):
            made = reworded(group.question, rng)
            assert made is None or number in made.replace(",", "") or number in ("100", "1000")


def test_pairs_are_reworded_on_either_side_of_the_truth() -> None:
    rng = np.random.default_rng(0)
    texts = [group.question for group in groups()[:200]]
    apart = [(group.question, group.traps[0].text) for group in groups()[:200] if group.traps]
    pairs = varied(texts, apart, rng, 40, 0.5)
    same = [pair for pair in pairs if pair.source == "edit-reworded"]
    equal = [pair for pair in pairs if pair.source == "edit-equal"]
    other = [pair for pair in pairs if not pair.same]
    assert (len(same), len(equal), len(other)) == (40, 10, 20)
    assert all(pair.same and pair.a in texts and pair.b != pair.a for pair in same)
    assert all(pair.same and pair.a == pair.b for pair in equal)
    assert all(pair.b not in dict(apart).values() and pair.weight == 0.5 for pair in other)


def groups() -> list[QuestionGroup]:
    found, _ = written_questions()
    return found
