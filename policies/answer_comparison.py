"""Do two answers say the same? The outcome that a cache learns from."""

from __future__ import annotations

import unicodedata
from typing import Final

from policies.contrast import contrast

SAME: Final = 0.95
DIFFERENT: Final = 0.85
"""Cosines of two answers' vectors. Unrelated texts score about .8 with the default embedder and one text in
other words .93 or more; between the two nothing is concluded."""


def compare(fresh: str, kept: str, cosine: float | None) -> bool | None:
    """True: they say the same; False: they do not; None: this cannot tell. `cosine` of their vectors, None
    where there are none (an answer longer than the embedder's window).

    The shorter of two answers may be a part of the longer ("Paris", "It is Paris."). Texts near each other
    that differ in a number, a negation or an opposite leave it open, for a model to judge: a list of years
    may do so, and a dose must not.
    """
    a, b = _skeleton(fresh), _skeleton(kept)
    if a == b:
        return True
    if not a or not b:
        return False
    words = sorted((a, b), key=len)
    if len(words[0].split()) <= len(words[1].split()) <= _SHORT:
        return f" {words[0]} " in f" {words[1]} "
    if cosine is None:
        return None
    if cosine < DIFFERENT:
        return False
    return True if cosine >= SAME and not contrast(fresh, kept) else None


_SHORT: Final = 12  # words: of answers this short every word counts


def _skeleton(text: str) -> str:
    """Words in small letters, without punctuation and layout."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in plain).split())
