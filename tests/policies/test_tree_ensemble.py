"""Trees from flat arrays: the same scores as a walk from the root, and contributions that add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.tree_ensemble import LEAF, MAX_LEAVES, TreeArrays, TreeEnsemble, TreeError

FEATURES = 4


def arrays(nodes: list[tuple[int, float, int, int, float]], roots: list[int]) -> TreeArrays:
    feature, threshold, left, right, value = (np.array(column) for column in zip(*nodes, strict=True))
    return TreeArrays(
        roots=np.array(roots),
        feature=feature,
        threshold=threshold.astype(float),
        left=left,
        right=right,
        value=value.astype(float),
        baseline=-0.5,
    )


# x0 <= .5 ? (x1 <= 2 ? 1 : 4) : -2, and x2 <= 0 ? -1 : 1
TWO_TREES = arrays(
    [
        (0, 0.5, 1, 4, 0.25),
        (1, 2.0, 2, 3, 2.0),
        (LEAF, 0.0, 0, 0, 1.0),
        (LEAF, 0.0, 0, 0, 4.0),
        (LEAF, 0.0, 0, 0, -2.0),
        (2, 0.0, 6, 7, 0.5),
        (LEAF, 0.0, 0, 0, -1.0),
        (LEAF, 0.0, 0, 0, 1.0),
    ],
    [0, 5],
)


@pytest.mark.parametrize(
    ("row", "score"),
    [
        ([0.5, 2.0, 0.0, 9.0], -0.5 + 1 - 1),  # a value equal to the threshold goes left
        ([0.4, 2.1, 0.1, 9.0], -0.5 + 4 + 1),
        ([0.6, 0.0, -1.0, 9.0], -0.5 - 2 - 1),
    ],
)
def test_a_row_ends_in_one_leaf_of_each_tree(row: list[float], score: float) -> None:
    assert TreeEnsemble(TWO_TREES, FEATURES).score(row) == pytest.approx(score)


def test_contributions_credit_the_features_tested_on_the_path() -> None:
    ensemble = TreeEnsemble(TWO_TREES, FEATURES)
    moved = ensemble.contributions([0.4, 2.1, 0.1, 9.0])
    assert moved == pytest.approx([2.0 - 0.25, 4.0 - 2.0, 1.0 - 0.5, 0.0])
    assert ensemble.baseline == pytest.approx(-0.5 + 0.25 + 0.5)


@st.composite
def forests(draw: st.DrawFn) -> TreeArrays:
    numbers = st.floats(-3, 3, allow_nan=False)
    nodes: list[tuple[int, float, int, int, float]] = []
    roots = []
    for _ in range(draw(st.integers(1, 4))):
        roots.append(len(nodes))
        leaves = draw(st.integers(2, MAX_LEAVES))

        def grow(leaves: int) -> int:
            number = len(nodes)
            nodes.append((LEAF, 0.0, 0, 0, draw(numbers)))
            if leaves > 1:
                below = draw(st.integers(1, leaves - 1))
                feature, threshold = draw(st.integers(0, FEATURES - 1)), draw(numbers)
                left = grow(below)
                right = grow(leaves - below)
                nodes[number] = (feature, threshold, left, right, nodes[number][4])
            return number

        grow(leaves)
    return arrays(nodes, roots)


@settings(max_examples=60, deadline=None)
@given(forests(), st.lists(st.floats(-4, 4, allow_nan=False), min_size=FEATURES, max_size=FEATURES))
def test_the_score_is_that_of_a_walk_from_every_root(forest: TreeArrays, row: list[float]) -> None:
    expected = forest.baseline
    for root in forest.roots:
        node = int(root)
        while forest.feature[node] != LEAF:
            goes_left = row[forest.feature[node]] <= forest.threshold[node]
            node = int(forest.left[node] if goes_left else forest.right[node])
        expected += forest.value[node]
    assert TreeEnsemble(forest, FEATURES).score(row) == pytest.approx(expected)


def with_one(array: npt.NDArray[Any], place: int, value: float) -> npt.NDArray[Any]:
    changed = array.copy()
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (replace(TWO_TREES, value=TWO_TREES.value[:-1]), "differ in length"),
        (replace(TWO_TREES, roots=np.array([1, 5])), "begin at 0"),
        (replace(TWO_TREES, roots=np.array([0, 8])), "beyond"),
        (replace(TWO_TREES, threshold=with_one(TWO_TREES.threshold, 0, np.nan)), "no finite number"),
        (replace(TWO_TREES, feature=with_one(TWO_TREES.feature, 0, FEATURES)), "outside the 4"),
        (replace(TWO_TREES, left=with_one(TWO_TREES.left, 1, 0)), "come after its parent"),
        (replace(TWO_TREES, right=with_one(TWO_TREES.right, 0, 6)), "same tree"),
        (replace(TWO_TREES, right=with_one(TWO_TREES.right, 1, 2)), "exactly one parent"),
        (replace(TWO_TREES, feature=with_one(TWO_TREES.feature, 5, LEAF)), "exactly one parent"),
    ],
)
def test_what_is_no_tree_is_refused(damaged: TreeArrays, said: str) -> None:
    with pytest.raises(TreeError, match=said):
        TreeEnsemble(damaged, FEATURES)


def test_a_tree_of_too_many_leaves_is_refused() -> None:
    chain: list[tuple[int, float, int, int, float]] = []
    for leaf in range(MAX_LEAVES):
        chain += [(0, float(leaf), 2 * leaf + 1, 2 * leaf + 2, 0.0), (LEAF, 0.0, 0, 0, 1.0)]
    chain.append((LEAF, 0.0, 0, 0, 2.0))
    with pytest.raises(TreeError, match=f"{MAX_LEAVES + 1} leaves"):
        TreeEnsemble(arrays(chain, [0]), FEATURES)
