"""How good a router is: quality against the share of calls that go to the strong (large) model.

The measures are those of RouteLLM (Ong et al., 2024, arXiv:2406.18665, section 2.3), on the whole curve
rather than on ten thresholds of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingCurve:
    """`quality[i]` is the mean quality of the answers when the share `shares[i]` of the prompts, those of
    highest score, goes to the strong model. `shares` rises from 0 to 1. Both float64 (K,); prompts of equal
    score are one step, along which quality is linear: the mean over every order of breaking the tie."""

    shares: FloatArray
    quality: FloatArray

    @property
    def weak(self) -> float:
        """Quality when all goes to the weak model."""
        return float(self.quality[0])

    @property
    def strong(self) -> float:
        """Quality when all goes to the strong model."""
        return float(self.quality[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingMetrics:
    """`apgr`: average performance gap recovered; random routing has .5, and more than 1 is possible where the
    weak model is sometimes the better one. `cpt50`, `cpt80`: least share of strong calls, in [0, 1], that
    recovers 50 and 80 % of the gap."""

    apgr: float
    cpt50: float
    cpt80: float


def routing_curve(scores: npt.ArrayLike, weak: npt.ArrayLike, strong: npt.ArrayLike) -> RoutingCurve:
    """`scores` (N,): expected gain of the strong model, any scale. `weak`, `strong` (N,): quality of each
    model's answer, right = 1. Raises ValueError when they differ in length, are empty or not finite."""
    score, low, high = (np.asarray(values, dtype=np.float64).ravel() for values in (scores, weak, strong))
    if not score.size or score.size != low.size or score.size != high.size:
        raise ValueError("scores, weak and strong must be of one length, and not empty")
    if not all(np.isfinite(values).all() for values in (score, low, high)):
        raise ValueError("scores, weak and strong must be finite numbers")
    order = np.argsort(-score, kind="stable")
    gain = np.concatenate([[0.0], np.cumsum((high - low)[order])])
    last_of_tie = np.flatnonzero(np.diff(score[order]) != 0) + 1
    steps = np.concatenate([[0], last_of_tie, [score.size]])
    return RoutingCurve(shares=steps / score.size, quality=low.mean() + gain[steps] / score.size)


def average_gap_recovered(curve: RoutingCurve) -> float:
    """(area under quality against share − weak) / (strong − weak). Raises ValueError without a gap."""
    gap = _gap(curve)
    widths = np.diff(curve.shares)
    area = float(np.sum(widths * (curve.quality[1:] + curve.quality[:-1]) / 2))
    return (area - curve.weak) / gap


def call_performance_threshold(curve: RoutingCurve, fraction: float) -> float:
    """Least share of strong calls at which `fraction` of the gap is recovered: the first crossing, linear
    between the points of the curve. Raises ValueError without a gap, or for a fraction outside [0, 1]."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must lie in [0, 1], not {fraction}")
    recovered = (curve.quality - curve.weak) / _gap(curve)
    reached = np.flatnonzero(recovered >= fraction)
    if not reached.size:  # only by rounding at the last point, where all of the gap is recovered
        return 1.0
    after = int(reached[0])
    if after == 0:
        return 0.0
    before = after - 1
    part = (fraction - recovered[before]) / (recovered[after] - recovered[before])
    return float(curve.shares[before] + part * (curve.shares[after] - curve.shares[before]))


def routing_metrics(scores: npt.ArrayLike, weak: npt.ArrayLike, strong: npt.ArrayLike) -> RoutingMetrics:
    """All three measures. Raises ValueError as `routing_curve` does, and when strong is no better."""
    curve = routing_curve(scores, weak, strong)
    return RoutingMetrics(
        apgr=average_gap_recovered(curve),
        cpt50=call_performance_threshold(curve, 0.5),
        cpt80=call_performance_threshold(curve, 0.8),
    )


def _gap(curve: RoutingCurve) -> float:
    gap = curve.strong - curve.weak
    if gap <= 0:
        raise ValueError(
            f"the strong model must be the better one: quality {curve.strong:.4f} against {curve.weak:.4f}"
        )
    return gap
