"""The difficulty policy: scores in [0, 1], the right heads for the vector at hand, one threshold for both."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.calibration import threshold_for_strong_share
from policies.difficulty import DifficultyPolicy, DifficultyWeights, FloatArray, WeightsError, embedder_of
from policies.lexical import LEXICAL_FEATURES, LEXICAL_VERSION, lexical_features
from policies.types import Query

FEATURES = len(LEXICAL_FEATURES)
DIMENSION = 8
SPACE = "some-model-int8-1-abc/onnxruntime-cpu"


def weights_of(seed: int = 0) -> DifficultyWeights:
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> FloatArray:
        return rng.normal(size=shape).astype(np.float32)

    return DifficultyWeights(
        name="drawn",
        embedder="some-model",
        lexical_version=LEXICAL_VERSION,
        mean=draw(FEATURES),
        scale=np.abs(draw(FEATURES)) + np.float32(0.1),
        limit=4.0,
        embedding=draw(DIMENSION, 2),
        lexical=draw(FEATURES, 2),
        bias=draw(2),
        lexical_only=draw(FEATURES, 2),
        lexical_only_bias=draw(2),
        calibration=np.sort(rng.random(50)).astype(np.float32),
        lexical_only_calibration=np.sort(rng.random(50)).astype(np.float32),
    )


def query(text: str, vector: FloatArray | None = None, space: str | None = SPACE) -> Query:
    return Query(text=text, vector=vector, space=space)


def unit(seed: int = 0) -> FloatArray:
    vector = np.random.default_rng(seed).normal(size=DIMENSION)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


@given(st.text(max_size=200), st.integers(0, 1_000), st.booleans())
def test_every_score_lies_in_0_to_1(text: str, seed: int, embedded: bool) -> None:
    policy = DifficultyPolicy(weights_of(seed))
    assert 0 <= policy.score(query(text, unit(seed) if embedded else None)) <= 1


@pytest.mark.parametrize("text", ["", " ", "why? " * 200_000, "\n" * 100_000, "가" * 100_000, "\ud800"])
def test_empty_and_very_long_prompts_are_scored(text: str) -> None:
    for vector in (unit(), None):
        assert 0 <= DifficultyPolicy(weights_of()).score(query(text, vector)) <= 1


def test_the_score_is_the_gain_of_the_large_model_by_hand() -> None:
    weights = weights_of()
    features, vector = lexical_features("Prove it."), unit(4)
    lexical = np.clip((features - weights.mean) / weights.scale, -4, 4)
    logits = vector @ weights.embedding + lexical @ weights.lexical + weights.bias
    small, large = 1 / (1 + np.exp(-logits.astype(np.float64)))
    score = DifficultyPolicy(weights).score(query("Prove it.", vector))
    assert score == pytest.approx((large - small + 1) / 2, abs=1e-6)


def test_weights_so_large_that_exp_would_overflow_still_score() -> None:
    weights = replace(weights_of(), bias=np.array([-1e30, 1e30], np.float32))
    assert DifficultyPolicy(weights).score(query("hi", unit())) == 1.0


@pytest.mark.parametrize(
    ("vector", "space"),
    [
        (None, SPACE),
        (unit(), None),
        (unit(), "another-model-int8-1-abc/onnxruntime-cpu"),
        (unit(), "some-model-tuned-int8-1-abc/onnxruntime-cpu"),
        (unit(), "some-mode"),
        (np.ones(DIMENSION + 1, np.float32), SPACE),
        (np.full(DIMENSION, np.nan, np.float32), SPACE),
        (np.full(DIMENSION, np.inf, np.float32), SPACE),
    ],
)
def test_a_vector_that_does_not_fit_is_left_out(vector: FloatArray | None, space: str | None) -> None:
    policy = DifficultyPolicy(weights_of())
    asked = query("Prove it.", vector, space)
    assert not policy.uses_embedding(asked)
    assert policy.score(asked) == policy.score(query("Prove it."))


@pytest.mark.parametrize(
    "space", [SPACE, "some-model-fp32-1-abc/onnxruntime-cuda", "some-model/torch", "some-model"]
)
def test_precision_and_runtime_do_not_matter(space: str) -> None:
    assert embedder_of(space) == "some-model"
    assert DifficultyPolicy(weights_of()).uses_embedding(query("Prove it.", unit(), space))


def test_without_vectors_one_threshold_sends_the_same_share() -> None:
    rng = np.random.default_rng(1)
    words = ["prove", "hello", "if", "matrix", "many", "x=1", "A.", "why?", "the", "cat", "2"]
    prompts = [" ".join(rng.choice(words, size=rng.integers(1, 12))) for _ in range(2_000)]
    vectors = [unit(i) for i in range(len(prompts))]
    raw = DifficultyPolicy(
        replace(
            weights_of(),
            calibration=np.array([0, 1], np.float32),
            lexical_only_calibration=np.array([0, 1], np.float32),
        )
    )
    levels = np.linspace(0, 1, 101)
    embedded = [raw.score(query(p, v)) for p, v in zip(prompts, vectors, strict=True)]
    alone = [raw.score(query(p)) for p in prompts]
    policy = DifficultyPolicy(
        replace(
            weights_of(),
            calibration=np.quantile(embedded, levels).astype(np.float32),
            lexical_only_calibration=np.quantile(alone, levels).astype(np.float32),
        )
    )
    threshold = threshold_for_strong_share(policy.weights.calibration, 0.3)
    assert np.mean([s >= threshold for s in embedded]) == pytest.approx(0.3, abs=0.02)
    assert np.mean([policy.score(query(p)) >= threshold for p in prompts]) == pytest.approx(0.3, abs=0.04)


def test_weights_of_other_features_are_refused_with_what_to_do() -> None:
    with pytest.raises(WeightsError, match="train them again"):
        replace(weights_of(), lexical_version=LEXICAL_VERSION + 1)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("mean", np.zeros(FEATURES + 1, np.float32)),
        ("embedding", np.zeros((DIMENSION, 3), np.float32)),
        ("lexical", np.zeros((FEATURES, 1), np.float32)),
        ("bias", np.zeros(3, np.float32)),
        ("lexical_only_calibration", np.zeros(3, np.float32)),
        ("calibration", np.linspace(1, 0, 50).astype(np.float32)),
        ("calibration", np.full(50, math.nan, np.float32)),
        ("scale", np.zeros(FEATURES, np.float32)),
        ("embedding", np.full((DIMENSION, 2), math.nan, np.float32)),
    ],
)
def test_weights_that_do_not_fit_are_refused(part: str, value: FloatArray) -> None:
    changes: dict[str, Any] = {part: value}
    with pytest.raises(WeightsError, match=part):
        replace(weights_of(), **changes)


def test_time_of_a_score(capsys: pytest.CaptureFixture[str]) -> None:
    policy = DifficultyPolicy(weights_of())
    asked = query("How many ways are there to tile a 3 by 8 board with dominoes? Explain.", unit())
    started = time.perf_counter()
    scores = {policy.score(asked) for _ in range(500)}
    with capsys.disabled():
        print(f"\nscore(): {(time.perf_counter() - started) / 500 * 1e6:.0f} µs a prompt")
    assert len(scores) == 1
