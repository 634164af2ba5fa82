"""How many words two questions have in common, and of those that they do not, how many answer each other."""

from __future__ import annotations

import math
from collections.abc import Iterable

from policies.question_parts import Question


def overlap(a: Question, b: Question) -> list[float]:
    """The columns of PAIR_FEATURES from "words_jaccard" to "length", in that order."""
    words_a, words_b = a.words, b.words
    shorter, longer = sorted((len(words_a), len(words_b)))
    beginning = _common(words_a, words_b)
    end = _common(words_a[::-1], words_b[::-1])
    only_a, only_b = a.concepts - b.concepts, b.concepts - a.concepts
    fewer, more = sorted((len(only_a), len(only_b)))
    synonyms = sum(a.concept_of[stem] in b.concepts for stem in a.stems - b.stems)
    return [
        *_shares(a.all_words, b.all_words),
        *_shares(a.stems, b.stems),
        *_shares(a.concepts, b.concepts),
        *_shares(a.trigrams, b.trigrams),
        float(a.all_words == b.all_words and shorter == longer and sorted(words_a) == sorted(words_b)),
        beginning / longer if longer else 1.0,
        end / longer if longer else 1.0,
        float(shorter == longer and beginning + end == longer - 1),
        _likeness(a.stems - b.stems, b.stems - a.stems) if fewer else 0.0,
        len(only_a) / len(a.concepts) if only_a else 0.0,
        len(only_b) / len(b.concepts) if only_b else 0.0,
        math.log1p(fewer),
        math.log1p(more),
        float(fewer > 0),
        math.log1p(synonyms),
        shorter / longer if longer else 1.0,
        math.log1p(longer),
    ]


def _shares(a: frozenset[str], b: frozenset[str]) -> tuple[float, float]:
    """Jaccard, and containment in the smaller. Two empty sets are the same."""
    shared, least = len(a & b), min(len(a), len(b))
    union = len(a) + len(b) - shared
    if not union:
        return 1.0, 1.0
    return shared / union, shared / least if least else 0.0


def _common(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def _likeness(a: Iterable[str], b: Iterable[str]) -> float:
    """Dice coefficient of the letter pairs of two sets of words."""
    pairs_a = {word[i : i + 2] for word in a for i in range(len(word) - 1)}
    pairs_b = {word[i : i + 2] for word in b for i in range(len(word) - 1)}
    total = len(pairs_a) + len(pairs_b)
    return 2 * len(pairs_a & pairs_b) / total if total else 0.0
