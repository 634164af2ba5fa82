"""The pairs of conversations that the shipped weights learn from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from gateway.question_groups import ConversationGroup, Message, read_conversations
from gateway.router_data import SourceFile
from gateway.verifier_data import Pair, part_of
from policies.conversation import Conversation, Turn, gist

_KEPT: Final = 0.45
"""Share of the groups that the cross-encoder does not see: the comparison of conversations learns from them
what its scores are worth."""
_GIST_WEIGHT: Final = 2.0  # there are few


def written_conversations() -> tuple[list[ConversationGroup], list[SourceFile]]:
    """The groups of conversations that come with the code, and their files."""
    paths = sorted(Path(str(resources.files("gateway") / "questions")).glob("conv-*.txt"))
    files = [
        SourceFile(name=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths
    ]
    return read_conversations(paths), files


def kept_from_encoder(group: ConversationGroup, seed: int) -> bool:
    """Whether the cross-encoder does not learn from `group`."""
    base = "\n".join(message.content for message in group.base)
    return part_of(base, seed, evaluated=_KEPT) == "evaluate"


def conversation_pairs(group: ConversationGroup) -> list[tuple[Conversation, Conversation, bool]]:
    """Every two of a group that are known to be the same or not; of two traps it is not known."""
    same = [_turns(group.base), *(_turns(talk) for _, talk in group.same)]
    traps = [_turns(talk) for _, talk in group.traps]
    pairs = [(a, b, True) for i, a in enumerate(same) for b in same[:i]]
    return pairs + [(a, b, False) for a in same for b in traps]


def gist_pairs(groups: Sequence[ConversationGroup], seed: int) -> list[Pair]:
    """What the cross-encoder reads of two conversations, of the groups it learns from. Where the gists are
    equal the difference lies further back: nothing to be learnt from their words."""
    return [
        Pair(a=first, b=second, same=same, source="conversation", weight=_GIST_WEIGHT)
        for group in groups
        if not kept_from_encoder(group, seed)
        for a, b, same in conversation_pairs(group)
        if (first := gist(a)) != (second := gist(b))
    ]


def _turns(talk: Sequence[Message]) -> Conversation:
    return tuple(Turn(role=message.role, text=message.content) for message in talk)
