"""A text in the pieces of a stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.pieces import pieces, tokens_in


@given(st.text() | st.text(alphabet=" \n\ta日한é🚀\u3000\x1c", max_size=300))
def test_joined_they_give_the_text_back(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert all(pieces(text))


@pytest.mark.parametrize(
    "text",
    [
        "word " * 60,
        "日本語のテキストには空白がありません。" * 15,
        "한국어는띄어쓰기가없어도" * 20,
        "aGVsbG8gd29ybGQ" * 40,
        " \n" * 300,
        '{"a":[1,2,3],"b":"x"},' * 30,
    ],
)
def test_a_text_of_any_script_is_many_small_pieces(text: str) -> None:
    sizes = list(map(len, pieces(text)))
    assert len(sizes) >= 4
    assert max(sizes) <= 80
    assert max(map(tokens_in, pieces(text))) <= 20


def test_an_empty_text_has_none() -> None:
    assert pieces("") == []


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("word and word", 13 / 4), ("日本語", 3), ("한국 a", 2.5), ("naïve café", 10 / 4)],
)
def test_tokens_are_estimated_by_script(text: str, tokens: float) -> None:
    assert tokens_in(text) == tokens
