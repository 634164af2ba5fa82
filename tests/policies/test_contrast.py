"""Differences an embedding hardly sees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.contrast import contrast, indistinct
from policies.types import Candidate

TRAPS = [
    ("How do I enable 2FA?", "How do I disable 2FA?", "opposites"),
    ("Turn dark mode on", "Turn dark mode off", "opposites"),
    ("Enabling swap", "Disabled swap", "opposites"),
    ("Commits since May", "Commits until May", "opposites"),
    ("Summarise PR 123", "Summarise PR 456", "numbers"),
    ("Convert 5 miles to km", "Convert 50 miles to km", "numbers"),
    ("Explain the three laws", "Explain the four laws", "numbers"),
    ("What happened?", "What happened in 1994?", "numbers"),
    ("Is aspirin safe for children?", "Is aspirin not safe for children?", "negated"),
    ("Why can I log in?", "Why can't I log in?", "negated"),
    ("Why can I log in?", "Why can’t I log in?", "negated"),
    ("merge develop into main", "merge main into develop", "another order"),
    ("다크 모드 켜는 법", "다크 모드 끄는 법", "opposites"),
    ("알림을 활성화하는 방법", "알림을 비활성화하는 방법", "opposites"),
    ("이 약을 먹어도 되나요", "이 약을 안 먹어도 되나요", "negated"),
    ("회의가 3시인가요", "회의가 4시인가요", "numbers"),
]
SAME = [
    ("What is the capital of France?", "What's the capital city of France?"),
    ("How do I reset my password?", "How can I reset my password?"),
    ("Convert 5 miles to km", "convert five miles to km"),
    ("A budget of 1,000 euros", "a budget of 1000 euros"),
    ("프랑스의 수도는 어디야?", "프랑스 수도가 어디인가요?"),
    ("Which one is better?", "Which is better?"),
]


@pytest.mark.parametrize(("asked", "cached", "said"), TRAPS)
def test_traps_are_seen_from_either_side(asked: str, cached: str, said: str) -> None:
    assert said in contrast(asked, cached)
    assert contrast(cached, asked) == contrast(asked, cached)


@pytest.mark.parametrize(("asked", "cached"), SAME)
def test_paraphrases_are_left_alone(asked: str, cached: str) -> None:
    assert contrast(asked, cached) == ""


@given(st.text(), st.text())
def test_it_is_symmetric_and_finds_nothing_between_a_text_and_itself(a: str, b: str) -> None:
    assert contrast(a, a) == ""
    assert bool(contrast(a, b)) == bool(contrast(b, a))


PARAGRAPH = (
    "Here is the contract of the company with its employees. It says that wages are {} and that the week"
    " has five days, that holidays are granted on request, that both sides may end the contract in writing"
    " and that a dispute is settled by the court of the town where the company is. When are wages paid?"
)
KOREAN_PARAGRAPH = "근로자는 주 오일 근무하며 휴가는 신청에 따라 주어집니다. " * 12 + "임금은 {} 지급됩니다."


def test_of_long_texts_any_fact_is_a_contrast() -> None:
    weekly, monthly = PARAGRAPH.format("paid weekly"), PARAGRAPH.format("paid monthly")
    assert contrast(weekly, monthly) == "they are long and differ in more than function words"
    assert contrast(weekly, weekly.replace("of the company", "of the firm")) == contrast(weekly, monthly)
    assert contrast(weekly, weekly + " Please tell me that.") == ""
    assert contrast("Wages are paid weekly", "Wages are paid monthly") == "", "short: the vectors tell"
    assert contrast(KOREAN_PARAGRAPH.format("매주"), KOREAN_PARAGRAPH.format("매달"))
    assert not contrast(KOREAN_PARAGRAPH.format("매주"), KOREAN_PARAGRAPH.format("매주 좀"))


@pytest.mark.parametrize(
    ("asked", "cached", "similarity", "told"),
    [
        ("What does ᚠᚢ mean?", "What does ᚦᚨ mean?", 1.0, True),
        ("🦄", "🐉", 0.9996, True),
        ("What is HTTP?", "what is http", 1.0, False),
        ("What is HTTP?", "What is  HTTP ？", 1.0, False),
        ("What is HTTP?", "Explain HTTP", 0.9994, False),
    ],
)
def test_equal_vectors_of_other_texts_mean_nothing(
    asked: str, cached: str, similarity: float, told: bool
) -> None:
    candidate = Candidate(entry_id=1, similarity=similarity, text=cached, created_at=0.0)
    assert bool(indistinct(asked, candidate)) is told
