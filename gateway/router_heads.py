"""Fits the two logistic heads of a difficulty router."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policies.routing_eval import average_gap_recovered, routing_curve

FloatMatrix = npt.NDArray[np.floating[Any]]
Rows = npt.NDArray[np.intp]

PENALTIES: Final = (100.0, 300.0, 1000.0, 3000.0, 10_000.0)
"""Strengths of the L2 penalty that inner folds choose from."""
LEXICAL_GAIN: Final = 2.0
"""Lexical features are fewer and each says more than a dimension of the embedding: they are scaled to this
deviation, the embedding to 1, and so penalised less."""
_LEVEL_GAIN = 10.0  # makes the penalty on the level of a data set next to nothing
LIMIT: Final = 4.0
"""Standardised lexical features are clipped to ± this: one odd prompt must not swing the score."""
_INNER_FOLDS = 3


class TrainingDependencyError(Exception):
    """scikit-learn is missing; the message names the extra to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Makes columns alike before the penalty is applied: the embedding by one scale for all its dimensions,
    which keeps their proportions, and each of the last `lexical` columns by its own, clipped to ± LIMIT
    deviations. `mean`, `scale`: float64 (K,)."""

    mean: FloatMatrix
    scale: FloatMatrix
    lexical: int

    @classmethod
    def of(cls, rows: FloatMatrix, lexical: int) -> Scaling:
        """`rows` (N, K): [embedding | lexical features], the latter `lexical` columns wide."""
        deviation = rows.std(axis=0)
        first = rows.shape[1] - lexical
        scale = np.where(deviation > 1e-9, deviation, 1.0)
        if first:
            scale[:first] = max(float(np.sqrt(np.mean(deviation[:first] ** 2))), 1e-9)
        return cls(mean=rows.mean(axis=0), scale=scale, lexical=lexical)

    def apply(self, rows: FloatMatrix) -> FloatMatrix:
        scaled = (rows - self.mean) / self.scale
        first = scaled.shape[1] - self.lexical
        scaled[:, first:] = np.clip(scaled[:, first:], -LIMIT, LIMIT) * LEXICAL_GAIN
        return scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """`weights` (K, 2), `bias` (2,), float64, on scaled rows; columns are (small, large)."""

    scaling: Scaling
    weights: FloatMatrix
    bias: FloatMatrix
    penalty: float

    def gain(self, rows: FloatMatrix) -> FloatMatrix:
        """(P(large) − P(small) + 1) / 2 of each row, (N,)."""
        logits = self.scaling.apply(rows) @ self.weights + self.bias
        p = 1 / (1 + np.exp(-np.clip(logits, -500, 500)))
        gain: FloatMatrix = (p[:, 1] - p[:, 0] + 1) / 2
        return gain


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """`rows` (N, K): [embedding | lexical features]. `small`, `large`, `weight` (N,): quality of the answers,
    and how much each example counts. `group` (N,): the number of the data set of each; examples of a negative
    one are learnt from and never judged by. `lexical`: how many of the last columns are lexical features."""

    rows: FloatMatrix
    small: FloatMatrix
    large: FloatMatrix
    weight: FloatMatrix
    group: Rows
    lexical: int

    def take(self, index: Rows) -> Examples:
        return replace(
            self,
            rows=self.rows[index],
            small=self.small[index],
            large=self.large[index],
            weight=self.weight[index],
            group=self.group[index],
        )

    def lexical_only(self) -> Examples:
        """The same examples without their embedding."""
        return replace(self, rows=self.rows[:, self.rows.shape[1] - self.lexical :])


def require_scikit_learn() -> None:
    """Raises TrainingDependencyError when it is not installed."""
    if importlib.util.find_spec("sklearn") is None:
        raise TrainingDependencyError(
            "training a router needs scikit-learn: pip install 'lockgate[router-train]'"
        )


def fold_rows(count: int, folds: int, seed: int) -> list[Rows]:
    """`folds` disjoint sets of rows that together are all `count`, drawn with `seed`."""
    return [np.sort(part) for part in np.array_split(np.random.default_rng(seed).permutation(count), folds)]


def fit_heads(examples: Examples, penalty: float) -> Heads:
    """Logistic regression of both qualities; a quality between 0 and 1 counts as so much right and so much
    wrong. Raises TrainingDependencyError.

    Data sets differ in the models they asked and in how they judged them. Each has a level of its own beside
    the shared weights, or these would learn to tell data sets apart; the bias takes the mean level.
    """
    scaling = Scaling.of(examples.rows, examples.lexical)
    groups = np.unique(examples.group)
    judged = groups[groups >= 0] if len(groups) > 1 else groups[:0]
    member = (examples.group[:, None] == judged).astype(examples.rows.dtype)
    rows = np.concatenate([scaling.apply(examples.rows), member * _LEVEL_GAIN], axis=1)
    columns = examples.rows.shape[1]
    weights, bias = [], []
    for quality in (examples.small, examples.large):
        fitted, intercept = _fit(rows, quality, examples.weight, penalty)
        weights.append(fitted[:columns])
        members = member.sum(axis=0)
        level = float(members @ fitted[columns:]) * _LEVEL_GAIN / max(float(members.sum()), 1.0)
        bias.append(intercept + level)
    return Heads(scaling=scaling, weights=np.stack(weights, axis=1), bias=np.array(bias), penalty=penalty)


def choose_penalty(examples: Examples, seed: int, penalties: Sequence[float] = PENALTIES) -> float:
    """The penalty with the highest average gap recovered, mean over the groups, in inner folds of these
    examples alone. A group whose large model is no better judges nothing."""
    examples = replace(examples, rows=examples.rows.astype(np.float32))  # twice as fast, enough to compare
    folds = fold_rows(len(examples.rows), _INNER_FOLDS, seed)
    recovered = []
    for penalty in penalties:
        gain = np.empty(len(examples.rows))
        for held in folds:
            rest = np.setdiff1d(np.arange(len(gain)), held)
            gain[held] = fit_heads(examples.take(rest), penalty).gain(examples.rows[held])
        recovered.append(_mean_recovered(examples, gain))
    return penalties[int(np.argmax(recovered))]


def _mean_recovered(examples: Examples, gain: FloatMatrix) -> float:
    found = []
    for group in np.unique(examples.group[examples.group >= 0]):
        rows = examples.group == group
        curve = routing_curve(gain[rows], examples.small[rows], examples.large[rows])
        if curve.strong > curve.weak:
            found.append(average_gap_recovered(curve))
    return float(np.mean(found)) if found else 0.0


def _fit(
    rows: FloatMatrix, quality: FloatMatrix, weight: FloatMatrix, penalty: float
) -> tuple[FloatMatrix, float]:
    require_scikit_learn()
    from scipy.linalg import LinAlgWarning  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression

    right, wrong = quality > 0, quality < 1
    share = np.concatenate([weight[right] * quality[right], weight[wrong] * (1 - quality[wrong])])
    label = np.concatenate([np.ones(int(right.sum())), np.zeros(int(wrong.sum()))])
    if not right.any() or not wrong.any():  # a model that is always right, or never: only a bias
        mean = min(max(float(np.average(quality, weights=weight)), 0.001), 0.999)
        return np.zeros(rows.shape[1]), float(np.log(mean / (1 - mean)))
    model = LogisticRegression(C=1 / penalty, solver="newton-cholesky", max_iter=1000, tol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)  # the solver then takes another way to the optimum
        model.fit(np.concatenate([rows[right], rows[wrong]]), label, sample_weight=share)
    return model.coef_[0].astype(np.float64), float(model.intercept_[0])
