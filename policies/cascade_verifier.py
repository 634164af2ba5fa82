"""The verifier in stages, the cheapest first: features and trees of every pair, a cross-encoder's score of
those that these leave open."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from policies.pair_features import PAIR_FEATURES, pair_features
from policies.tree_verifier import TreeVerifier, VerifierWeights, VerifierWeightsError
from policies.types import Verification

PAIR_SCORE: Final = "pair_score"
SCORED_FEATURES: Final = (*PAIR_FEATURES, PAIR_SCORE)
"""The columns of the trees that come after the cross-encoder: its log-odds beside the features."""
_LIKELY: Final = 0.0  # log-odds above which the cross-encoder calls two questions the same


class CascadeVerifier:
    """Implements Verifier. Of a pair whose probability by `first` lies between the two of `grey`, `second`
    speaks as soon as there is a pair score; until then, and where there is none, `first` does. `encoder`: the
    identity of the cross-encoder whose scores `second` was trained on."""

    def __init__(
        self, first: TreeVerifier, second: VerifierWeights, *, grey: tuple[float, float], encoder: str
    ) -> None:
        low, high = grey
        if not 0 <= low <= high <= 1:
            raise VerifierWeightsError(
                f"the verifier's grey band is {low} to {high}: expected 0 <= low <= high <= 1"
            )
        self.first = first
        self.second = TreeVerifier(second, SCORED_FEATURES).of_space(first.space)
        self.grey = grey
        self.encoder = encoder

    @property
    def space(self) -> str:
        return self.first.space

    @property
    def identity(self) -> str:
        return self.first.identity

    def of_space(self, space: str) -> CascadeVerifier:
        """As `TreeVerifier.of_space`."""
        self.first.of_space(space)
        return self

    def read_together(self, text: str) -> str:
        return text

    def verify(
        self, asked: str, cached: str, similarity: float, pair_score: float | None = None
    ) -> Verification:
        features = pair_features(asked, cached, similarity)
        said = self.first.of_features(features)
        if not self.grey[0] <= said.probability <= self.grey[1]:
            return said
        if pair_score is None:
            return replace(said, open=True)
        said = self.second.of_features([*features, pair_score])
        read = "in favour: read together" if pair_score > _LIKELY else "read together"
        return replace(said, stage="cross-encoder", spoke=(*said.spoke, f"{read} {pair_score:+.1f}"))
