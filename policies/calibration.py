"""Where to cut the score: the threshold that sends a wanted share of the traffic to the large model."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policies.types import RouteChoice


def threshold_for_strong_share(scores: npt.ArrayLike, strong_share: float) -> float:
    """The threshold t for which the share of `scores` (N,) with score >= t is nearest to `strong_share`.

    Equal scores go the same way, so with ties some shares cannot be had: the nearest that can is taken,
    the smaller (cheaper) of two equally near. t lies half way between two neighbouring scores, so that
    rounding does not move a prompt. A share of 0 gives inf and 1 gives -inf, whatever the scores.
    Raises ValueError for a share outside [0, 1], and for scores that are empty or not finite.
    """
    if not 0 <= strong_share <= 1:
        raise ValueError(f"strong_share must lie in [0, 1], not {strong_share}")
    if strong_share == 0:
        return math.inf
    if strong_share == 1:
        return -math.inf
    sample = np.asarray(scores, dtype=np.float64).ravel()
    if not sample.size:
        raise ValueError("no calibration scores: a threshold cannot be set from strong_share")
    if not np.isfinite(sample).all():
        raise ValueError("calibration scores must be finite numbers")
    values, counts = np.unique(sample, return_counts=True)
    above = np.concatenate([[0], np.cumsum(counts[::-1])]) / sample.size  # shares that can be had, rising
    index = int(np.argmin(np.abs(above - strong_share)))
    if index == 0:
        return math.inf
    if index == len(values):
        return -math.inf
    low, high = float(values[-index - 1]), float(values[-index])
    middle = low + (high - low) / 2
    return middle if middle > low else high


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRouter:
    """Turns a score into a tier. `strong_share` is what the threshold was set for, None when the threshold
    was given as a number."""

    threshold: float
    strong_share: float | None = None

    @classmethod
    def for_strong_share(cls, scores: npt.ArrayLike, strong_share: float) -> ThresholdRouter:
        """Raises ValueError as `threshold_for_strong_share` does."""
        return cls(
            threshold=threshold_for_strong_share(scores, strong_share), strong_share=float(strong_share)
        )

    def choose(self, score: float) -> RouteChoice:
        """Large when `score` >= threshold. A score that is not a number goes to the large model: nothing is
        known of the prompt, and a share of 0 still keeps it small."""
        if self.threshold == math.inf:
            return RouteChoice(tier="small", reason=self._all("small"), score=score)
        if self.threshold == -math.inf:
            return RouteChoice(tier="large", reason=self._all("large"), score=score)
        share = "" if self.strong_share is None else f" (strong_share {self.strong_share:g})"
        if score < self.threshold:
            return RouteChoice(
                tier="small", reason=f"score {score:.3f} < threshold {self.threshold:.3f}{share}", score=score
            )
        return RouteChoice(
            tier="large", reason=f"score {score:.3f} >= threshold {self.threshold:.3f}{share}", score=score
        )

    def _all(self, tier: str) -> str:
        share = "" if self.strong_share is None else f"strong_share {self.strong_share:g}: "
        return f"{share}every prompt goes to the {tier} model"


def choose(score: float, threshold: float) -> RouteChoice:
    """`ThresholdRouter.choose` for a threshold given as a number."""
    return ThresholdRouter(threshold=threshold).choose(score)
