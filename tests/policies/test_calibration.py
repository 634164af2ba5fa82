"""Thresholds: the share asked for is the share that goes to the large model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.calibration import ThresholdRouter, choose, threshold_for_strong_share


def share_above(scores: list[float], threshold: float) -> float:
    return sum(score >= threshold for score in scores) / len(scores)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.3, 0.5, 0.77, 0.99])
def test_distinct_scores_give_the_share_to_one_prompt(share: float) -> None:
    scores = list(np.random.default_rng(7).random(1_000))
    assert share_above(scores, threshold_for_strong_share(scores, share)) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize(("share", "tier"), [(0, "small"), (1, "large"), (0.0, "small"), (1.0, "large")])
@pytest.mark.parametrize("score", [0.0, 0.5, 1.0, math.inf, -math.inf, math.nan])
def test_none_and_all_hold_for_every_score(share: float, tier: str, score: float) -> None:
    router = ThresholdRouter.for_strong_share([0.2, 0.4], share)
    choice = router.choose(score)
    assert choice.tier == tier
    assert choice.reason == f"strong_share {share:g}: every prompt goes to the {tier} model"


def test_ties_go_one_way_and_the_nearest_share_is_taken() -> None:
    scores = [0.9, 0.5, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1]
    for wanted, had in (
        (0.05, 0.0),
        (0.1, 0.1),
        (0.2, 0.1),
        (0.29, 0.1),
        (0.31, 0.5),
        (0.7, 0.5),
        (0.8, 1.0),
    ):
        assert share_above(scores, threshold_for_strong_share(scores, wanted)) == had


def test_between_two_equally_near_shares_the_cheaper_is_taken() -> None:
    scores = [0.6, 0.6, 0.2, 0.2]
    assert share_above(scores, threshold_for_strong_share(scores, 0.25)) == 0
    assert share_above(scores, threshold_for_strong_share(scores, 0.75)) == 0.5


def test_the_threshold_keeps_its_distance_from_scores() -> None:
    assert threshold_for_strong_share([0.2, 0.4, 0.6, 0.8], 0.5) == pytest.approx(0.5)


def test_neighbouring_floats_are_still_told_apart() -> None:
    low = 0.5
    high = math.nextafter(low, 1)
    threshold = threshold_for_strong_share([low, high], 0.5)
    assert low < threshold <= high


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0, 1, exclude_min=True, exclude_max=True)
)
def test_no_other_threshold_comes_nearer(scores: list[float], share: float) -> None:
    off = abs(share_above(scores, threshold_for_strong_share(scores, share)) - share)
    others = [share_above(scores, cut) for cut in [*scores, math.inf]]
    assert off <= min(abs(other - share) for other in others) + 1e-12


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="strong_share must lie in"):
        threshold_for_strong_share([0.5], share)


@pytest.mark.parametrize(("scores", "words"), [([], "no calibration scores"), ([math.nan], "finite")])
def test_scores_that_calibrate_nothing_are_refused(scores: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        threshold_for_strong_share(scores, 0.5)


def test_the_reason_names_score_threshold_and_share() -> None:
    router = ThresholdRouter(threshold=0.55, strong_share=0.3)
    large, small = router.choose(0.62), router.choose(0.5)
    assert (large.tier, large.score) == ("large", 0.62)
    assert large.reason == "score 0.620 >= threshold 0.550 (strong_share 0.3)"
    assert (small.tier, small.score) == ("small", 0.5)
    assert small.reason == "score 0.500 < threshold 0.550 (strong_share 0.3)"


def test_a_threshold_given_as_a_number_names_no_share() -> None:
    assert choose(0.5, 0.5).reason == "score 0.500 >= threshold 0.500"
    assert choose(0.4, 0.5).tier == "small"
    assert choose(0.4, math.inf).reason == "every prompt goes to the small model"
    assert choose(math.nan, 0.5).tier == "large"
