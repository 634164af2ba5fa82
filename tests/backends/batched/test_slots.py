from __future__ import annotations

from backends.batched.engines.slots import Slots


def test_neighbours_first() -> None:
    slots = Slots(4)
    assert [slots.take(f"{at} question") for at in range(3)] == [0, 1, 2]
    slots.release(1)
    assert slots.take("another") == 1


def test_none_when_all_are_taken() -> None:
    slots = Slots(1)
    slots.take("a")
    assert slots.take("b") is None
    slots.release(None)
    assert slots.take("b") is None


def test_the_slot_that_has_read_most_of_the_prompt() -> None:
    slots = Slots(3)
    turn = "a turn of a long conversation; " * 10
    for prompt in ("alone", turn, turn * 2):
        slots.take(prompt)
    for slot in range(3):
        slots.release(slot)
    assert slots.take(turn * 3) == 2


def test_a_short_common_beginning_is_no_reason_to_scatter() -> None:
    slots = Slots(2)
    slots.take("one")
    slots.take("You are helpful. What is rain?")
    slots.release(0)
    slots.release(1)
    assert slots.take("You are helpful. What is snow?") == 0
