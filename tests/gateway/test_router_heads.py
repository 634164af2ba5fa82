"""Fitting the heads: what is learnt, soft labels, and a penalty that no held-out row has a say in."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.router_heads import (
    LEXICAL_GAIN,
    LIMIT,
    Examples,
    FloatMatrix,
    Scaling,
    TrainingDependencyError,
    choose_penalty,
    fit_heads,
    fold_rows,
)
from policies.routing_eval import routing_metrics


def examples_of(count: int, seed: int = 0, group: int = 0) -> Examples:
    """Two columns that matter, four that do not; the last two columns count as lexical."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, 6))
    p_small = 1 / (1 + np.exp(3 * rows[:, 0]))
    p_large = 1 / (1 + np.exp(3 * rows[:, 0] - 3 * rows[:, 5] - 1))
    return Examples(
        rows=rows,
        small=(rng.random(count) < p_small).astype(float),
        large=(rng.random(count) < p_large).astype(float),
        weight=np.ones(count),
        group=np.full(count, group, dtype=np.intp),
        lexical=2,
    )


def test_what_was_learnt_holds_on_new_rows() -> None:
    new = examples_of(2_000, seed=1)
    heads = fit_heads(examples_of(2_000), 10.0)
    learnt = routing_metrics(heads.gain(new.rows), new.small, new.large).apgr
    assert learnt > routing_metrics(-new.rows[:, 1], new.small, new.large).apgr + 0.2
    assert np.argsort(-np.abs(heads.weights[:, 1]))[:2].tolist() in ([0, 5], [5, 0])


def test_gain_lies_in_0_to_1_whatever_the_rows() -> None:
    heads = fit_heads(examples_of(500), 10.0)
    gain = heads.gain(np.array([[1e9] * 6, [-1e9] * 6, [0.0] * 6]))
    assert np.isfinite(gain).all()
    assert ((gain >= 0) & (gain <= 1)).all()


def test_half_right_is_one_right_and_one_wrong() -> None:
    halves = examples_of(400)
    soft = Examples(
        rows=halves.rows,
        small=np.full(400, 0.5),
        large=halves.large,
        weight=halves.weight,
        group=halves.group,
        lexical=2,
    )
    heads = fit_heads(soft, 10.0)
    assert heads.weights[:, 0] == pytest.approx(np.zeros(6), abs=1e-6)
    assert heads.bias[0] == pytest.approx(0, abs=1e-6)


def test_a_model_that_is_always_right_gives_a_constant() -> None:
    always = examples_of(300)
    heads = fit_heads(
        Examples(
            rows=always.rows,
            small=always.small,
            large=np.ones(300),
            weight=always.weight,
            group=always.group,
            lexical=2,
        ),
        10.0,
    )
    assert not heads.weights[:, 1].any()
    assert heads.bias[1] > 5


def test_only_lexical_columns_are_clipped_and_constant_ones_survive() -> None:
    rows: FloatMatrix = np.array([[0.0, 1.0, 7.0], [2.0, 3.0, 7.0]])
    scaled = Scaling.of(rows, lexical=2).apply(np.array([[1e6, 1e6, 9.0], [1.0, 2.0, 7.0]]))
    assert scaled[0, 0] > 1e5
    assert scaled[0, 1] == LIMIT * LEXICAL_GAIN
    assert scaled[1].tolist() == [0, 0, 0]


def test_a_heavier_penalty_gives_smaller_weights() -> None:
    light, heavy = (np.abs(fit_heads(examples_of(500), penalty).weights).sum() for penalty in (1.0, 1e4))
    assert heavy < light / 3


def test_the_chosen_penalty_is_one_of_those_offered_and_repeats() -> None:
    found = {choose_penalty(examples_of(300), 5, (1.0, 30.0, 1e6)) for _ in range(2)}
    assert len(found) == 1
    assert found < {1.0, 30.0, 1e6}


def test_examples_of_a_negative_group_judge_nothing() -> None:
    judged = examples_of(300)
    anchors = Examples(  # would speak for the other end of the scale
        rows=judged.rows,
        small=judged.large,
        large=judged.small,
        weight=np.full(300, 1e-9),
        group=np.full(300, -1, dtype=np.intp),
        lexical=2,
    )
    both = Examples(
        **{
            part: np.concatenate([getattr(judged, part), getattr(anchors, part)])
            for part in ("rows", "small", "large", "weight", "group")
        },
        lexical=2,
    )
    assert choose_penalty(both, 0, (3.0,)) == 3.0
    nothing = Examples(
        rows=anchors.rows,
        small=anchors.small,
        large=anchors.large,
        weight=np.ones(300),
        group=anchors.group,
        lexical=2,
    )
    assert choose_penalty(nothing, 0, (3.0, 9.0)) == 3.0


def test_the_level_of_a_data_set_is_not_learnt_as_difficulty() -> None:
    """Two data sets of the same task, one marked strictly, told apart by a column that says nothing else."""
    lenient, strict = examples_of(1_500), examples_of(1_500, seed=1, group=1)
    strict.small[:] *= np.random.default_rng(2).random(1_500) < 0.3
    strict.large[:] *= np.random.default_rng(3).random(1_500) < 0.3
    lenient.rows[:, 2], strict.rows[:, 2] = -1, 1
    parts = ("rows", "small", "large", "weight", "group")
    joined = {part: np.concatenate([getattr(lenient, part), getattr(strict, part)]) for part in parts}
    apart = fit_heads(Examples(**joined, lexical=2), 10.0).weights[2]
    joined["group"] = np.zeros(3_000, dtype=np.intp)
    pooled = fit_heads(Examples(**joined, lexical=2), 10.0).weights[2]
    assert (np.abs(apart) < np.abs(pooled) / 5).all()


def test_folds_are_disjoint_cover_all_rows_and_follow_the_seed() -> None:
    folds = fold_rows(103, 5, seed=2)
    assert sorted(np.concatenate(folds).tolist()) == list(range(103))
    assert [f.tolist() for f in folds] == [f.tolist() for f in fold_rows(103, 5, seed=2)]
    assert folds[0].tolist() != fold_rows(103, 5, seed=3)[0].tolist()


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.router_heads.importlib.util.find_spec", lambda name: None)
    with pytest.raises(TrainingDependencyError, match=r"pip install 'lockgate\[router-train\]'"):
        fit_heads(examples_of(10), 1.0)
