"""Groups of questions written for training: what says the same, and what looks alike and does not.

A file holds groups with a blank line between them. In a group of questions `Q ` starts the question, `= `
what one answer serves too, `!kind ` a trap. In a group of conversations `#base`, `#same kind` and `#diff
kind` start one, whose messages follow: `U ` the user's, `A ` the assistant's, the last one the user's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gateway.verifier_data import VerifierDataError

Role = Literal["user", "assistant"]
_ROLES: dict[str, Role] = {"U ": "user", "A ": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Worded:
    """A text of a group: `kind` is empty for what says the same."""

    text: str
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionGroup:
    """`name` says where it was read, `file:line`."""

    name: str
    question: str
    same: tuple[str, ...]
    traps: tuple[Worded, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    role: Role
    content: str


Conversation = tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationGroup:
    """`same` and `traps` hold (kind, conversation)."""

    name: str
    base: Conversation
    same: tuple[tuple[str, Conversation], ...]
    traps: tuple[tuple[str, Conversation], ...]


def read_questions(paths: Sequence[Path]) -> list[QuestionGroup]:
    """Raises VerifierDataError, OSError."""
    return [_questions(name, lines) for path in paths for name, lines in _blocks(path)]


def read_conversations(paths: Sequence[Path]) -> list[ConversationGroup]:
    """Raises VerifierDataError, OSError."""
    return [_conversations(name, lines) for path in paths for name, lines in _blocks(path)]


def _blocks(path: Path) -> Iterator[tuple[str, list[str]]]:
    lines: list[str] = []
    first = 1
    for number, line in enumerate([*path.read_text("utf-8").splitlines(), ""], 1):
        if line.strip():
            lines.append(line.strip())
            continue
        if lines:
            yield f"{path.name}:{first}", lines
        lines, first = [], number + 1


def _questions(name: str, lines: Sequence[str]) -> QuestionGroup:
    question, same, traps = "", [], []
    for line in lines:
        mark, _, text = line.partition(" ")
        if mark == "Q" and not question:
            question = text
        elif mark == "=":
            same.append(text)
        elif mark.startswith("!") and len(mark) > 1:
            traps.append(Worded(text=text, kind=mark[1:]))
        else:
            raise VerifierDataError(f"{name}: {line[:40]!r}: expected one `Q `, then `= ` and `!kind ` lines")
    if not question or not same:
        raise VerifierDataError(f"{name}: a group needs a `Q ` line and a `= ` line")
    return QuestionGroup(name=name, question=question, same=tuple(same), traps=tuple(traps))


def _conversations(name: str, lines: Sequence[str]) -> ConversationGroup:
    found: list[tuple[str, str, list[Message]]] = []
    for line in lines:
        if line.startswith("#"):
            mark, _, kind = line[1:].partition(" ")
            found.append((mark, kind, []))
        elif line[:2] in _ROLES and found:
            found[-1][2].append(Message(role=_ROLES[line[:2]], content=line[2:]))
        else:
            raise VerifierDataError(
                f"{name}: {line[:40]!r}: expected `#base`, `#same`, `#diff`, `U ` or `A `"
            )
    parted: dict[str, list[tuple[str, Conversation]]] = {"base": [], "same": [], "diff": []}
    for mark, kind, messages in found:
        if mark not in parted:
            raise VerifierDataError(f"{name}: #{mark}: expected #base, #same or #diff")
        if not messages or messages[-1].role != "user":
            raise VerifierDataError(f"{name}: #{mark} {kind}: a conversation ends with a `U ` line")
        parted[mark].append((kind, tuple(messages)))
    if len(parted["base"]) != 1:
        raise VerifierDataError(f"{name}: {len(parted['base'])} bases: a group has one")
    return ConversationGroup(
        name=name, base=parted["base"][0][1], same=tuple(parted["same"]), traps=tuple(parted["diff"])
    )
