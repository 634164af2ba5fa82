"""The verifier in stages: who speaks when, and weights that do not go together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.cascade_verifier import PAIR_SCORE, SCORED_FEATURES, CascadeVerifier
from policies.pair_features import PAIR_FEATURES, PAIR_FEATURES_VERSION
from policies.protocols import Verifier
from policies.tree_ensemble import LEAF, TreeArrays
from policies.tree_verifier import TreeVerifier, VerifierWeights, VerifierWeightsError

ASKED, CACHED = "How far is it to Rome?", "What is the distance to Rome?"


def stump(columns: tuple[str, ...], name: str, threshold: float) -> VerifierWeights:
    """-2 up to the threshold and 2 above it: .1 and .9."""
    return VerifierWeights(
        space="space",
        identity="space/1",
        features_version=PAIR_FEATURES_VERSION,
        features=columns,
        trees=TreeArrays(
            roots=np.array([0]),
            feature=np.array([columns.index(name), LEAF, LEAF]),
            threshold=np.array([threshold, 0.0, 0.0]),
            left=np.array([1, 0, 0]),
            right=np.array([2, 0, 0]),
            value=np.array([0.0, -2.0, 2.0]),
            baseline=0.0,
        ),
        raw=np.array([-2.0, 2.0]),
        probability=np.array([0.1, 0.9]),
    )


FIRST = stump(tuple(PAIR_FEATURES), "similarity", 0.9)
SECOND = replace(stump(SCORED_FEATURES, PAIR_SCORE, 1.0), probability=np.array([0.3, 0.99]))


def cascade(grey: tuple[float, float] = (0.5, 1.0)) -> CascadeVerifier:
    return CascadeVerifier(TreeVerifier(FIRST), SECOND, grey=grey, encoder="e")


def test_outside_of_the_grey_band_the_first_stage_has_the_last_word() -> None:
    verifier: Verifier = cascade()
    said = verifier.verify(ASKED, CACHED, 0.5, pair_score=9.0)
    assert said.probability == pytest.approx(0.1)
    assert (said.open, said.stage) == (False, "features")


def test_inside_it_a_pair_score_is_asked_for_and_then_believed() -> None:
    verifier = cascade()
    open_ = verifier.verify(ASKED, CACHED, 0.95)
    assert open_.probability == pytest.approx(0.9)
    assert (open_.open, open_.stage) == (True, "features")
    for score, probability in ((3.0, 0.99), (-3.0, 0.3)):
        said = verifier.verify(ASKED, CACHED, 0.95, pair_score=score)
        assert said.probability == pytest.approx(probability)
        assert (said.open, said.stage) == (False, "cross-encoder")
    assert said.spoke[-1] == "read together -3.0"


def test_it_has_the_space_and_the_identity_of_its_file() -> None:
    verifier = cascade()
    assert (verifier.space, verifier.identity) == ("space", "space/1")
    assert verifier.of_space("space") is verifier
    with pytest.raises(VerifierWeightsError, match="for embeddings of space, not of other"):
        verifier.of_space("other")


@pytest.mark.parametrize("grey", [(0.6, 0.5), (-0.1, 0.5), (0.5, 1.1)])
def test_a_band_that_is_none(grey: tuple[float, float]) -> None:
    with pytest.raises(VerifierWeightsError, match="grey band"):
        cascade(grey)


def test_stages_that_do_not_go_together() -> None:
    with pytest.raises(VerifierWeightsError, match="not of space"):
        CascadeVerifier(TreeVerifier(FIRST), replace(SECOND, space="other"), grey=(0, 1), encoder="e")
    with pytest.raises(VerifierWeightsError, match="train them again"):
        CascadeVerifier(TreeVerifier(FIRST), FIRST, grey=(0, 1), encoder="e")
