"""vCache's decision (arXiv:2502.03771), implemented from the paper's description: a bound of its own for each
entry, learnt from that entry's outcomes alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

from policies.types import Candidate, Identity, Verdict

LEAST_OBSERVATIONS = 6
EPSILONS = [step / 50 for step in range(1, 50)]
NEWTON_STEPS = 30
RIDGE = 1e-3
"""Keeps the fit finite where right and wrong outcomes are parted perfectly; the paper has a table there."""

Outcomes = list[tuple[float, bool]]


class VCachePolicy:
    """Looks at the nearest entry only. Fits P(right | similarity) = sigmoid(a + b s), b > 0, to its outcomes,
    takes the threshold's uncertainty by the delta method, and explores with the probability that keeps
    P(wrong served) within `max_error_rate`."""

    def __init__(self, *, max_error_rate: float, random: Callable[[], float]) -> None:
        self._bound = max_error_rate
        self._random = random
        self._outcomes: dict[int, Outcomes] = {}
        self._fits: dict[int, tuple[float, float, float]] = {}
        self.considered: Candidate | None = None

    def judge(self, identity: Identity, candidates: Sequence[Candidate], now: float) -> Verdict:
        self.considered = nearest = candidates[0] if candidates else None
        if nearest is None:
            return Verdict(candidate=None, reason="nothing cached is comparable")
        outcomes = self._outcomes.setdefault(nearest.entry_id, [(0.0, False), (1.0, True)])
        if len(outcomes) < LEAST_OBSERVATIONS:
            return Verdict(candidate=None, reason="too little is known of the entry")
        explore = self._explore(nearest.entry_id, nearest.similarity)
        served = None if self._random() < explore else nearest
        return Verdict(candidate=served, reason=f"explores with probability {explore:.3f}")

    def learn(self, entry_id: int, similarity: float, *, right: bool) -> None:
        self._outcomes[entry_id].append((similarity, right))
        self._fits.pop(entry_id, None)

    def _explore(self, entry_id: int, similarity: float) -> float:
        fit = self._fits.get(entry_id)
        if fit is None:
            fit = self._fits[entry_id] = fitted(self._outcomes[entry_id])
        slope, threshold, spread = fit
        least = 1.0
        for epsilon in EPSILONS:
            later = threshold + NormalDist().inv_cdf(1 - epsilon) * spread
            sure = (1 - epsilon) * _sigmoid(slope * (similarity - later))
            least = min(least, max(0.0, 1 - self._bound / (1 - sure)) if sure < 1 else 0.0)
        return least


def fitted(outcomes: Outcomes) -> tuple[float, float, float]:
    """Slope, threshold (where right and wrong are as likely) and the standard deviation of the threshold."""
    a, b = 0.0, 1.0
    for _ in range(NEWTON_STEPS):
        ga = gb = 0.0
        haa = hbb = RIDGE
        hab = 0.0
        for similarity, right in outcomes:
            p = _sigmoid(a + b * similarity)
            ga += right - p
            gb += (right - p) * similarity
            w = p * (1 - p)
            haa, hab, hbb = haa + w, hab + w * similarity, hbb + w * similarity**2
        ga, gb = ga - RIDGE * a, gb - RIDGE * b
        determinant = haa * hbb - hab * hab
        step_a, step_b = (hbb * ga - hab * gb) / determinant, (haa * gb - hab * ga) / determinant
        size = max(abs(step_a), abs(step_b))
        scale = min(1.0, 4.0 / size) if size else 1.0
        a, b = a + scale * step_a, max(1e-3, b + scale * step_b)
        if size < 1e-6:
            break
    threshold = -a / b
    # delta method: t = -a/b, so dt = (-1/b, a/b^2)
    da, db = -1 / b, a / b**2
    variance = (da * da * hbb - 2 * da * db * hab + db * db * haa) / determinant
    return b, threshold, math.sqrt(max(variance, 0.0))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
