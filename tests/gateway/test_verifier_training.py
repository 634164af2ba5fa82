"""Training a verifier end to end on a small data set, and the parts of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from embeddings.pair_encoder import PairScores
from gateway.router_data import SourceFile
from gateway.verifier_data import VerifierDataError
from gateway.verifier_fitting import calibrate, exported, fit_trees, recall_at, threshold_at
from gateway.verifier_training import MIN_OF_EACH, MIN_PAIRS, measured, own_parts, train
from gateway.verifier_weights import read_verifier
from policies.pair_features import PAIR_FEATURES, PAIR_FEATURES_VERSION
from policies.tree_ensemble import TreeEnsemble
from tests.gateway.verifier_cases import FakeEmbedder, pairs

FILES = [SourceFile(name="mine.jsonl", sha256="00")]


def test_a_training_learns_what_the_cosine_does_not_show_and_says_what_it_did(tmp_path: Path) -> None:
    out = tmp_path / "mine.json"
    parts = own_parts(pairs(800), seed=3)
    about = train(parts, FakeEmbedder(), out, seed=3, files=FILES, cache=None, trees=60)
    assert about["space"] == FakeEmbedder.space
    assert about["seed"] == 3
    assert about["data"] == [{"name": "mine.jsonl", "sha256": "00"}]
    assert about["versions"]["features"] == str(PAIR_FEATURES_VERSION)
    held = about["held_out"]["mine"]
    assert held["verifier"][0] > 0.9
    assert held["cosine"][0] < 0.5
    assert about["rows"]["train"]["edit-number"] > 0
    assert not any(source.startswith("edit-") for source in about["rows"]["evaluate"])
    found = read_verifier(out)
    assert found.about == json.loads(json.dumps(about))
    same = found.verifier.verify("How do I cook 3 beans?", "What is the way to cook 3 beans", 0.8)
    other = found.verifier.verify("How do I cook 3 beans?", "How do I cook 8 beans?", 0.98)
    assert same.probability > 0.7 > 0.3 > other.probability
    assert "the numbers differ" in other.spoke


def test_the_same_training_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        train(
            own_parts(pairs(500), 0),
            FakeEmbedder(),
            tmp_path / name,
            seed=0,
            files=FILES,
            cache=None,
            trees=60,
        )
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_no_question_is_in_two_parts() -> None:
    linked = [replace(pair, b=pairs(600)[row // 3 * 3].b) for row, pair in enumerate(pairs(600))]
    parts = own_parts(linked, seed=0)
    asked = {part: {text for pair in held for text in (pair.a, pair.b)} for part, held in parts.items()}
    assert not asked["evaluate"] & (asked["train"] | asked["calibrate"])
    originals = {pair.a for pair in linked} | {pair.b for pair in linked}
    assert not asked["train"] & asked["calibrate"] & originals


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (
            MIN_PAIRS - 1,
            f"{MIN_PAIRS - 1} pairs, {MIN_PAIRS // 2} of them the same: at least {MIN_PAIRS} are",
        ),
        (0, f"0 pairs, 0 of them the same: at least {MIN_PAIRS} are needed"),
    ],
)
def test_too_few_pairs_are_refused_with_the_number_needed(count: int, said: str) -> None:
    with pytest.raises(VerifierDataError, match=said):
        own_parts(pairs(count), 0)


def test_too_few_of_one_kind_are_refused() -> None:
    mostly = [replace(pair, same=row >= MIN_OF_EACH - 1) for row, pair in enumerate(pairs(600))]
    with pytest.raises(VerifierDataError, match=f"{MIN_OF_EACH} of them the same and {MIN_OF_EACH} not"):
        own_parts(mostly, 0)


def test_pairs_of_one_question_cannot_be_held_out() -> None:
    one = [replace(pair, a="How do I start?") for pair in pairs(600)]
    with pytest.raises(VerifierDataError, match="more different questions"):
        own_parts(one, 0)


def test_exported_trees_score_as_the_model_does() -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(800, 5)).round(1)  # values that equal thresholds are common
    same = rows[:, 0] * rows[:, 1] + rows[:, 2] > rng.normal(size=800)
    model = HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=16, random_state=0)
    with threadpool_limits(limits=1, user_api="openmp"):
        model.fit(rows, same)
    ensemble = TreeEnsemble(exported(model), 5)
    scores = [ensemble.score(row) for row in rows]
    assert scores == pytest.approx(model.decision_function(rows), abs=1e-9)


def test_a_higher_cosine_never_lowers_the_score() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((600, len(PAIR_FEATURES)))
    same = rng.random(600) < 1 - rows[:, 0]  # as if higher were worse
    ensemble = TreeEnsemble(fit_trees(rows, same, np.ones(600), 0, trees=15), len(PAIR_FEATURES))
    line = np.repeat(rows[:1], 50, axis=0)
    line[:, PAIR_FEATURES.index("similarity")] = np.linspace(0, 1, 50)
    assert (np.diff([ensemble.score(row) for row in line]) >= -1e-12).all()


def test_the_calibration_rises_and_agrees_with_the_truth() -> None:
    rng = np.random.default_rng(1)
    raw = rng.normal(size=8000) * 2
    same = rng.random(8000) < 1 / (1 + np.exp(-raw))
    points, probability = calibrate(raw, same, np.ones(8000))
    assert (np.diff(points) > 0).all()
    assert (np.diff(probability) >= 0).all()
    assert 0 < probability[0] < 0.05
    assert 0.95 < probability[-1] < 1
    for score in (-2.0, 0.0, 2.0):
        assert np.interp(score, points, probability) == pytest.approx(1 / (1 + np.exp(-score)), abs=0.05)


def test_the_calibration_counts_the_weights() -> None:
    raw = np.tile([-1.0, 1.0], 400)
    same = np.arange(800) % 4 < 2  # half of either score
    weight = np.where(same == (raw > 0), 3.0, 1.0)
    _, probability = calibrate(raw, same, weight)
    assert probability[[0, -1]] == pytest.approx([0.25, 0.75], abs=0.02)


def test_a_score_that_tells_nothing_is_calibrated_to_the_base_rate() -> None:
    points, probability = calibrate(np.linspace(0, 1, 400), np.arange(400) < 100, np.ones(400))
    assert len(points) >= 2
    assert probability == pytest.approx(np.full(len(points), 0.25), abs=0.02)


def test_equal_scores_are_one_point_of_the_calibration() -> None:
    raw = np.repeat([0.1, 0.1 + 1e-16, 0.3], 400)
    same = np.arange(1200) % 400 < np.repeat([100, 200, 360], 400)
    points, probability = calibrate(raw, same, np.full(1200, 0.3))
    assert points == pytest.approx([0.1, 0.3])
    assert probability == pytest.approx([0.375, 0.9], abs=0.02)


def test_the_recall_is_measured_where_the_share_of_traps_gets_through() -> None:
    scores = np.concatenate([np.arange(100) / 100, [0.985, 0.975, 0.5, 0.995]])
    same = np.concatenate([np.zeros(100, bool), np.ones(4, bool)])
    assert threshold_at(scores, same, 0.01) == pytest.approx(0.98)
    assert (scores[~same] > threshold_at(scores, same, 0.01)).mean() == pytest.approx(0.01)
    assert recall_at(scores, same, 0.01) == 0.5
    assert recall_at(scores, same, 0.05) == 0.75
    assert recall_at(np.ones(104), same, 0.01) == 0.0  # a score without differences serves nobody


def test_somebodys_pairs_are_measured(tmp_path: Path) -> None:
    train(
        own_parts(pairs(500), 0),
        FakeEmbedder(),
        tmp_path / "m.json",
        seed=0,
        files=FILES,
        cache=None,
        trees=60,
    )
    found = measured(pairs(900)[500:], read_verifier(tmp_path / "m.json"), FakeEmbedder(), None)
    assert found["mine"]["same"] == found["mine"]["not_same"] == 200
    assert found["mine"]["verifier"][1] > found["mine"]["cosine"][1]
    with pytest.raises(VerifierDataError, match="both needed"):
        measured(pairs(900)[::2], read_verifier(tmp_path / "m.json"), FakeEmbedder(), None)


class FakeScorer:
    """Knows the truth: whether two questions hold the same digits."""

    identity = "fake/cpu"

    def score(self, pairs: Sequence[tuple[str, str]]) -> PairScores:
        same = [re.findall(r"\d+", a) == re.findall(r"\d+", b) for a, b in pairs]
        logits = np.where(same, 5.0, -5.0).astype(np.float32)
        return PairScores(logits=logits, truncated=np.zeros(len(pairs), np.bool_))

    def close(self) -> None:
        """There is nothing to close."""


def test_with_a_cross_encoder_the_two_are_blended_and_streams_are_counted(tmp_path: Path) -> None:
    stream = [(pair.a, number) for number, pair in enumerate(pairs(60))]
    stream += [(pair.b, number if pair.same else -1) for number, pair in enumerate(pairs(60))]
    about = train(
        own_parts(pairs(500), 0),
        FakeEmbedder(),
        tmp_path / "m.json",
        seed=0,
        files=FILES,
        cache=None,
        trees=20,
        scorer=FakeScorer(),
        encoder=tmp_path / "encoder",
        streams=[stream],
    )
    file = read_verifier(tmp_path / "m.json")
    assert file.encoder == tmp_path / "encoder"
    assert file.blend is not None
    assert (file.blend.encoder, file.blend.score > 0) == ("fake/cpu", True)
    assert file.counts is not None
    assert sum(file.counts.right) + sum(file.counts.wrong) == about["outcomes"]
    asked, cached = "How do I cook 3 beans?", "What is the way to cook 3 beans"
    near, far = (file.verifier.verify(asked, cached, 0.8, pair_score=score) for score in (5.0, -5.0))
    assert near.probability > far.probability
