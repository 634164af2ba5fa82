"""What an English word is without its endings, and which are participles. Rules of form, no dictionary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_PARTICIPLE: Final = re.compile(
    r"(?:\w{2,}ed|\w{2,}en|made|built|sent|sold|bought|won|led|told|taught|caught|hit|cut|put|found)$"
)


def stem(word: str) -> str:
    """Without the endings of number, tense and person: light, and the same for both texts."""
    if len(word) < 4:
        return word
    if len(word) > 4 and word.endswith(("ies", "ied")):
        return word[:-3] + "y"
    cut = word
    if word.endswith("ing") and len(word) > 5:
        cut = word[:-3]
    elif word.endswith(("ses", "xes", "ches", "shes")) or (word.endswith("ed") and word[-3] != "e"):
        cut = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        cut = word[:-1]
    if cut is not word and len(cut) > 3 and cut[-1] == cut[-2] and cut[-1] not in "lsz":
        return cut[:-1]  # stopped, running
    return cut[:-1] if len(cut) > 3 and cut[-1] == "e" else cut


def is_passive(tokens: Sequence[str]) -> bool:
    """Of words among which is a form of "to be": whether a participle stands before "by", or last."""
    if "by" in tokens:
        return any(_PARTICIPLE.match(token) for token in tokens)
    return bool(tokens) and _PARTICIPLE.match(tokens[-1]) is not None
