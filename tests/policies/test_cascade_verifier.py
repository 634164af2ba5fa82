"""The verifier in stages: who speaks when, and weights that do not go together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.cascade_verifier import Blend, CascadeVerifier
from policies.pair_features import PAIR_FEATURES, PAIR_FEATURES_VERSION
from policies.protocols import Verifier
from policies.tree_ensemble import LEAF, TreeArrays
from policies.tree_verifier import TreeVerifier, VerifierWeights, VerifierWeightsError

ASKED, CACHED = "How far is it to Rome?", "What is the distance to Rome?"

# Log-odds of -2 up to a cosine of .9 and 2 above it: probabilities of .1 and .9.
FIRST = VerifierWeights(
    space="space",
    identity="space/1",
    features_version=PAIR_FEATURES_VERSION,
    features=tuple(PAIR_FEATURES),
    trees=TreeArrays(
        roots=np.array([0]),
        feature=np.array([PAIR_FEATURES.index("similarity"), LEAF, LEAF]),
        threshold=np.array([0.9, 0.0, 0.0]),
        left=np.array([1, 0, 0]),
        right=np.array([2, 0, 0]),
        value=np.array([0.0, -2.0, 2.0]),
        baseline=0.0,
    ),
    raw=np.array([-2.0, 2.0]),
    probability=np.array([0.1, 0.9]),
)
BLEND = Blend(
    bias=0.0,
    trees=0.5,
    score=1.0,
    raw=np.array([-4.0, 4.0]),
    probability=np.array([0.0, 1.0]),
    encoder="e",
    grey=(0.5, 1.0),
)


def cascade(**changes: object) -> CascadeVerifier:
    return CascadeVerifier(TreeVerifier(FIRST), replace(BLEND, **changes))  # type: ignore[arg-type]


def test_outside_of_the_grey_band_the_trees_have_the_last_word() -> None:
    verifier: Verifier = cascade()
    said = verifier.verify(ASKED, CACHED, 0.5, pair_score=9.0)
    assert said.probability == pytest.approx(0.1)
    assert (said.open, said.stage) == (False, "features")


def test_inside_it_a_pair_score_is_asked_for_and_then_counts_beside_them() -> None:
    verifier = cascade()
    open_ = verifier.verify(ASKED, CACHED, 0.95)
    assert open_.probability == pytest.approx(0.9)
    assert (open_.open, open_.stage) == (True, "features")
    for score, probability in ((1.0, 0.75), (-3.0, 0.25), (9.0, 1.0)):
        said = verifier.verify(ASKED, CACHED, 0.95, pair_score=score)
        assert said.probability == pytest.approx(probability)
        assert (said.open, said.stage) == (False, "cross-encoder")
    assert verifier.verify(ASKED, CACHED, 0.95, pair_score=-3.0).spoke[-1] == "read together -3.0"


def test_it_has_the_space_and_the_identity_of_its_file_and_its_encoders() -> None:
    verifier = cascade()
    assert (verifier.space, verifier.identity, verifier.encoder) == ("space", "space/1", "e")
    assert verifier.of_space("space") is verifier
    assert verifier.read_together(ASKED) == ASKED
    with pytest.raises(VerifierWeightsError, match="for embeddings of space, not of other"):
        verifier.of_space("other")


@pytest.mark.parametrize("grey", [(0.6, 0.5), (-0.1, 0.5), (0.5, 1.1)])
def test_a_band_that_is_none(grey: tuple[float, float]) -> None:
    with pytest.raises(VerifierWeightsError, match="grey band"):
        cascade(grey=grey)


def test_a_calibration_that_is_none() -> None:
    with pytest.raises(VerifierWeightsError, match="does not rise"):
        cascade(probability=np.array([1.0, 0.0]))
