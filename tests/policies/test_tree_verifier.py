"""The tree verifier: probabilities from its calibration, what spoke, and weights that do not fit refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.pair_features import PAIR_FEATURES, PAIR_FEATURES_VERSION, SPOKEN
from policies.protocols import Verifier
from policies.tree_ensemble import LEAF, TreeArrays
from policies.tree_verifier import TreeVerifier, VerifierWeights, VerifierWeightsError

SPACE = "model-int8/runtime-cpu"


def stumps(*tests: tuple[str, float, float, float]) -> TreeArrays:
    """One tree for each (feature, threshold, value at most it, value above it)."""
    count = len(tests)
    columns = [PAIR_FEATURES.index(name) for name, *_ in tests]
    return TreeArrays(
        roots=np.arange(count) * 3,
        feature=np.array([f for column in columns for f in (column, LEAF, LEAF)]),
        threshold=np.array([t for _, threshold, *_ in tests for t in (threshold, 0.0, 0.0)]),
        left=np.array([n for tree in range(count) for n in (3 * tree + 1, 0, 0)]),
        right=np.array([n for tree in range(count) for n in (3 * tree + 2, 0, 0)]),
        value=np.array([v for *_, low, high in tests for v in ((low + high) / 2, low, high)]),
        baseline=0.0,
    )


WEIGHTS = VerifierWeights(
    space=SPACE,
    features_version=PAIR_FEATURES_VERSION,
    features=tuple(PAIR_FEATURES),
    trees=stumps(("similarity", 0.9, -2.0, 2.0), ("numbers_differ", 0.5, 0.5, -3.0)),
    raw=np.array([-2.0, 0.0, 2.0]),
    probability=np.array([0.1, 0.4, 0.9]),
)


def test_it_is_a_verifier_of_its_space() -> None:
    verifier: Verifier = TreeVerifier(WEIGHTS)
    assert verifier.space == SPACE


@pytest.mark.parametrize(
    ("asked", "cached", "similarity", "raw", "probability"),
    [
        ("How far is it?", "How far is it", 0.95, 2.5, 0.9),  # beyond the last point it stays level
        ("Take 5 pills", "Take 6 pills", 0.95, -1.0, 0.25),  # half way between two points
        ("How far is it?", "How far is it", 0.2, -1.5, 0.175),
        ("Take 5 pills", "Take 6 pills", 0.2, -5.0, 0.1),
    ],
)
def test_the_probability_lies_between_the_points_of_the_calibration(
    asked: str, cached: str, similarity: float, raw: float, probability: float
) -> None:
    verifier = TreeVerifier(WEIGHTS)
    assert verifier.raw_score(asked, cached, similarity) == pytest.approx(raw)
    assert verifier.verify(asked, cached, similarity).probability == pytest.approx(probability)


def test_what_differs_and_moved_the_score_is_said() -> None:
    verifier = TreeVerifier(WEIGHTS)
    assert verifier.verify("Take 5 pills", "Take 6 pills", 0.95).spoke == (SPOKEN["numbers_differ"],)


def test_what_does_not_differ_is_not_said_though_it_moved_the_score() -> None:
    assert TreeVerifier(WEIGHTS).verify("How far is it?", "How far is it", 0.95).spoke == ()


def test_the_strongest_is_said_first_and_each_thing_once() -> None:
    trees = stumps(
        ("negation_count", 0.5, 0.2, -1.0),
        ("negation_parity", 0.5, 0.2, -1.0),
        ("numbers_differ", 0.5, 0.5, -3.0),
        ("same_words", 0.5, 0.0, 0.01),
    )
    verdict = TreeVerifier(replace(WEIGHTS, trees=trees)).verify("Do not take 5", "Do take 6", 0.95)
    assert verdict.spoke == (SPOKEN["numbers_differ"], SPOKEN["negation_count"])


def test_what_speaks_in_favour_is_marked() -> None:
    trees = stumps(("same_words", 0.5, -1.0, 2.0))
    verdict = TreeVerifier(replace(WEIGHTS, trees=trees)).verify("red or blue?", "blue or red?", 0.95)
    assert verdict.spoke == (f"in favour: {SPOKEN['same_words']}",)


def test_similarities_of_another_space_are_refused() -> None:
    verifier = TreeVerifier(WEIGHTS)
    assert verifier.of_space(SPACE) is verifier
    with pytest.raises(VerifierWeightsError, match="for embeddings of model-int8/runtime-cpu, not of other"):
        verifier.of_space("other")


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (replace(WEIGHTS, features_version=PAIR_FEATURES_VERSION + 1), "train them again"),
        (replace(WEIGHTS, features=WEIGHTS.features[:-1]), "train them again"),
        (replace(WEIGHTS, raw=np.array([0.0, 0.0, 1.0])), "does not rise"),
        (replace(WEIGHTS, probability=np.array([0.5, 0.4, 0.9])), "does not rise"),
        (replace(WEIGHTS, probability=np.array([0.1, 0.4, 1.1])), "does not rise"),
        (replace(WEIGHTS, probability=np.array([0.1, np.nan, 0.9])), "does not rise"),
        (replace(WEIGHTS, raw=np.array([0.0]), probability=np.array([0.5])), "does not rise"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: VerifierWeights, said: str) -> None:
    with pytest.raises(VerifierWeightsError, match=said):
        TreeVerifier(weights)
