"""The verifier in stages, the cheapest first: features and trees of every pair, a cross-encoder's score of
those that these leave open."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from msgspec.structs import replace

from policies.pair_features import pair_features
from policies.tree_ensemble import FloatArray
from policies.tree_verifier import TreeVerifier, VerifierWeightsError, check_calibration
from policies.types import Verification

_PAIRS_KEPT: Final = 128
_LIKELY: Final = 0.0  # log-odds above which the cross-encoder calls two questions the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend:
    """Log-odds of both stages = bias + trees * (those of the trees) + score * (the cross-encoder's); `raw`
    and `probability` are their calibration, as in VerifierWeights. `encoder`: the identity of the
    cross-encoder, `grey`: between which probabilities of the trees it is asked."""

    bias: float
    trees: float
    score: float
    raw: FloatArray
    probability: FloatArray
    encoder: str
    grey: tuple[float, float]

    def of(self, trees: float, score: float) -> float:
        """The probability."""
        total = self.bias + self.trees * trees + self.score * score
        return float(np.interp(total, self.raw, self.probability))


class CascadeVerifier:
    """Implements Verifier. Of a pair whose probability by `first` is grey, the blend speaks as soon as there
    is a pair score; until then, and where there is none, `first` does. Raises VerifierWeightsError."""

    def __init__(self, first: TreeVerifier, blend: Blend) -> None:
        low, high = blend.grey
        if not 0 <= low <= high <= 1:
            raise VerifierWeightsError(
                f"the verifier's grey band is {low} to {high}: expected 0 <= low <= high <= 1"
            )
        check_calibration(blend.raw, blend.probability)
        self.first = first
        self.blend = blend
        # A pair is looked at twice: before its score is asked for, and with it.
        self._looked = lru_cache(maxsize=_PAIRS_KEPT)(self._look)

    @property
    def space(self) -> str:
        return self.first.space

    @property
    def identity(self) -> str:
        return self.first.identity

    @property
    def encoder(self) -> str:
        return self.blend.encoder

    def of_space(self, space: str) -> CascadeVerifier:
        """As `TreeVerifier.of_space`."""
        self.first.of_space(space)
        return self

    def read_together(self, text: str) -> str:
        return text

    def verify(
        self, asked: str, cached: str, similarity: float, pair_score: float | None = None
    ) -> Verification:
        raw, said = self._looked(asked, cached, similarity)
        if not self.blend.grey[0] <= said.probability <= self.blend.grey[1]:
            return said
        if pair_score is None:
            return replace(said, open=True)
        read = "in favour: read together" if pair_score > _LIKELY else "read together"
        return replace(
            said,
            probability=self.blend.of(raw, pair_score),
            stage="cross-encoder",
            spoke=(*said.spoke, f"{read} {pair_score:+.1f}"),
        )

    def _look(self, asked: str, cached: str, similarity: float) -> tuple[float, Verification]:
        return self.first.of_features(pair_features(asked, cached, similarity))
