"""What two near questions differ in though an embedding hardly sees it: numbers, negation, opposites, order,
and any fact of a long text.

A contrast means that one answer does not serve both. None is no proof that it does.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from policies import function_words, opposites
from policies.types import Candidate

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|[가-힣]+|\d+(?:[.,]\d+)*")
_SUFFIX = re.compile(r"(?:ing|ed|es|s|e|d)$")
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nor|neither|without|cannot|nothing|nobody|unable|except|exclud\w+)\b|n't\b"
    r"|(?:^|\s)(?:안|못)(?=\s)|않|없|아니|아닌|지\s?마|말고|제외",
)
LONG_WORDS = 40
LONG_CHARACTERS = 300
"""Of a text beyond either, a vector tells what it is about, hardly what it says: two prompts of 110 tokens
that differ in "weekly" and "monthly" have a cosine of .991."""
SAME_VECTOR = 0.9995
"""The cosine from which two vectors are one: stored ones are rounded to float16, which moves it by 1e-4."""
_BLANK_OR_PUNCTUATION = re.compile(r"[\s!-/:-@\[-`{-~]")
_ANY_WORD = re.compile(r"\w+(?:'\w+)?")
_WORD_NUMBERS = {
    word: str(value)
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
    )
    if word != "one"  # "which one" counts nothing
}


def _stem(word: str) -> str:
    return _SUFFIX.sub("", word) if len(word) > 4 and word.isascii() else word


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (pair.split() for pair in text.split(";"))
    return tuple((_stem(a), _stem(b)) for a, b in pairs)


_ENGLISH = frozenset(_pairs(opposites.ENGLISH))
_KOREAN = _pairs(opposites.KOREAN)


def contrast(asked: str, cached: str) -> str:
    """What the two differ in, in words fit for a header; "" when nothing was found. Symmetric."""
    a, b = _plain(asked), _plain(cached)
    words_a, words_b = _WORD.findall(a), _WORD.findall(b)
    return (
        _numbers(words_a, words_b)
        or _negation(a, b)
        or _opposites(words_a, words_b)
        or _order(words_a, words_b)
        or differ_though_long(asked, cached)
    )


def indistinct(asked: str, candidate: Candidate) -> str:
    """Why equal vectors mean nothing here: "" unless the texts differ in more than case, blanks and
    punctuation. An embedder that is broken gives one vector for everything, and a sound one the same for all
    characters that its tokenizer does not know."""
    if candidate.similarity < SAME_VECTOR or _skeleton(asked) == _skeleton(candidate.text):
        return ""
    return "the embedder does not tell these texts apart"


def _skeleton(text: str) -> str:
    kept = (c for c in unicodedata.normalize("NFKC", text).casefold() if not _BLANK_OR_PUNCTUATION.match(c))
    return "".join(kept)


def _numbers(a: Sequence[str], b: Sequence[str]) -> str:
    def numbers(words: Iterable[str]) -> Counter[str]:
        return Counter(
            _WORD_NUMBERS.get(word, word.replace(",", ""))
            for word in words
            if word[0].isdigit() or word in _WORD_NUMBERS
        )

    only_a, only_b = numbers(a) - numbers(b), numbers(b) - numbers(a)
    return "the numbers differ" if only_a or only_b else ""


def _negation(a: str, b: str) -> str:
    return "one is negated" if len(_NEGATION.findall(a)) != len(_NEGATION.findall(b)) else ""


def _opposites(a: Sequence[str], b: Sequence[str]) -> str:
    only_a, only_b = set(a) - set(b), set(b) - set(a)
    for x in sorted({_stem(word) for word in only_a if word.isascii()}):
        for y in sorted({_stem(word) for word in only_b if word.isascii()}):
            if (x, y) in _ENGLISH or (y, x) in _ENGLISH:
                return "they name opposites"
    korean_a = [word for word in only_a if not word.isascii()]
    korean_b = [word for word in only_b if not word.isascii()]
    if korean_a and korean_b:
        for x, y in _KOREAN:
            if (_begins(korean_a, x) and _begins(korean_b, y)) or (
                _begins(korean_a, y) and _begins(korean_b, x)
            ):
                return "they name opposites"
    return ""


def _begins(words: Iterable[str], stem: str) -> bool:
    return any(word.startswith(stem) for word in words)


def _order(a: Sequence[str], b: Sequence[str]) -> str:
    return "the same words in another order" if a != b and sorted(a) == sorted(b) else ""


def _plain(text: str) -> str:
    return text.lower().replace("’", "'")


def differ_though_long(asked: str, cached: str) -> str:
    """Of long texts, whether they differ in a fact; "" where they do not, and for short ones."""
    longer = max(len(asked), len(cached))
    if longer <= 2 * LONG_WORDS:  # too short for so many words
        return ""
    words_a, words_b = _ANY_WORD.findall(_plain(asked)), _ANY_WORD.findall(_plain(cached))
    if longer <= LONG_CHARACTERS and max(len(words_a), len(words_b)) <= LONG_WORDS:
        return ""
    only_a, only_b = Counter(words_a) - Counter(words_b), Counter(words_b) - Counter(words_a)
    if all(map(_is_function_word, only_a + only_b)):
        return ""
    return "they are long and differ in more than function words"


def _is_function_word(word: str) -> bool:
    return word in function_words.ENGLISH or word in function_words.KOREAN
