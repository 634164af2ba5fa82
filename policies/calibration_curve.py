"""How often a verifier is wrong when it is this sure: outcomes counted by its doubt, made monotone."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

STEPS = 25
"""Doubt is 1 − probability. Step k holds doubts in (2^(−(k+1)/2), 2^(−k/2)], the last one all smaller ones
too: half octaves, because risks of .001 and .002 differ as much as .1 and .2."""
TRUSTED = 2.0
"""How many outcomes a verifier's own word counts for in each step where no counts came with it: 50 in all."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes in each of the STEPS, from the greatest doubt to the least. Fractions: forgotten in part."""

    wrong: tuple[float, ...]
    right: tuple[float, ...]

    def __post_init__(self) -> None:
        for name, counts in (("wrong", self.wrong), ("right", self.right)):
            if len(counts) != STEPS:
                raise ValueError(f"calibration counts: {name} has {len(counts)} steps, not {STEPS}")
            if not all(math.isfinite(count) and count >= 0 for count in counts):
                raise ValueError(f"calibration counts: {name} must be finite and not negative")


def count(outcomes: Iterable[tuple[float, bool]]) -> Counts:
    """The counts of (probability, right) of held-out pairs: what ships with a verifier's weights."""
    wrong, right = [0.0] * STEPS, [0.0] * STEPS
    for probability, was_right in outcomes:
        (right if was_right else wrong)[step(probability)] += 1.0
    return Counts(wrong=tuple(wrong), right=tuple(right))


def step(probability: float) -> int:
    return min(STEPS - 1, int(_sureness(probability)))


def upper_bound(wrong: FloatArray, total: FloatArray, z: float) -> FloatArray:
    """Of the true rate where `wrong` of `total` outcomes were seen: Wilson's (1927), `z` deviations up. 1 for
    none. Arrays of one shape."""
    n = np.maximum(total, 1e-12)
    rate = np.clip(wrong / n, 0.0, 1.0)
    spread = z * np.sqrt(rate * (1 - rate) / n + (z / (2 * n)) ** 2)
    bound = np.minimum(1.0, (rate + z * z / (2 * n) + spread) / (1 + z * z / n))
    return np.where(total > 0, bound, 1.0)


class CalibrationCurve:
    """The upper confidence bound of P(wrong) by a verifier's probability; never rises with it.

    Starts from `counts`, scaled down so that no step counts for more than `prior` outcomes: the traffic ahead
    may be another than what they were made of. Without counts it starts from the verifier's own word, of
    which little is believed. Each outcome makes those before it in its step count for 1 − 1 / `memory` of
    what they did: what is seen last counts most. `z`: how many deviations the bound lies above the estimate.
    """

    def __init__(
        self,
        counts: Counts | None = None,
        *,
        memory: float = 300.0,
        prior: float = 1000.0,
        z: float = 1.28,
    ) -> None:
        self._keep = 1 - 1 / memory
        self._z = z
        if counts is None:
            doubts = [2 ** -((k + 0.5) / 2) for k in range(STEPS)]
            self._wrong = [TRUSTED * doubt for doubt in doubts]
            self._right = [TRUSTED * (1 - doubt) for doubt in doubts]
        else:
            pairs = list(zip(counts.wrong, counts.right, strict=True))
            scale = [min(1.0, prior / (w + r)) if w + r else 0.0 for w, r in pairs]
            self._wrong = [w * by for (w, _), by in zip(pairs, scale, strict=True)]
            self._right = [r * by for (_, r), by in zip(pairs, scale, strict=True)]
        self._bounds = self._fit()

    def risk(self, probability: float) -> float:
        """Straight between the middles of the steps, so that it moves with the probability. 1 for what is no
        number."""
        at = _sureness(probability) - 0.5
        if at <= 0:
            return self._bounds[0]
        if at >= STEPS - 1:
            return self._bounds[-1]
        k = int(at)
        return self._bounds[k] + (at - k) * (self._bounds[k + 1] - self._bounds[k])

    def learn(self, probability: float, *, right: bool) -> None:
        k = step(probability)
        self._wrong[k] *= self._keep
        self._right[k] *= self._keep
        (self._right if right else self._wrong)[k] += 1.0
        self._bounds = self._fit()

    @property
    def counts(self) -> Counts:
        return Counts(wrong=tuple(self._wrong), right=tuple(self._right))

    def _fit(self) -> list[float]:
        """A step's risk is at most that of any more doubtful one, and so at most the rate of any run of steps
        that ends in it: the least of the bounds that those runs give. Runs that go on beyond it would not do
        (isotonic regression pools them): many good outcomes of sure steps say nothing of a doubtful one."""
        before_w, before_r = (np.cumsum([0.0, *counts]) for counts in (self._wrong, self._right))
        wrong = before_w[1:, None] - before_w[None, :-1]  # [k, j]: of the steps from j to k
        total = wrong + before_r[1:, None] - before_r[None, :-1]
        bounds = upper_bound(wrong, np.tril(total), self._z)
        return list(np.minimum.accumulate(bounds.min(axis=1)).tolist())


def _sureness(probability: float) -> float:
    """In steps: 0 for a probability of 0, or for what is no number."""
    if not probability > 0:
        return 0.0
    return float(STEPS) if probability >= 1 else min(float(STEPS), -2 * math.log2(1 - probability))
