"""The measures, on curves worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.routing_eval import (
    average_gap_recovered,
    call_performance_threshold,
    routing_curve,
    routing_metrics,
)


def test_a_curve_worked_out_by_hand() -> None:
    # weak right on 1 of 4, strong on 3 of 4; best first, a loss last
    curve = routing_curve([0.9, 0.7, 0.5, 0.1], [0, 0, 0, 1], [1, 1, 1, 0])
    assert curve.shares.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert curve.quality.tolist() == [0.25, 0.5, 0.75, 1.0, 0.75]
    assert (curve.weak, curve.strong) == (0.25, 0.75)
    # trapezoids: (.375 + .625 + .875 + .875) / 4 = .6875; (.6875 - .25) / .5 = .875
    assert average_gap_recovered(curve) == pytest.approx(0.875)
    assert call_performance_threshold(curve, 0.5) == pytest.approx(0.25)
    assert call_performance_threshold(curve, 0.8) == pytest.approx(0.4)  # .65 lies at .25 + .25 * .15 / .25
    assert call_performance_threshold(curve, 1) == pytest.approx(0.5)
    assert call_performance_threshold(curve, 0) == 0


def test_the_oracle_recovers_all_where_no_answer_gets_worse() -> None:
    weak, strong = np.array([1, 1, 1, 0, 0]), np.ones(5)
    metrics = routing_metrics(strong - weak, weak, strong)
    assert metrics.apgr == pytest.approx(0.8)  # the ramp to 40 % of the calls costs a fifth
    assert metrics.cpt50 == pytest.approx(0.2)
    assert metrics.cpt80 == pytest.approx(0.32)


def test_the_oracle_beats_the_strong_model_where_the_weak_one_is_sometimes_better() -> None:
    weak, strong = np.array([1, 0, 0, 0]), np.array([0, 1, 1, 0])
    assert routing_metrics(strong - weak, weak, strong).apgr > 1


def test_scores_that_are_all_equal_are_the_diagonal() -> None:
    metrics = routing_metrics(np.zeros(7), [0, 0, 0, 1, 1, 0, 1], [1, 1, 1, 1, 0, 1, 1])
    assert (metrics.apgr, metrics.cpt50, metrics.cpt80) == pytest.approx((0.5, 0.5, 0.8))


def test_random_scores_come_near_the_diagonal() -> None:
    rng = np.random.default_rng(3)
    weak = (rng.random(20_000) < 0.4).astype(float)
    strong = (rng.random(20_000) < 0.8).astype(float)
    metrics = routing_metrics(rng.random(20_000), weak, strong)
    assert metrics.apgr == pytest.approx(0.5, abs=0.02)
    assert metrics.cpt50 == pytest.approx(0.5, abs=0.03)
    assert metrics.cpt80 == pytest.approx(0.8, abs=0.03)


def test_the_worst_order_is_the_best_one_mirrored() -> None:
    weak, strong = np.array([1, 0, 0, 1, 0]), np.array([1, 1, 1, 0, 1])
    best = routing_metrics(strong - weak, weak, strong).apgr
    worst = routing_metrics(weak - strong, weak, strong).apgr
    assert best + worst == pytest.approx(1)


def test_the_order_of_equal_scores_does_not_matter() -> None:
    scores = np.array([0.8, 0.8, 0.8, 0.2])
    weak, strong = np.array([0.0, 0.0, 0.0, 1.0]), np.array([1.0, 0.0, 1.0, 1.0])
    for order in ([0, 1, 2, 3], [1, 2, 0, 3], [3, 2, 1, 0]):
        assert routing_metrics(scores[order], weak[order], strong[order]) == routing_metrics(
            scores, weak, strong
        )


def test_qualities_need_not_be_right_or_wrong() -> None:
    curve = routing_curve([2, 1], [0.2, 0.4], [0.6, 0.5])
    assert curve.quality == pytest.approx([0.3, 0.5, 0.55])


@given(st.lists(st.tuples(st.floats(-5, 5), st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_every_curve_starts_weak_ends_strong_and_no_share_is_outside_0_to_1(
    rows: list[tuple[float, bool, bool]],
) -> None:
    scores, weak, strong = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    curve = routing_curve(scores, weak, strong)
    assert (curve.weak, curve.strong) == pytest.approx((weak.mean(), strong.mean()))
    assert (np.diff(curve.shares) > 0).all()
    if strong.mean() > weak.mean():
        metrics = routing_metrics(scores, weak, strong)
        assert 0 <= metrics.cpt50 <= metrics.cpt80 <= 1


@pytest.mark.parametrize(
    ("scores", "weak", "strong", "words"),
    [
        ([], [], [], "one length, and not empty"),
        ([1], [0, 1], [1, 1], "one length"),
        ([float("nan")], [0], [1], "finite"),
        ([1, 2], [1, 1], [1, 0], "strong model must be the better one"),
        ([1, 2], [1, 0], [1, 0], "strong model must be the better one"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    scores: list[float], weak: list[float], strong: list[float], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        routing_metrics(scores, weak, strong)


def test_a_fraction_outside_0_to_1_is_refused() -> None:
    with pytest.raises(ValueError, match="fraction must lie in"):
        call_performance_threshold(routing_curve([1, 0], [0, 0], [1, 1]), 1.5)
