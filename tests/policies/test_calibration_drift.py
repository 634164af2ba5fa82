"""Whether outcomes that contradict their risks are noticed, and forgiven when they agree again."""

from __future__ import annotations

import numpy as np
import pytest

from policies.calibration_drift import CalibrationDrift


def fed(drift: CalibrationDrift, truth: float, outcomes: int, risk: float = 0.05, seed: int = 0) -> int:
    """Until the alarm: how many outcomes it took. `outcomes` if there was none."""
    random = np.random.default_rng(seed)
    for at, wrong in enumerate(random.random(outcomes) < truth):
        drift.learn(risk, right=not wrong)
        if drift.notice():
            return at + 1
    return outcomes


def test_it_begins_strict_and_relaxes_as_outcomes_agree() -> None:
    drift = CalibrationDrift()
    assert drift.factor == pytest.approx(1.5)
    fed(drift, truth=0.03, outcomes=1000)
    assert drift.factor < 1.1
    assert drift.notice() == ""


def test_a_wrong_answer_tightens_by_how_unlikely_it_was() -> None:
    drift = CalibrationDrift()
    drift.learn(0.1, right=False)
    assert drift.factor == pytest.approx((5 + 5**0.5) / 4.1)


def test_gross_errors_are_noticed_within_eight_outcomes() -> None:
    drift = CalibrationDrift()
    assert fed(drift, truth=1.0, outcomes=50) == 8
    assert drift.factor > 3
    assert drift.notice().startswith("checked answers were wrong 7.9 times where 0.4 were expected")


def test_twice_the_risk_is_noticed_in_some_hundred_outcomes() -> None:
    taken = [fed(CalibrationDrift(), truth=0.1, outcomes=2000, seed=seed) for seed in range(20)]
    assert np.median(taken) < 500


def test_false_alarms_are_rare() -> None:
    """At least 200 outcomes pass on average where the risks are exact; they are upper bounds."""
    taken = [fed(CalibrationDrift(), truth=0.05, outcomes=3000, seed=seed) for seed in range(20)]
    assert np.mean(taken) > 1000


def test_the_alarm_ends_when_outcomes_agree() -> None:
    drift = CalibrationDrift()
    fed(drift, truth=1.0, outcomes=8)
    for _ in range(99):
        drift.learn(0.05, right=True)
    assert drift.notice() == ""
    fed(drift, truth=0.02, outcomes=2000)
    assert drift.factor < 1.1


def test_a_risk_of_half_and_more_can_be_exceeded_too() -> None:
    drift = CalibrationDrift()
    for _ in range(50):
        drift.learn(0.6, right=False)
    assert drift.notice()
