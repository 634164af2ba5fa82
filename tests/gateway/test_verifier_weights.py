"""The file of a verifier: it comes back as it was written, damage is named, and the shipped one serves."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from embeddings.pair_encoder import PairEncoder
from gateway.conversation_weights import read_conversations_file, shipped_conversations
from gateway.verifier_corpus import FILES
from gateway.verifier_training import PROBES
from gateway.verifier_weights import read_verifier, shipped, write_weights
from policies.pair_features import PAIR_FEATURES, PAIR_FEATURES_VERSION, pair_features
from policies.tree_verifier import VerifierWeightsError

Damage = Callable[[dict[str, Any]], object]


def test_a_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    original = read_verifier(shipped())
    write_weights(
        tmp_path / "again.json",
        original.first,
        original.about,
        blend=original.blend,
        encoder="pair-encoder" if original.encoder else "",
        counts=original.counts,
    )
    assert (tmp_path / "again.json").read_bytes() == shipped().read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.json"]


def test_the_shipped_file_fits_the_features_and_says_what_it_is_of() -> None:
    found = read_verifier(shipped())
    assert found.first.features_version == PAIR_FEATURES_VERSION
    assert found.first.features == tuple(PAIR_FEATURES)
    assert found.verifier.space.startswith("multilingual-e5-small-int8-")
    names = [file["name"] for file in found.about["data"]]
    assert names[: len(FILES)] == [f"{name}.jsonl.gz" for name in FILES]
    assert all(name.startswith(("en-", "ko-")) for name in names[len(FILES) :])
    assert all(len(file["sha256"]) == 64 for file in found.about["data"])
    assert set(found.about["versions"]) == {"python", "numpy", "scikit-learn", "features"}
    assert shipped().stat().st_size < 1_000_000
    assert found.counts is not None
    assert sum(found.counts.right) > 1000


def test_the_cross_encoder_beside_it_is_the_one_it_was_fitted_to_and_small_enough_to_ship() -> None:
    found = read_verifier(shipped())
    assert found.encoder is not None
    assert found.blend is not None
    with closing(PairEncoder.open(found.encoder, "cpu")) as encoder:
        assert encoder.identity == found.blend.encoder
    assert sum(path.stat().st_size for path in found.encoder.iterdir()) < 40_000_000
    talks = read_conversations_file(shipped_conversations())
    assert talks.weights.encoder == found.blend.encoder


def test_the_features_are_those_the_shipped_file_was_trained_on() -> None:
    # Else: python -m gateway.verifier_training, as docs/model-cards/verifier.md says.
    kept = read_verifier(shipped()).about["probes"]
    assert [pair_features(*probe) for probe in PROBES] == [pytest.approx(row) for row in kept]


def test_the_shipped_file_holds_no_question() -> None:
    # Quora's text must not be shipped: beside the names of data sets there are numbers only.
    about = read_verifier(shipped()).about
    assert set(about) == {"space", "seed", "data", "versions", "rows", "outcomes", "probes", "held_out"}
    assert "?" not in shipped().read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("asked", "same", "other"),
    [
        (
            "How do I turn on two-factor authentication?",
            "How can I turn on two-factor authentication?",
            "How do I turn off two-factor authentication?",
        ),
        ("What is 15% of 80?", "What's 15% of 80?", "What is 25% of 80?"),
        (
            "How do I convert PDF to Word?",
            "How can I convert PDF to Word?",
            "How do I convert Word to PDF?",
        ),
        (
            "서울에서 부산까지 얼마나 걸려?",
            "서울에서 부산까지 얼마나 걸리나요?",
            "부산에서 서울까지 얼마나 걸려?",
        ),
        ("거실 불 켜줘", "거실 불 켜주세요", "거실 불 꺼줘"),
    ],
)
def test_the_shipped_file_prefers_a_rewording_to_a_trap_of_the_same_cosine(
    asked: str, same: str, other: str
) -> None:
    verifier = read_verifier(shipped()).verifier
    assert (
        verifier.verify(asked, same, 0.97).probability > verifier.verify(asked, other, 0.97).probability + 0.1
    )


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda content: content.update(format="lockgate-verifier-0"),
            "format lockgate-verifier-0, expected",
        ),
        (lambda content: content.pop("format"), "format unknown, expected"),
        (lambda content: content["first"].pop("trees"), "damaged: KeyError"),
        (lambda content: content.pop("about"), "damaged: KeyError"),
        (lambda content: content["first"].update(trees=3), "damaged: TypeError"),
        (lambda content: content["first"]["trees"]["roots"].append(10**9), "damaged: a root beyond"),
        (
            lambda content: content["first"]["trees"]["value"].pop(),
            "damaged: the arrays of the nodes differ in length",
        ),
        (lambda content: content.update(features_version=-1), "train them again"),
        (lambda content: content["first"]["features"].reverse(), "train them again"),
        (lambda content: content["first"]["calibration"]["probability"].reverse(), "does not rise"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, damage: Damage, said: str) -> None:
    content = json.loads(shipped().read_bytes())
    damage(content)
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(content))
    with pytest.raises(VerifierWeightsError, match=said) as caught:
        read_verifier(path)
    assert str(path) in str(caught.value)


def test_what_is_no_file_or_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerifierWeightsError, match="cannot be read: No such file"):
        read_verifier(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(VerifierWeightsError, match="not JSON"):
        read_verifier(tmp_path / "bad.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(VerifierWeightsError, match="format unknown"):
        read_verifier(tmp_path / "list.json")
