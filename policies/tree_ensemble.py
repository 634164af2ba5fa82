"""Scores one row with gradient-boosted trees, and says which of its features moved the score.

All trees are looked at together: every test of every tree is made at once, and each test that fails strikes
out the leaves on its left side. The first leaf left of each tree is the one a walk from the root would end in
(QuickScorer, Lucchese et al., SIGIR 2015). In numpy this takes half the time of a walk in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MAX_LEAVES: Final = 16
"""Of a tree: its leaves are the bits of a 16-bit word."""
LEAF: Final = -1
"""In place of a feature: the node is a leaf."""


class TreeError(ValueError):
    """The arrays are no trees; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeArrays:
    """The nodes of all trees, one after another: N nodes of T trees.

    `roots`, int (T,): the node that each tree begins with. `feature`, int (N,): the column a node tests, or
    LEAF. `threshold`, float (N,): a row whose value is at most this goes to `left`, int (N,), else to
    `right`; both are node numbers, larger than the node's own. `value`, float (N,): what the score is raised
    by in a leaf; in a test, the mean of that over the training rows that came by. `baseline` is the score
    before any tree.
    """

    roots: IntArray
    feature: IntArray
    threshold: FloatArray
    left: IntArray
    right: IntArray
    value: FloatArray
    baseline: float

    def check(self, features: int) -> None:
        """Raises TreeError unless these are trees over rows of `features` columns."""
        nodes = len(self.feature)
        if any(len(array) != nodes for array in (self.threshold, self.left, self.right, self.value)):
            raise TreeError("the arrays of the nodes differ in length")
        if len(self.roots) == 0 or self.roots[0] != 0 or (np.diff(self.roots) <= 0).any():
            raise TreeError("the roots do not begin at 0 and rise")
        if self.roots[-1] >= nodes:
            raise TreeError(f"a root beyond the {nodes} nodes")
        numbers = (self.baseline, *self.threshold, *self.value)
        if not np.isfinite(numbers).all():
            raise TreeError("a threshold or value is no finite number")
        ends = np.append(self.roots[1:], nodes)
        tests = np.flatnonzero(self.feature != LEAF)
        if ((self.feature < LEAF) | (self.feature >= features)).any():
            raise TreeError(f"a feature outside the {features} there are")
        end = ends[np.searchsorted(self.roots, tests, side="right") - 1]
        for children in (self.left[tests], self.right[tests]):
            if ((children <= tests) | (children >= end)).any():
                raise TreeError("a child that does not come after its parent in the same tree")
        reached = np.concatenate([self.left[tests], self.right[tests], self.roots])
        if (np.bincount(reached, minlength=nodes) != 1).any():
            raise TreeError("a node without exactly one parent")


class TreeEnsemble:
    """Scores rows of `features` columns. Raises TreeError for arrays that are no trees, or trees of more than
    MAX_LEAVES leaves."""

    def __init__(self, arrays: TreeArrays, features: int) -> None:
        arrays.check(features)
        self.features = features
        self.baseline = float(arrays.baseline + arrays.value[arrays.roots].sum())
        trees = [_leaves_of(arrays, int(root), features) for root in arrays.roots]
        shape = len(trees), MAX_LEAVES - 1
        # Tests that pad a tree never fail: nothing is above infinity.
        self._tested = np.zeros(shape, np.intp)
        self._thresholds = np.full(shape, np.inf)
        self._kept = np.full(shape, (1 << MAX_LEAVES) - 1, np.uint16)
        moved = np.zeros((len(trees), MAX_LEAVES, features))
        for number, tree in enumerate(trees):
            for place, (feature, threshold, struck) in enumerate(tree.tests):
                self._tested[number, place] = feature
                self._thresholds[number, place] = threshold
                self._kept[number, place] ^= struck
            moved[number, : len(tree.moved)] = tree.moved
        self._moved = moved.reshape(-1, features)
        self._first_leaf = np.arange(len(trees)) * MAX_LEAVES

    def contributions(self, row: Sequence[float] | FloatArray) -> FloatArray:
        """How far each feature moved the score of `row` (F,), all numbers finite: float64 (F,). On the path
        through a tree, the change of the mean at each test is credited to the feature tested (Saabas, 2014).
        With `baseline` they add up to the score."""
        values = np.asarray(row, np.float64)
        failed = values[self._tested] > self._thresholds
        kept = np.where(failed, self._kept, np.uint16(0xFFFF))
        left: npt.NDArray[np.uint16] = np.bitwise_and.reduce(kept, axis=1)
        moved: FloatArray = self._moved[self._first_leaf + _LOWEST_BIT[left]].sum(axis=0)
        return moved

    def score(self, row: Sequence[float] | FloatArray) -> float:
        """The raw score, log-odds, of one row (F,)."""
        return self.baseline + float(self.contributions(row).sum())


@dataclass(frozen=True, slots=True)
class _Tree:
    """`tests`: feature, threshold and the bits of the leaves that are out when the value is above it.
    `moved`: float64 (leaves, F), the contributions of the path to each leaf, from left to right."""

    tests: list[tuple[int, float, int]]
    moved: FloatArray


def _leaves_of(arrays: TreeArrays, root: int, features: int) -> _Tree:
    tests: list[tuple[int, float, int]] = []
    moved: list[FloatArray] = []

    def walk(node: int, path: FloatArray) -> None:
        feature = int(arrays.feature[node])
        if feature == LEAF:
            moved.append(path)
            return
        first = len(moved)
        for child in (int(arrays.left[node]), int(arrays.right[node])):
            if child == arrays.right[node]:
                struck = (1 << len(moved)) - (1 << first)
                tests.append((feature, float(arrays.threshold[node]), struck))
            along = path.copy()
            along[feature] += arrays.value[child] - arrays.value[node]
            walk(child, along)

    if arrays.feature[root] == LEAF:
        raise TreeError(f"the tree at node {root} tests nothing")
    walk(root, np.zeros(features))
    if len(moved) > MAX_LEAVES:
        raise TreeError(f"the tree at node {root} has {len(moved)} leaves, more than {MAX_LEAVES}")
    return _Tree(tests, np.array(moved))


def _lowest_bits() -> npt.NDArray[np.intp]:
    words = np.arange(1 << MAX_LEAVES)
    lowest: npt.NDArray[np.intp] = np.log2(np.maximum(words & -words, 1)).astype(np.intp)
    return lowest


_LOWEST_BIT: Final = _lowest_bits()
