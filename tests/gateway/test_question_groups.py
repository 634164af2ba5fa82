"""Groups written for training: read, refused by line, parted by group; and those that come with the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.question_groups import read_conversations, read_questions
from gateway.verifier_corpus import written_part, written_parts
from gateway.verifier_data import VerifierDataError

FOLDER = Path(__file__).resolve().parents[2] / "gateway" / "questions"
QUESTIONS = """\
Q How do I turn it on?
= switch it on
= how is it turned on
!opposite How do I turn it off?

Q How far is it?
= distance?
!unit How many miles is it?
"""
CONVERSATIONS = """\
#base
U I have a cat.
A Nice.
U what does it eat?
#same reworded
U My pet is a cat.
A Nice!
U what does it eat?
#diff referent
U I have a dog.
A Nice.
U what does it eat?
"""


def written(tmp_path: Path, text: str) -> list[Path]:
    path = tmp_path / "some.txt"
    path.write_text(text, "utf-8")
    return [path]


def test_groups_of_questions_are_read(tmp_path: Path) -> None:
    first, second = read_questions(written(tmp_path, QUESTIONS))
    assert (first.name, second.name) == ("some.txt:1", "some.txt:6")
    assert first.question == "How do I turn it on?"
    assert first.same == ("switch it on", "how is it turned on")
    assert [(trap.kind, trap.text) for trap in first.traps] == [("opposite", "How do I turn it off?")]


def test_groups_of_conversations_are_read(tmp_path: Path) -> None:
    (group,) = read_conversations(written(tmp_path, CONVERSATIONS))
    assert [message.role for message in group.base] == ["user", "assistant", "user"]
    assert [kind for kind, _ in group.same] == ["reworded"]
    assert [(kind, talk[0].content) for kind, talk in group.traps] == [("referent", "I have a dog.")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("= no question", "some.txt:1: a group needs"),
        ("Q one\nQ two\n= x", "some.txt:1: 'Q two': expected one"),
        ("Q one\n= x\n! no kind", "'! no kind': expected one"),
        ("\n\nQ one", "some.txt:3: a group needs a `Q ` line and a `= ` line"),
    ],
)
def test_a_group_that_is_none_is_refused_by_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(VerifierDataError, match=said):
        read_questions(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("U hello", "'U hello': expected `#base`"),
        ("#base\nU a\nA b", "#base : a conversation ends with a `U ` line"),
        ("#other\nU a", "#other: expected #base, #same or #diff"),
        ("#same x\nU a", "0 bases: a group has one"),
    ],
)
def test_a_conversation_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(VerifierDataError, match=said):
        read_conversations(written(tmp_path, text))


def test_pairs_of_a_group_stay_in_one_part_and_traps_are_not_compared_with_each_other(tmp_path: Path) -> None:
    groups = read_questions(written(tmp_path, QUESTIONS))
    parts = written_parts(groups, 0)
    for group in groups:
        pairs = [pair for pair in parts[written_part(group, 0)] if pair.source == "written"]
        same = {group.question, *group.same}
        traps = {trap.text for trap in group.traps}
        own = [pair for pair in pairs if pair.a in same]
        assert len([pair for pair in own if pair.same]) == len(same) * (len(same) - 1) // 2
        assert all((pair.b in traps) != pair.same for pair in own)
        assert not any(pair.a in traps for pair in pairs)


def test_the_groups_that_come_with_the_code_are_sound() -> None:
    groups = read_questions([path for path in FOLDER.glob("*.txt") if not path.name.startswith("conv-")])
    assert len(groups) > 400
    for group in groups:
        texts = [group.question, *group.same, *(trap.text for trap in group.traps)]
        assert len({text.casefold() for text in texts}) >= len(texts) - 1, group.name
        assert group.traps, group.name
    talks = read_conversations(sorted(FOLDER.glob("conv-*.txt")))
    assert all(group.same and group.traps for group in talks)
