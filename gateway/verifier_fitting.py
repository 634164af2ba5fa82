"""Fits a verifier's trees and its calibration, and measures how well a score tells pairs apart."""

from __future__ import annotations

import importlib.util
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policies.pair_features import PAIR_FEATURES
from policies.tree_ensemble import LEAF, MAX_LEAVES, FloatArray, TreeArrays

Labels = npt.NDArray[np.bool_]

TREES: Final = 300
_LEARNING_RATE: Final = 0.05
_LEAST_IN_LEAF: Final = 40
_PENALTY: Final = 5.0
_RISING: Final = ("similarity", "similarity_near_one")
_BINS: Final = 60  # of the calibration: fewer follow the curve less, more follow chance

_APART: Final = 1e-6  # scores nearer than this are one


class VerifierDependencyError(Exception):
    """scikit-learn is missing; the message names the extra to install."""


def require_scikit_learn() -> None:
    """Raises VerifierDependencyError where scikit-learn is not installed."""
    if importlib.util.find_spec("sklearn") is None:
        raise VerifierDependencyError(
            "training a verifier needs scikit-learn: pip install 'lockgate[router-train]'"
        )


def fit_trees(
    rows: FloatArray,
    same: Labels,
    weight: FloatArray,
    seed: int,
    trees: int = TREES,
) -> TreeArrays:
    """Boosted trees for the log-odds that a pair is the same: `rows` float64 (N, F), as
    PAIR_FEATURES; `same` and `weight` (N,). Raises VerifierDependencyError."""
    require_scikit_learn()
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # scikit-learn brings it

    model = HistGradientBoostingClassifier(
        max_iter=trees,
        learning_rate=_LEARNING_RATE,
        max_leaf_nodes=MAX_LEAVES,
        min_samples_leaf=min(_LEAST_IN_LEAF, max(len(rows) // 50, 1)),
        l2_regularization=_PENALTY,
        early_stopping=False,
        random_state=seed,
        # A higher cosine never lowers the score, whatever the few pairs of some corner say.
        monotonic_cst=[int(name in _RISING) for name in PAIR_FEATURES],
    )
    # One thread: on a busy machine OpenMP's threads wait for each other, and train eight times as long.
    with threadpool_limits(limits=1, user_api="openmp"):
        model.fit(rows, same, sample_weight=weight)
    return exported(model)


def exported(model: Any) -> TreeArrays:
    """The trees of a fitted HistGradientBoostingClassifier of two classes. It has no public way to them."""
    fields: dict[str, list[npt.NDArray[Any]]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "value")
    }
    roots: list[int] = []
    first = 0
    for (predictor,) in model._predictors:
        nodes = predictor.nodes
        if len(nodes) == 1:
            continue  # nothing left to learn; its value is 0
        leaf = nodes["is_leaf"].astype(bool)
        roots.append(first)
        fields["feature"].append(np.where(leaf, LEAF, nodes["feature_idx"]))
        fields["threshold"].append(np.where(leaf, 0.0, nodes["num_threshold"]))
        fields["left"].append(np.where(leaf, 0, nodes["left"] + first))
        fields["right"].append(np.where(leaf, 0, nodes["right"] + first))
        fields["value"].append(_means(nodes, leaf))
        first += len(nodes)
    joined = {name: np.concatenate(arrays) for name, arrays in fields.items()}
    return TreeArrays(
        roots=np.array(roots, np.int64),
        feature=joined["feature"].astype(np.int64),
        threshold=joined["threshold"].astype(np.float64),
        left=joined["left"].astype(np.int64),
        right=joined["right"].astype(np.int64),
        value=joined["value"].astype(np.float64),
        baseline=float(np.ravel(model._baseline_prediction)[0]),
    )


def _means(nodes: npt.NDArray[Any], leaf: Labels) -> FloatArray:
    """The value of a leaf, and of a test the mean over the training rows below it."""
    value = np.where(leaf, nodes["value"], 0.0)
    for node in range(len(nodes) - 1, -1, -1):  # children come after their parents
        if not leaf[node]:
            left, right = nodes["left"][node], nodes["right"][node]
            counts = nodes["count"][[left, right]]
            value[node] = np.average(value[[left, right]], weights=counts)
    return value


def calibrate(raw: FloatArray, same: Labels, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Isotonic regression of the truth on the raw score (N,), by the centres of its steps, which gives a
    straight piece between two of them and no ties (Oron and Flournoy, 2017): points of `raw`, rising, and of
    `probability`, (K,), K >= 2.

    The scores are first binned, and a bin counts one pair more, half of it the same: no step is quite sure.
    """
    order = np.argsort(raw, kind="stable")
    steps: list[tuple[float, float, float]] = []  # weight, score, share of the same
    for rows in np.array_split(order, min(_BINS, max(len(order) // 20, 2))):
        total = weight[rows].sum()
        share = (weight[rows] @ same[rows] + 0.5 * weight[rows].mean()) / (total + weight[rows].mean())
        steps.append((total, np.average(raw[rows], weights=weight[rows]), share))
        while len(steps) > 1 and (steps[-2][2] >= steps[-1][2] or steps[-1][1] - steps[-2][1] < _APART):
            steps[-2:] = [_pooled(*steps[-2:])]
    if len(steps) == 1:  # the score tells nothing: one level
        _, score, share = steps[0]
        return np.array([score - 1, score]), np.array([share, share])
    return np.array([score for _, score, _ in steps]), np.array([share for *_, share in steps])


def _pooled(a: tuple[float, float, float], b: tuple[float, float, float]) -> tuple[float, float, float]:
    total = a[0] + b[0]
    return total, (a[0] * a[1] + b[0] * b[1]) / total, (a[0] * a[2] + b[0] * b[2]) / total


def threshold_at(scores: FloatArray, same: Labels, share: float) -> float:
    """The score above which at most `share` of the pairs that are not the same lie."""
    traps = np.sort(scores[~same])[::-1]
    return float(traps[int(share * len(traps))]) if len(traps) else -np.inf


def recall_at(scores: FloatArray, same: Labels, share: float) -> float:
    """The share of the same pairs that score above `threshold_at`."""
    return float((scores[same] > threshold_at(scores, same, share)).mean())
