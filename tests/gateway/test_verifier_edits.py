"""Edits of questions: each changes what it is named after, and nothing where there is nothing to change."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.verifier_edits import (
    CHANGES,
    change_number,
    direct,
    names_in,
    negate,
    oppose,
    rename,
    reword,
    swap,
)


def outcomes(edit: object, text: str, **more: object) -> set[str | None]:
    """What an edit makes of a text, over many draws."""
    assert callable(edit)
    return {edit(text, np.random.default_rng(seed), **more) for seed in range(60)}


def test_there_are_five_kinds_of_change() -> None:
    assert sorted(CHANGES) == ["direction", "name", "negation", "number", "opposite"]


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("Is 20 mg too much?", "Is ", " mg too much?"),
        ("Which three books should I read?", "Which ", " books should I read?"),
        ("세 명이 먹을 양이 얼마야?", "", " 명이 먹을 양이 얼마야?"),
    ],
)
def test_only_the_number_changes(text: str, before: str, after: str) -> None:
    made = outcomes(change_number, text) - {None}
    assert len(made) > 2
    assert text not in made
    assert all(edited and edited.startswith(before) and edited.endswith(after) for edited in made)


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("Why don't plants sleep?", "Why do plants sleep?"),
        ("Can I travel without a visa?", "Can I travel with a visa?"),
        ("Should I eat before a run?", "Should I not eat before a run?"),
        ("How to wash wool?", "How to not wash wool?"),
        ("회원 가입을 할 수 있어?", "회원 가입을 할 수 없어?"),
        ("창문 열지 마", "창문 열어"),
    ],
)
def test_a_negation_comes_or_goes(text: str, edited: str) -> None:
    made = outcomes(negate, text)
    assert edited in made or edited.replace("to not", "not to") in made
    assert text not in made


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("How do I enable alerts?", "How do I disable alerts?"),
        ("What are the advantages of tea?", None),  # whole words only
        ("비싼 차 추천해줘", "저렴한 차 추천해줘"),
    ],
)
def test_a_word_becomes_its_opposite(text: str, edited: str | None) -> None:
    assert outcomes(oppose, text) == {edited}


def test_a_name_becomes_another_of_its_sort() -> None:
    made = outcomes(rename, "Where can I eat in Paris?")
    assert "Where can I eat in Berlin?" in made
    assert len(made) > 5
    assert all(edited and edited.startswith("Where can I eat in ") for edited in made)
    assert "Where can I eat in Paris?" not in made
    assert "거실 온도 알려줘" not in outcomes(rename, "거실 온도 알려줘")


def test_a_name_of_no_known_sort_becomes_one_of_the_given() -> None:
    names = names_in(["Who is Ada Lovelace?", "Is Ada here?", "Was it Turing?"])
    assert names == ["Ada", "Lovelace", "Turing"]
    made = outcomes(rename, "What did Kepler find?", names=names)
    assert made == {f"What did {name} find?" for name in names}
    assert outcomes(rename, "What did he find?", names=names) == {None}


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("Trains from Rome to Milan?", "Trains from Milan to Rome?"),
        ("How do I convert PDF to Word?", "How do I convert Word to PDF?"),
        ("부산에서 서울까지 얼마나 걸려?", "서울에서 부산까지 얼마나 걸려?"),
        ("What is it like to be tall?", None),
        ("How tall is he?", None),
    ],
)
def test_two_sides_change_places(text: str, edited: str | None) -> None:
    assert outcomes(swap, text) == {edited}


@pytest.mark.parametrize("text", ["How much is it?", "얼마나 걸려?"])
def test_a_direction_can_be_added_and_swapped(text: str) -> None:
    rng = np.random.default_rng(0)
    directed = [direct(text, rng) for _ in range(40)]
    assert len(set(directed)) > 10
    assert all(text.rstrip("?") in made for made in directed)
    swapped = [swap(made, rng) for made in directed]
    assert all(
        edit and edit != made and sorted(edit) == sorted(made)
        for made, edit in zip(directed, swapped, strict=True)
    )


@pytest.mark.parametrize("text", ["How can I buy a big car?", "거실 불은 언제 켜져?"])
def test_a_harmless_edit_keeps_the_question(text: str) -> None:
    made = outcomes(reword, text)
    assert len(made) > 4
    assert text not in made
    assert None not in made


@pytest.mark.parametrize("edit", [*CHANGES.values(), reword])
def test_the_same_draw_makes_the_same_edit(edit: object) -> None:
    assert callable(edit)
    text = "Should I fly from Paris to Tokyo in 3 hot days?"
    assert edit(text, np.random.default_rng(7)) == edit(text, np.random.default_rng(7)) != text
