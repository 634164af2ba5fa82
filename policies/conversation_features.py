"""What two conversations differ in, as numbers: their last messages, and what these lean on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from policies.conversation import Conversation, leans, stems
from policies.question_parts import Question, clip, read

CONVERSATION_FEATURES_VERSION: Final = 1
CONVERSATION_FEATURES: Final = (
    "last_equal",
    "last_shared",
    "leans",
    "words_contained",
    "words_shared",
    "user_words_contained",
    "offer_contained",
    "offer_shared",
    "recent_contained",
    "numbers_contained",
    "numbers_apart",
    "recent_numbers_apart",
    "names_contained",
    "names_apart",
    "first_shared",
)
"""In [0, 1] each, or counts cut at 1 by 1 / 4. But for the first three they are of what the last message
leans on, and 1 (contained, shared) or 0 (apart) where it leans on nothing."""
_RECENT: Final = 3  # turns before the last message


def conversation_features(a: Conversation, b: Conversation) -> list[float]:
    """Symmetric. One for each of CONVERSATION_FEATURES."""
    last = _read(a[-1:])[0], _read(b[-1:])[0]
    leaning = leans(a) or leans(b)
    same = float(_plain(a[-1].text) == _plain(b[-1].text))
    shared = _shared(last[0].stems | last[0].all_words, last[1].stems | last[1].all_words)
    row = [same, shared, float(leaning)]
    if not leaning:
        return [*row, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0]
    before = a[:-1], b[:-1]
    words = stems(before[0]), stems(before[1])
    users = tuple(stems(tuple(turn for turn in side if turn.role == "user")) for side in before)
    offers = tuple(stems(_last_offer(side)) for side in before)
    recent = tuple(stems(side[-_RECENT:]) for side in before)
    numbers = _numbers(before[0]), _numbers(before[1])
    late = tuple(_numbers(side[-2:]) for side in before)
    names = _names(before[0]), _names(before[1])
    return [
        *row,
        _contained(*words),
        _shared(*words),
        _contained(users[0], users[1]),
        _contained(offers[0], offers[1]),
        _shared(offers[0], offers[1]),
        max(_within(recent[0], words[1]), _within(recent[1], words[0])),
        _contained(*numbers),
        _apart(*numbers),
        _apart(late[0], late[1]),
        _contained(*names),
        _apart(*names),
        _shared(stems(before[0][:1]), stems(before[1][:1])),
    ]


def _last_offer(turns: Conversation) -> Conversation:
    """The assistant's last turn: what a "yes" says yes to."""
    said = [turn for turn in turns if turn.role == "assistant"]
    return tuple(said[-1:])


def _read(turns: Conversation) -> Sequence[Question]:
    return [read(clip(turn.text)) for turn in turns]


def _numbers(turns: Conversation) -> frozenset[str]:
    return frozenset(
        f"{quantity.kind} {quantity.value}" for one in _read(turns) for quantity, _ in one.quantities
    )


def _names(turns: Conversation) -> frozenset[str]:
    return frozenset[str]().union(*(one.names for one in _read(turns)))


def _plain(text: str) -> str:
    return " ".join("".join(c if c.isalnum() else " " for c in text.casefold()).split())


def _shared(a: frozenset[str], b: frozenset[str]) -> float:
    """Jaccard. Two empty sets are the same."""
    return len(a & b) / len(a | b) if a or b else 1.0


def _contained(a: frozenset[str], b: frozenset[str]) -> float:
    """How much of the smaller is in the other."""
    smaller = min(len(a), len(b))
    return len(a & b) / smaller if smaller else 1.0


def _within(a: frozenset[str], b: frozenset[str]) -> float:
    """How much of `a` is in `b`."""
    return len(a & b) / len(a) if a else 1.0


def _apart(a: Iterable[str], b: Iterable[str]) -> float:
    """How many are in one only: 4 or more are 1."""
    return min(1.0, len(frozenset(a) ^ frozenset(b)) / 4)
