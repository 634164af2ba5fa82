"""Who does what to whom: the parts that words play by their prepositions, and whether two texts swap them.

English parts come from prepositions ("from A to B", "A into B", "A before B", "A than B", "V-ed by A"),
Korean ones from particles (`policies.korean_words`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

PREPOSITIONS: Final[Mapping[str, tuple[str, str]]] = {
    "from": ("", "source"), "to": ("source", "goal"), "into": ("source", "goal"), "onto": ("source", "goal"),
    "before": ("earlier", "later"), "after": ("later", "earlier"), "until": ("", "later"),
    "than": ("more", "less"), "over": ("upper", "lower"), "under": ("lower", "upper"),
    "above": ("upper", "lower"), "below": ("lower", "upper"), "by": ("", "agent"),
    "with": ("replaced", "replacement"), "for": ("thing", "purpose"), "of": ("part", "whole"),
    "in": ("inner", "outer"), "on": ("upper", "lower"), "via": ("", "means"), "without": ("thing", "lacking"),
}  # fmt: skip
"""Of a preposition: the parts of the content word before it and of the one behind it; "" for none."""

Roles = frozenset[tuple[str, str]]


def swapped(a: Roles, b: Roles) -> int:
    """How many pairs of words play each other's part: source X and goal Y here, source Y and goal X there.

    A part that a word has in both texts is none that it lost. Symmetric.
    """
    only_a, only_b = a - b, b - a
    if len(only_a) < 2 or len(only_b) < 2:
        return 0
    words_b = dict.fromkeys(only_b)
    count = 0
    listed = sorted(only_a)
    for i, (part, word) in enumerate(listed):
        for other_part, other_word in listed[i + 1 :]:
            if part != other_part and (part, other_word) in words_b and (other_part, word) in words_b:
                count += 1
    return count


def inversions(a: Sequence[str], b: Sequence[str]) -> float:
    """Share in 0 .. 1 of the pairs of shared words that stand in another order: 0 with fewer than two shared,
    and 1 where one text is the other backwards. Of a word that is repeated its first place counts."""
    place = {word: i for i, word in reversed(tuple(enumerate(b)))}
    places = [place[word] for word in dict.fromkeys(a) if word in place]
    n = len(places)
    if n < 2:
        return 0.0
    if all(x < y for x, y in pairwise(places)):
        return 0.0
    inverted = sum(places[i] > places[j] for i in range(n) for j in range(i + 1, n))
    return 2 * inverted / (n * (n - 1))
