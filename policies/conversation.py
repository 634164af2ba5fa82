"""A conversation as text: what one turn after the other said, and what its last message leans on.

The last message alone means nothing ("yes, cancel it"). What is compared is the whole; what is searched by is
the last message and as much of the latest turns as it leans on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from policies.question_parts import clip, read
from policies.semantic_safety import message_text

Role = Literal["user", "assistant"]

SYSTEM_ROLES: Final = ("system", "developer")
MAX_CHARACTERS: Final = 60_000
"""Of a whole conversation; a longer one is answered by exact match only."""
GIST_CHARACTERS: Final = 280
"""Of what is searched by and read together: about 64 tokens."""
_MARK: Final = "\x1e"
_TURN: Final = re.compile(_MARK + r"(user|assistant): ")
_LEANING: Final = re.compile(
    r"\b(?:it|its|that|this|these|those|them|they|their|he|she|him|her|his|ones?|there|then|same|both|either"
    r"|other|another|else|first|second|third|last|latter|former|later|earlier|instead|again|still|too"
    r"|the|yes|yeah|yep|no|nope|ok|okay|sure|please|exactly|right|agreed|go ahead|sounds good|do so|thanks)\b"
    r"|^(?:and|but|or|so|then|what about|how about|why|how come|when|how much|how long|how many)\b"
    r"[^?]{0,18}\??$"
    r"|그거|그것|그건|그럼|이거|이것|저거|거기|그때|그렇게|네|응|아니|둘|첫|나머지|다른",
    re.IGNORECASE,
)
_FEW_WORDS: Final = 3


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    role: Role
    text: str


Conversation = tuple[Turn, ...]


def turns_of(messages: Sequence[Mapping[str, Any]]) -> Conversation | None:
    """The turns behind the leading system messages, the last one the user's. None when there is one turn
    only, or when they hold more than text, other roles or further fields: a name, a tool call, a refusal."""
    at = 0
    while at < len(messages) and messages[at].get("role") in SYSTEM_ROLES:
        at += 1
    turns = []
    for message in messages[at:]:
        text = message_text(message.get("content"))
        role = message.get("role")
        if role not in ("user", "assistant") or text is None or set(message) - {"role", "content"}:
            return None
        turns.append(Turn(role=role, text=text.replace(_MARK, " ")))
    if len(turns) < 2 or turns[-1].role != "user" or not turns[-1].text.strip():
        return None
    return tuple(turns)


def as_text(turns: Conversation) -> str | None:
    """What `parse` reads again; None beyond MAX_CHARACTERS."""
    text = "\n".join(f"{_MARK}{turn.role}: {turn.text}" for turn in turns)
    return text if len(text) <= MAX_CHARACTERS else None


@lru_cache(maxsize=512)
def parse(text: str) -> Conversation:
    """The turns of `as_text`. Raises ValueError for another text."""
    parts = _TURN.split(text)
    if parts[0] or len(parts) < 5:
        raise ValueError("the text is no conversation")
    roles, texts = parts[1::2], parts[2::2]
    last = len(texts) - 1
    return tuple(
        Turn(role="user" if role == "user" else "assistant", text=said if at == last else said[:-1])
        for at, (role, said) in enumerate(zip(roles, texts, strict=True))
    )


def searched_by(text: str) -> str:
    """What of a kept text is embedded: of a conversation its gist, of a question all."""
    if not text.startswith(_MARK):
        return text
    try:
        return gist(parse(text))
    except ValueError:
        return text


def shown(text: str) -> str:
    """A kept text as people read it."""
    return text.replace(_MARK, "")


@lru_cache(maxsize=512)
def leans(turns: Conversation) -> bool:
    """Whether the last message means something only with what was said before: it has few words of its own,
    points at something, or takes up a word of the turns before."""
    last = turns[-1].text
    words = read(clip(last)).stems
    if len(words) < _FEW_WORDS or _LEANING.search(last):
        return True
    return bool(words & stems(turns[:-1]))


@lru_cache(maxsize=512)
def stems(turns: Conversation) -> frozenset[str]:
    """Of the content words of all turns."""
    return frozenset().union(*(read(clip(turn.text)).stems for turn in turns))


@lru_cache(maxsize=512)
def gist(turns: Conversation) -> str:
    """The last message, and if it leans on what was said before, the latest of that, newest first."""
    last = turns[-1].text
    if not leans(turns):
        return last
    room = GIST_CHARACTERS - len(last)
    parts = [last]
    for turn in reversed(turns[:-1]):
        if room <= 20:
            break
        text = " ".join(turn.text.split())
        parts.append(text if len(text) <= room else text[: room - 1] + "…")
        room -= len(parts[-1]) + 3
    return " | ".join(parts)
