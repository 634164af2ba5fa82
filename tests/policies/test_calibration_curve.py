"""The calibration curve: counted right, monotone, above the truth as often as it says, and able to learn."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.calibration_curve import STEPS, CalibrationCurve, Counts, count, step, upper_bound

outcomes = st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60)


def counts(**steps: tuple[float, float]) -> Counts:
    """`s3=(2, 8)`: 2 wrong and 8 right in step 3."""
    wrong, right = [0.0] * STEPS, [0.0] * STEPS
    for name, (w, r) in steps.items():
        wrong[int(name[1:])], right[int(name[1:])] = w, r
    return Counts(wrong=tuple(wrong), right=tuple(right))


@pytest.mark.parametrize(
    ("probability", "expected"),
    [(0.0, 0), (0.29, 0), (0.3, 1), (0.49, 1), (0.5, 2), (0.75, 4), (0.9375, 8), (1 - 2**-12, 24), (1.0, 24)],
)
def test_a_step_is_half_an_octave_of_doubt(probability: float, expected: int) -> None:
    assert step(probability) == expected


@pytest.mark.parametrize("nonsense", [-0.5, math.nan, -math.inf])
def test_what_is_no_probability_is_the_greatest_doubt(nonsense: float) -> None:
    assert step(nonsense) == 0
    assert CalibrationCurve().risk(nonsense) == CalibrationCurve().risk(0.0)


def test_counting() -> None:
    counted = count([(0.5, True), (0.5, False), (0.5, False), (1.0, True)])
    assert (counted.wrong[2], counted.right[2]) == (2, 1)
    assert (counted.wrong[24], counted.right[24]) == (0, 1)
    assert sum(counted.wrong) + sum(counted.right) == 4


def test_the_upper_bound_is_wilsons() -> None:
    wrong, total = np.array([0.0, 5, 0, 10, 2e8]), np.array([100.0, 50, 0, 10, 1e9])
    found = upper_bound(wrong, total, 1.96)
    assert found[0] == pytest.approx(1.96**2 / (100 + 1.96**2))
    assert found[1] == pytest.approx(0.2136, abs=1e-4)  # 5 of 50: .0435 to .2136 at 95 %
    assert found[2] == 1.0
    assert found[3] == pytest.approx(1.0)
    assert found[4] == pytest.approx(0.2, abs=1e-4)


@pytest.mark.parametrize("bad", [(1.0,) * (STEPS - 1), (-1.0,) * STEPS, (math.nan,) * STEPS])
def test_counts_that_cannot_be(bad: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="calibration counts: wrong"):
        Counts(wrong=bad, right=(0.0,) * STEPS)


@given(outcomes, st.lists(st.floats(0, 1), min_size=2))
def test_the_surer_the_verifier_the_smaller_the_risk(
    seen: list[tuple[float, bool]], probabilities: list[float]
) -> None:
    curve = CalibrationCurve(count(seen))
    risks = [curve.risk(probability) for probability in sorted(probabilities)]
    assert all(a >= b - 1e-12 for a, b in pairwise(risks))
    assert all(0 < risk <= 1 for risk in risks)


def test_many_good_outcomes_of_sure_steps_say_nothing_of_a_doubtful_one() -> None:
    few = CalibrationCurve(counts(s4=(0, 10)), z=1.0)
    assert CalibrationCurve(counts(s4=(0, 10), s20=(0, 1000)), z=1.0).risk(0.75) == few.risk(0.75)


def test_few_outcomes_of_doubtful_steps_speak_for_surer_ones() -> None:
    alone = CalibrationCurve(counts(s20=(0, 10))).risk(1.0)
    assert CalibrationCurve(counts(s18=(0, 40), s20=(0, 10))).risk(1.0) < alone


def test_nothing_known_is_the_greatest_risk() -> None:
    curve = CalibrationCurve(count([]))
    assert curve.risk(0.0) == curve.risk(1.0) == 1.0


def test_between_the_middles_of_steps_it_is_straight() -> None:
    curve = CalibrationCurve(counts(s8=(100, 300), s9=(50, 350)), z=0.0)

    def at(steps: float) -> float:
        return curve.risk(1 - 2 ** (-steps / 2))

    assert at(8.5) == pytest.approx(100 / 400)
    assert at(9.5) == pytest.approx(50 / 400)
    assert at(9.0) == pytest.approx(75 / 400)
    assert at(30) == pytest.approx(50 / 400)


def test_shipped_counts_are_believed_up_to_a_number_of_outcomes() -> None:
    curve = CalibrationCurve(counts(s8=(10_000, 30_000)), prior=400)
    assert (curve.counts.wrong[8], curve.counts.right[8]) == pytest.approx((100, 300))


def test_without_counts_little_of_the_verifiers_word_is_believed() -> None:
    assert CalibrationCurve().risk(1.0) > 0.03
    assert CalibrationCurve(z=0.0).risk(1 - 2**-2.25) == pytest.approx(2**-2.25, rel=0.05)


def test_what_was_seen_last_counts_most() -> None:
    curve = CalibrationCurve(counts(s8=(0, 500)), memory=100)
    before = curve.risk(0.95)
    for _ in range(100):
        curve.learn(0.95, right=False)
    assert curve.counts.wrong[8] == pytest.approx(100 * (1 - 0.99**100))
    assert curve.counts.right[8] == pytest.approx(500 * 0.99**100)
    assert before < 0.01
    assert curve.risk(0.95) > 0.2
    for _ in range(1000):
        curve.learn(0.95, right=True)
    assert curve.risk(0.95) < 0.05


def test_it_lies_above_the_truth_as_often_as_z_says() -> None:
    random = np.random.default_rng(0)
    truth, above = 0.05, 0
    for _ in range(200):
        wrong = float(random.binomial(400, truth))
        curve = CalibrationCurve(counts(s8=(wrong, 400 - wrong)), z=1.28)
        above += curve.risk(1 - 2**-4.25) >= truth
    assert 0.85 <= above / 200 <= 0.95
