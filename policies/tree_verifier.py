"""A verifier of two questions: features of the pair, boosted trees, and a calibration to probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.pair_features import PAIR_FEATURES, PAIR_FEATURES_VERSION, SPOKEN, pair_features
from policies.tree_ensemble import FloatArray, TreeArrays, TreeEnsemble
from policies.types import Verification

_MOST_SPOKEN: Final = 3  # in a header: the strongest
_LEAST_MOVE: Final = 0.1  # of the log-odds: less is not worth a word


class VerifierWeightsError(Exception):
    """Weights that cannot be used here; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierWeights:
    """What a training leaves. `space`: the embedding space of the similarities it saw. `features_version`
    and `features`: what the columns of the trees are. `raw`, rising, and `probability`, not falling, float64
    (K,): the calibration, straight between its points and level beyond them. `identity`: of what file they
    came, with the space: what was learnt of their probabilities is not of others'."""

    space: str
    features_version: int
    features: tuple[str, ...]
    trees: TreeArrays
    raw: FloatArray
    probability: FloatArray
    identity: str = ""


class TreeVerifier:
    """Implements Verifier, without looking at a pair score. Raises VerifierWeightsError for weights of other
    features, or that are no weights, TreeError for trees that are none."""

    def __init__(self, weights: VerifierWeights) -> None:
        _check(weights)
        self.weights = weights
        self.trees = TreeEnsemble(weights.trees, len(PAIR_FEATURES))

    @property
    def space(self) -> str:
        return self.weights.space

    @property
    def identity(self) -> str:
        return self.weights.identity or self.space

    def of_space(self, space: str) -> TreeVerifier:
        """Itself, for similarities of `space`. Raises VerifierWeightsError for another space than the
        trained one: the same cosine means something else there."""
        if space != self.space:
            raise VerifierWeightsError(
                f"the verifier's weights are for embeddings of {self.space}, not of {space}: train others "
                "(lockgate verifier train) or turn the verifier off"
            )
        return self

    def raw_score(self, asked: str, cached: str, similarity: float) -> float:
        """The log-odds before the calibration: they rank pairs as `verify` does, without its ties."""
        return self.trees.score(pair_features(asked, cached, similarity))

    def read_together(self, text: str) -> str:
        return text

    def verify(
        self, asked: str, cached: str, similarity: float, pair_score: float | None = None
    ) -> Verification:
        return self.of_features(pair_features(asked, cached, similarity))[1]

    def of_features(self, features: Sequence[float]) -> tuple[float, Verification]:
        """The log-odds before the calibration, and what is said; `features`: one for each of
        PAIR_FEATURES."""
        moved = self.trees.contributions(features)
        raw = self.trees.baseline + float(moved.sum())
        return raw, Verification(probability=self.calibrated(raw), spoke=_spoke(features, moved))

    def calibrated(self, raw: float) -> float:
        """The probability of a raw score."""
        return float(np.interp(raw, self.weights.raw, self.weights.probability))


def _check(weights: VerifierWeights) -> None:
    if weights.features_version != PAIR_FEATURES_VERSION or weights.features != tuple(PAIR_FEATURES):
        raise VerifierWeightsError(
            f"the verifier's weights are for features of version {weights.features_version}, this is version "
            f"{PAIR_FEATURES_VERSION}: train them again (lockgate verifier train)"
        )
    check_calibration(weights.raw, weights.probability)


def check_calibration(raw: FloatArray, probability: FloatArray) -> None:
    """Raises VerifierWeightsError."""
    sound = (
        len(raw) == len(probability) >= 2
        and np.isfinite([*raw, *probability]).all()
        and (np.diff(raw) > 0).all()
        and (np.diff(probability) >= 0).all()
        and probability[0] >= 0
        and probability[-1] <= 1
    )
    if not sound:
        raise VerifierWeightsError("the calibration of the verifier's weights does not rise from 0 to 1")


def _spoke(features: Sequence[float], moved: FloatArray) -> tuple[str, ...]:
    """What is true of the pair and moved the score most, each thing once however many features tell of it."""
    said: dict[str, None] = {}
    size = np.abs(moved).tolist()
    for column in sorted(range(len(size)), key=size.__getitem__, reverse=True):
        if len(said) == _MOST_SPOKEN or size[column] < _LEAST_MOVE:
            break
        words = SPOKEN.get(PAIR_FEATURES[column])
        if words and features[column] > 0:
            said.setdefault(words if moved[column] < 0 else f"in favour: {words}")
    return tuple(said)
