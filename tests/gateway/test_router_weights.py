"""The weights file: written and read back alike, and any ONNX runtime agrees with numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from gateway.router_weights import SHIPPED, read_weights, rounded, shipped, write_weights
from policies.difficulty import DifficultyPolicy, DifficultyWeights, FloatArray, WeightsError
from policies.lexical import LEXICAL_FEATURES, LEXICAL_VERSION, lexical_features

FEATURES, DIMENSION = len(LEXICAL_FEATURES), 16
PROMPTS = [
    "",
    "hi",
    "Prove that √2 is irrational.",
    "수도가 어디야?",
    "x = 1\n" * 900,
    "A. 1\nB. 2\nC. 3\nD. 4",
]


def weights_of(seed: int = 0) -> DifficultyWeights:
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> FloatArray:
        return rng.normal(size=shape).astype(np.float32)

    return DifficultyWeights(
        name="drawn",
        embedder="some-model",
        lexical_version=LEXICAL_VERSION,
        mean=draw(FEATURES),
        scale=np.abs(draw(FEATURES)) + np.float32(0.5),
        limit=4.0,
        embedding=rounded(draw(DIMENSION, 2) * 5),
        lexical=rounded(draw(FEATURES, 2)),
        bias=draw(2),
        lexical_only=rounded(draw(FEATURES, 2)),
        lexical_only_bias=draw(2),
        calibration=np.array([0, 1], np.float32),
        lexical_only_calibration=np.array([0, 1], np.float32),
    )


def onnx_runtime(path: Path, vectors: FloatArray, features: FloatArray) -> dict[str, FloatArray]:
    from onnxruntime import InferenceSession

    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"embedding": vectors, "lexical": features}), strict=True))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    weights, path = weights_of(), tmp_path / "drawn.onnx"
    write_weights(path, weights, {"seed": 3, "data": [{"name": "가.csv", "sha256": "00"}]})
    file = read_weights(path)
    for part in DifficultyWeights.__dataclass_fields__:
        assert (
            np.allclose(getattr(file.weights, part), getattr(weights, part), atol=1e-6)
            if isinstance(getattr(weights, part), np.ndarray)
            else getattr(file.weights, part) == getattr(weights, part)
        )
    assert file.about == {"seed": 3, "data": [{"name": "가.csv", "sha256": "00"}]}


def test_the_same_weights_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_weights(tmp_path / name, weights_of(), {"b": 1, "a": 2})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_heads_are_stored_in_8_bits(tmp_path: Path) -> None:
    path = tmp_path / "drawn.onnx"
    write_weights(path, weights_of(), {})
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(str(path)).graph.initializer}
    assert stored["embedding_heads_int8"].dtype == np.int8
    assert stored["embedding_heads_int8"].shape == (2, DIMENSION)
    assert np.abs(stored["embedding_heads_int8"]).max(axis=1).tolist() == [127, 127]


def test_rounding_twice_is_rounding_once() -> None:
    heads = np.random.default_rng(0).normal(size=(384, 2)).astype(np.float32)
    once = rounded(heads)
    assert np.allclose(rounded(once), once, atol=1e-7)
    assert np.abs(once - heads).max() <= np.abs(heads).max() / 127
    assert not rounded(np.zeros((3, 2), np.float32)).any()


def test_onnx_runtime_gives_the_scores_of_numpy(tmp_path: Path) -> None:
    path = tmp_path / "drawn.onnx"
    write_weights(path, weights_of(), {})
    features = np.stack([lexical_features(prompt) for prompt in PROMPTS])
    vectors = np.random.default_rng(1).normal(size=(len(PROMPTS), DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    outputs = onnx_runtime(path, vectors, features)
    policy = DifficultyPolicy(read_weights(path).weights)
    ours = [policy.score_features(f, v) for f, v in zip(features, vectors, strict=True)]
    alone = [policy.score_features(f, None) for f in features]
    assert np.allclose(outputs["score"], ours, atol=1e-5)
    assert np.allclose(outputs["lexical_only_score"], alone, atol=1e-5)
    gain = (outputs["p_large"] - outputs["p_small"] + 1) / 2
    assert np.allclose(outputs["score"], gain, atol=1e-6)
    assert {values.shape for values in outputs.values()} == {(len(PROMPTS),)}


@pytest.mark.parametrize("name", SHIPPED)
def test_onnx_runtime_gives_the_scores_of_numpy_on_the_shipped_files(name: str) -> None:
    path = shipped().with_name(f"{name}.onnx")
    weights = read_weights(path).weights
    features = np.stack([lexical_features(prompt) for prompt in PROMPTS])
    vectors = np.random.default_rng(1).normal(size=(len(PROMPTS), weights.dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    outputs = onnx_runtime(path, vectors, features)
    identity = np.array([0, 1], np.float32)
    policy = DifficultyPolicy(replace(weights, calibration=identity, lexical_only_calibration=identity))
    ours = [policy.score_features(f, v) for f, v in zip(features, vectors, strict=True)]
    alone = [policy.score_features(f, None) for f in features]
    assert np.allclose(outputs["score"], ours, atol=1e-5)
    assert np.allclose(outputs["lexical_only_score"], alone, atol=1e-5)


@pytest.mark.parametrize(
    ("space", "name", "embedder"),
    [
        ("multilingual-e5-small-int8-1-abc/onnxruntime-cpu", "difficulty-e5", "multilingual-e5-small"),
        ("all-MiniLM-L6-v2-int8-1-mean-abc/onnxruntime-cpu", "difficulty-minilm", "all-MiniLM-L6-v2"),
        ("something-else", "difficulty-e5", "multilingual-e5-small"),
        (None, "difficulty-e5", "multilingual-e5-small"),
    ],
)
def test_the_shipped_file_for_a_space(space: str | None, name: str, embedder: str) -> None:
    path = shipped(space)
    weights = read_weights(path).weights
    assert (path.stem, weights.name, weights.embedder) == (name, name, embedder)
    assert weights.dimension == 384
    assert len(weights.calibration) == len(weights.lexical_only_calibration) == 1001
    assert path.stat().st_size < 64_000


def test_a_file_that_is_not_there_or_not_onnx(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="cannot be read: No such file"):
        read_weights(tmp_path / "absent.onnx")
    (tmp_path / "text.onnx").write_bytes(b"these are not weights")
    with pytest.raises(WeightsError, match="not an ONNX file"):
        read_weights(tmp_path / "text.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(WeightsError, match="format unknown, expected"):
        read_weights(tmp_path / "empty.onnx")


@pytest.mark.parametrize("fault", ["initializer", "calibration", "version"])
def test_a_damaged_file_is_refused(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "drawn.onnx"
    write_weights(path, weights_of(), {})
    model = onnx.load(str(path))
    if fault == "initializer":
        del model.graph.initializer[0]
    for item in model.metadata_props:
        if item.key == "calibration" and fault == "calibration":
            item.value = "[0.1,"
        if item.key == "lexical_version" and fault == "version":
            item.value = "99"
    onnx.save(model, str(path))
    with pytest.raises(WeightsError, match="train them again" if fault == "version" else "damaged"):
        read_weights(path)
