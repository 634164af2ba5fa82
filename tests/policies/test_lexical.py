"""The features: fixed order, finite on anything, and each answers to what it is named after."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.lexical import LEXICAL_FEATURES, LEXICAL_VERSION, lexical_features


def feature(text: str, name: str) -> float:
    return float(lexical_features(text)[LEXICAL_FEATURES.index(name)])


def test_names_are_distinct_and_their_order_is_that_of_version_1() -> None:
    assert LEXICAL_VERSION == 1
    assert len(set(LEXICAL_FEATURES)) == len(LEXICAL_FEATURES) == 26
    assert LEXICAL_FEATURES[:3] == ("length", "length_squared", "words")
    assert LEXICAL_FEATURES[-2:] == ("negation", "technical")


@given(st.text(max_size=400))
@example("")
@example("\x00\ud800")
@example("٣³½Ⅷ")
@example("x" * 50_000)
@example("\n" * 50_000)
@example("$_(" * 20_000)
def test_every_text_gives_finite_float32_features(text: str) -> None:
    features = lexical_features(text)
    assert features.shape == (len(LEXICAL_FEATURES),)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()
    shares = [features[LEXICAL_FEATURES.index(n)] for n in ("variety", "capitals", "digit_share", "choices")]
    assert all(0 <= share <= 1 for share in shares)


@pytest.mark.parametrize(
    ("name", "more", "less"),
    [
        ("length", "a longer question than the other", "short"),
        ("words", "four words are here", "one"),
        ("word_length", "electromagnetic polarisation", "we go to it"),
        ("variety", "all of these differ", "same same same same"),
        ("capitals", "NASA and ESA", "some lower words"),
        ("digit_share", "1234567", "no digits"),
        ("numbers", "3 of 17 and 2.5", "three"),
        ("math_symbols", "x = y + z ≤ √2", "x equals y"),
        ("latex", r"$\frac{1}{2}$", "one half"),
        ("code", "def f(x):\n    return x == 1", "define f of x"),
        ("questions", "Why? How?", "Why."),
        ("sentences", "One. Two. Three.", "One"),
        ("newlines", "a\nb\nc", "a b c"),
        ("blanks", "The sky is ____.", "The sky is"),
        ("choices", "Pick:\nA. one\nB. two\nC. three\nD. four", "Pick one of four"),
        ("parts", "1. do this\n2. do that\n- and this", "do this"),
        ("demanding", "Prove and derive the bound", "Say hello"),
        ("demanding", "정리를 증명하고 복잡도를 분석해줘", "안녕하세요"),
        ("casual", "Hello, please translate", "Compute the integral"),
        ("casual", "안녕, 이 문장 번역해줘", "적분을 계산하라"),
        ("recall", "Who was the president and when?", "Please go on"),
        ("recall", "수도가 어디야? 누가 정했어?", "계속해줘"),
        ("reasoning", "Explain why and how", "Name it"),
        ("reasoning", "왜 그런지 설명해줘", "이름을 말해줘"),
        ("quantity", "How many percent in total?", "Which one?"),
        ("quantity", "확률을 구하고 평균을 계산하라", "어느 것?"),
        ("condition", "Suppose x, given y, if z", "x and y"),
        ("condition", "만약 비가 온다고 가정하면", "비가 온다"),
        ("joining", "first this and then that", "this"),
        ("joining", "먼저 이것, 그리고 저것", "이것"),
        ("negation", "which is not false, except never", "which is it"),
        ("negation", "옳지 않은 것이 아닌 것", "옳은 것"),
        ("technical", "eigenvalue of a matrix", "colour of a cat"),
        ("technical", "행렬의 고윳값", "고양이의 색"),
    ],
)
def test_a_feature_answers_to_its_name(name: str, more: str, less: str) -> None:
    assert feature(more, name) > feature(less, name)


def test_a_korean_prompt_counts_as_long_as_its_english_meaning() -> None:
    english = feature("What is the capital of South Korea?", "length")
    korean = feature("대한민국의 수도는 어디인가요?", "length")
    assert abs(english - korean) < 0.3


def test_repeating_a_cue_buys_little() -> None:
    assert feature("prove " * 50, "demanding") < 3 * feature("prove it twice, prove it", "demanding") + 1


def test_of_a_long_prompt_the_task_at_its_end_is_read() -> None:
    pasted = "the cat sat on the mat " * 2_000
    assert feature(pasted + "Now prove the theorem.", "demanding") > feature(pasted, "demanding") == 0
    assert feature(pasted, "length") == pytest.approx(np.log1p(len(pasted)))
