"""Korean words without their particles and endings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import korean_words


@pytest.mark.parametrize(
    ("words", "stem"),
    [
        ("수도는 수도가 수도를 수도의 수도에 수도에서 수도와 수도로 수도까지 수도부터", "수도"),
        ("서울은 서울이 서울을 서울의 서울에 서울에서 서울과 서울로 서울만 서울에서는", "서울"),
        ("부산으로 부산에서 부산이 부산까지", "부산"),
        ("고양이 고양이가 고양이를 고양이는 고양이의", "고양"),
        ("개가 개를 개는", "개"),
        ("차이가 차이는 차이를 차이의", "차이"),
        ("회의를 회의가 회의는 회의에서", "회의"),
        ("설치하려면 설치하는 설치해 설치할까요 설치합니까 설치했나요 설치하기", "설치"),
        ("먹어도 먹으면 먹나요 먹는 먹어야 먹습니까 먹을까요", "먹"),
        ("갈까요 갑니까", "가"),
    ],
)
def test_one_stem(words: str, stem: str) -> None:
    assert {word: korean_words.part(word)[0] for word in words.split()} == dict.fromkeys(words.split(), stem)


@pytest.mark.parametrize("word", ["차이", "휴가", "가을", "회의", "지도", "나라", "언어", "고기"])
def test_a_noun_that_ends_like_a_particle_stays_whole(word: str) -> None:
    assert korean_words.part(word) == (word, "")


@pytest.mark.parametrize(
    ("word", "role"),
    [
        ("서울에서", "source"), ("서울부터", "source"), ("부산까지", "goal"), ("원화로", "goal"),
        ("고양이가", "subject"), ("형이", "subject"), ("개를", "object"), ("고양이를", "object"),
        ("집에", "goal"), ("사자보다", "less"),
        ("서울은", ""), ("서울만", ""), ("서울의", ""),
    ],
)  # fmt: skip
def test_roles(word: str, role: str) -> None:
    assert korean_words.part(word)[1] == role


@pytest.mark.parametrize("word", ["해줘", "해주세요", "알려줄래", "주세요", "좀", "있나요", "할까요"])
def test_politeness_carries_no_fact(word: str) -> None:
    assert korean_words.is_function_word(word)


@pytest.mark.parametrize("word", ["수도", "알림", "켜는", "설치", "안", "없는"])
def test_what_carries_a_fact_is_no_function_word(word: str) -> None:
    assert not korean_words.is_function_word(word)


@pytest.mark.parametrize(("word", "past"), [("했나요", 1), ("먹었어", 1), ("있나요", 0), ("하겠다", 0)])
def test_past(word: str, past: int) -> None:
    assert korean_words.is_past(word) == bool(past)


@given(st.text("가나다를은는이에서으로까지해하줘요니까", min_size=1, max_size=12))
def test_a_stem_is_never_empty(word: str) -> None:
    assert korean_words.part(word)[0]
