"""What an entry's own outcomes do to its risk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.entry_evidence import PER_ENTRY, EntryEvidence

shares = st.floats(0, 1)


def learnt(*outcomes: tuple[float, bool]) -> EntryEvidence:
    evidence = EntryEvidence(strength=4.0)
    for probability, right in outcomes:
        evidence.learn(1, probability, right=right)
    return evidence


def test_a_new_entry_has_the_risk_that_all_share() -> None:
    assert learnt().risk(1, 0.9, 0.07) == 0.07
    assert learnt((0.9, False)).risk(2, 0.9, 0.07) == 0.07


def test_one_wrong_answer_weighs_more_than_many_right_ones() -> None:
    assert learnt((0.9, False)).risk(1, 0.9, 0.01) == pytest.approx((4 * 0.01 + 1) / 5)
    assert learnt((0.9, True)).risk(1, 0.9, 0.01) == pytest.approx(4 * 0.01 / 4.25)
    assert learnt((0.9, False), *[(0.9, True)] * 7).risk(1, 0.9, 0.01) > 0.1


def test_an_outcome_speaks_in_its_direction_only() -> None:
    wrong = learnt((0.9, False))
    assert wrong.risk(1, 0.8, 0.02) > 0.2
    assert wrong.risk(1, 0.95, 0.02) == 0.02
    right = learnt((0.9, True))
    assert right.risk(1, 0.95, 0.02) < 0.02
    assert right.risk(1, 0.8, 0.02) == 0.02


def test_the_latest_outcomes_count() -> None:
    evidence = learnt((0.9, False), *[(0.9, True)] * PER_ENTRY)
    assert evidence.risk(1, 0.9, 0.02) == pytest.approx(4 * 0.02 / (4 + PER_ENTRY / 4))


@given(st.lists(st.tuples(shares, st.booleans()), max_size=12), shares, shares)
def test_it_stays_a_risk(outcomes: list[tuple[float, bool]], probability: float, shared: float) -> None:
    assert 0 <= learnt(*outcomes).risk(1, probability, shared) <= 1


def test_the_entries_looked_at_last_are_remembered() -> None:
    evidence = EntryEvidence(max_entries=2)
    evidence.learn(1, 0.9, right=False)
    evidence.learn(2, 0.9, right=False)
    evidence.risk(1, 0.9, 0.01)
    evidence.learn(3, 0.9, right=False)
    assert len(evidence) == 2
    assert evidence.risk(2, 0.9, 0.01) == 0.01
    assert evidence.risk(1, 0.9, 0.01) > 0.1


def test_entries_that_are_gone() -> None:
    evidence = learnt((0.9, False))
    evidence.forget([1, 7])
    assert len(evidence) == 0


def test_what_was_learnt_outlives_a_restart() -> None:
    before, after = learnt((0.9, False), (0.95, True)), EntryEvidence()
    after.restore(before.state())
    assert after.risk(1, 0.9, 0.02) == before.risk(1, 0.9, 0.02)
    smaller = EntryEvidence(max_entries=1)
    smaller.restore({1: ((0.9, False),), 2: ((0.9, False),)})
    assert list(smaller.state()) == [2]
