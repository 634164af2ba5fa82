"""Whether two answers say the same: what words settle, what vectors settle, and what stays open."""

from __future__ import annotations

import pytest

from policies.answer_comparison import DIFFERENT, SAME, compare

LONG = "The refund is paid back to the card that you used within five working days after we have the parcel."
OTHER = (
    "Within five working days after your parcel has reached us you see the money on the card you paid with."
)


@pytest.mark.parametrize(
    ("fresh", "kept", "same"),
    [
        ("Paris.", "  **paris**", True),
        ("It is Paris.", "Paris", True),
        ("Paris", "Parison is another word", False),
        ("Paris", "Lyon", False),
        ("Yes, you can.", "No, you can't.", False),
        ("4", "14", False),
        ("", "Paris", False),
        ("", "...", True),
        (LONG, LONG.upper(), True),
    ],
)
def test_words_settle_it(fresh: str, kept: str, same: bool) -> None:
    for cosine in (None, 0.5, 0.99):
        assert compare(fresh, kept, cosine) is same
        assert compare(kept, fresh, cosine) is same


@pytest.mark.parametrize(
    ("cosine", "same"), [(None, None), (DIFFERENT - 0.01, False), (0.9, None), (SAME, True)]
)
def test_of_long_answers_vectors_settle_it_where_they_are_clear(
    cosine: float | None, same: bool | None
) -> None:
    assert compare(LONG, OTHER, cosine) is same


@pytest.mark.parametrize(
    "changed", [LONG.replace("five", "3"), LONG.replace("is paid", "is not paid"), LONG + " 2 fees apply."]
)
def test_a_number_or_a_negation_is_nothing_that_vectors_settle(changed: str) -> None:
    assert compare(LONG, changed, 0.99) is None
