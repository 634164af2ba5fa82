"""A text in the small pieces that a stream has it in, and about how many tokens it is."""

from __future__ import annotations

import re

_WORDS_A_PIECE = 8
_DENSE = r"\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
"""Chinese, Japanese and Korean: a character is about a token, and often no space stands between words."""
_OTHER = rf"[^\s{_DENSE}]"
# All is bounded: neither a text without spaces nor one of spaces alone is a single word. A word that is not
# too long for one stays whole.
_WORD = rf"\s{{0,10}}(?:[{_DENSE}]|{_OTHER}{{1,20}}(?!{_OTHER})|{_OTHER}{{1,10}})|\s{{1,10}}"
_PIECE = re.compile(rf"(?:{_WORD}){{1,{_WORDS_A_PIECE}}}")
_DENSE_CHARACTER = re.compile(f"[{_DENSE}]")
_CHARACTERS_A_TOKEN = 4


def pieces(text: str) -> list[str]:
    """The text in pieces of a few words, or of a few characters where it has no words; joined they give it
    back exactly. None of an empty text."""
    return _PIECE.findall(text)


def tokens_in(text: str) -> float:
    """About how many tokens: one for each character of Chinese, Japanese and Korean, and one for four of any
    other script."""
    dense = 0 if text.isascii() else len(_DENSE_CHARACTER.findall(text))
    return dense + (len(text) - dense) / _CHARACTERS_A_TOKEN
