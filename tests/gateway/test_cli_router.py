"""`lockgate router train`, end to end on a small data set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from embeddings.protocols import Encoding
from gateway.cli_router import router
from gateway.router_training import MIN_PROMPTS
from gateway.router_weights import read_weights
from policies.difficulty import DifficultyPolicy
from policies.types import Query

EASY = ["What colour is a {}?", "How do you spell {}?", "Say hello to my {}.", "Where can I buy a {}?"]
HARD = [
    "Prove that every finite {} is a direct sum and derive its rank.",
    "Design and analyse a distributed {} that survives partitions.",
    "If a {} has 17 states, how many transitions are needed? Derive the bound.",
    "Implement a lock-free {} in C++ and justify its memory ordering.",
]
THINGS = [f"{kind}{number}" for kind in ("cat", "boat", "lamp", "tree", "shoe") for number in range(12)]


class FakeEmbedder:
    """Word hashes, summed: texts that share words are near each other."""

    space = "fake-model-int8-1/numpy"
    dimension = 24
    max_tokens = 512

    def encode(self, texts: Sequence[str]) -> Encoding:
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8])
                vectors[row] += np.random.default_rng(seed).normal(size=self.dimension)
            vectors[row] /= max(float(np.linalg.norm(vectors[row])), 1e-9)
        return Encoding(
            vectors=vectors,
            token_counts=np.ones(len(texts), np.int64),
            truncated=np.zeros(len(texts), np.bool_),
        )

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def fake_embedder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "model" not in request.keywords:
        monkeypatch.setattr(
            "embeddings.onnx_embedder.OnnxEmbedder.open", lambda model, device, threads: FakeEmbedder()
        )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = []
    for thing in THINGS:
        for template, p_small in (*((t, 0.95) for t in EASY), *((t, 0.05) for t in HARD)):
            row = {"prompt": template.format(thing), "small": int(rng.random() < p_small), "large": 1}
            lines.append(json.dumps(row))
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(lines))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(router, ["train", *map(str, arguments)])


def test_training_end_to_end(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.onnx"
    everyday = tmp_path / "everyday.jsonl"
    everyday.write_text("".join(json.dumps({"text": f"where is my {thing}?"}) + "\n" for thing in THINGS))
    result = run(data, "--out", out, "--everyday", everyday, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["rows"] == {"trained": 384 + 424, "held_out": 96, "everyday": 60}
    assert report["held_out"]["answers"]["prompts"] == 96
    assert report["held_out"]["answers"]["router"]["apgr"] > 0.65  # knowing the template gives .725
    file = read_weights(out)
    assert dict(file.about) == {key: value for key, value in report.items() if key != "out"}
    digest = hashlib.sha256(data.read_bytes()).hexdigest()
    assert file.about["data"] == [{"name": "answers.jsonl", "sha256": digest}]
    assert (file.weights.name, file.weights.embedder) == ("mine", "fake-model")
    assert "everyday.jsonl" in out.read_bytes().decode("latin-1")
    assert b"where is my" not in out.read_bytes()
    policy, embedder = DifficultyPolicy(file.weights), FakeEmbedder()

    def score(text: str, embedded: bool) -> float:
        vector = embedder.encode([text]).vectors[0] if embedded else None
        return policy.score(Query(text=text, vector=vector, space=embedder.space))

    for embedded in (True, False):
        easy = max(score(template.format("zebra"), embedded) for template in EASY)
        assert easy < min(score(template.format("zebra"), embedded) for template in HARD)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(data: Path, tmp_path: Path) -> None:
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert run(data, "--out", tmp_path / folder / "w.onnx", "--seed", seed).exit_code == 0
    a, b, c = ((tmp_path / folder / "w.onnx").read_bytes() for folder in "abc")
    assert a == b
    assert a != c


def test_the_summary_shows_the_held_out_figures(data: Path, tmp_path: Path) -> None:
    result = run(data, "--out", tmp_path / "w.onnx", "--no-anchors", "--cache", tmp_path / "cache")
    assert result.exit_code == 0, result.output
    assert "answers, 96 prompts:" in result.stdout
    assert "router        APGR 0." in result.stdout
    assert "length_only" in result.stdout
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".npz"]
    assert read_weights(tmp_path / "w.onnx").about["anchors"] == []


def failure(*arguments: object) -> str:
    """The one line on stderr of a run that must fail with exit status 2."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("lockgate: ")
    return result.stderr


def test_bad_data_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt": "a", "small": 2, "large": 1}')
    message = failure(path, "--out", tmp_path / "w.onnx")
    assert "bad.jsonl line 1: small must be a quality from 0 to 1" in message
    assert not (tmp_path / "w.onnx").exists()


def test_too_few_prompts_says_how_many_are_needed(tmp_path: Path) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text('{"prompt": "a", "small": 0, "large": 1}')
    message = failure(path, "--out", tmp_path / "w.onnx")
    assert f"1 labelled prompts: at least {MIN_PROMPTS} are needed" in message


def test_a_large_model_that_is_no_better_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "swapped.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": str(i), "small": 1, "large": i % 2}) for i in range(200)))
    assert "the large model must be the better one" in failure(path, "--out", tmp_path / "w.onnx")


def test_a_place_that_cannot_be_written_is_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.onnx").mkdir()
    assert "folder.onnx" in failure(data, "--out", tmp_path / "folder.onnx")


def test_without_scikit_learn_the_extra_is_named(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.router_heads.importlib.util.find_spec", lambda name: None)
    assert "pip install 'lockgate[router-train]'" in failure(data, "--out", tmp_path / "w.onnx")


def test_an_unknown_embedder_is_one_line(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert "'absent'" in failure(data, "--out", tmp_path / "w.onnx", "--embedder", "absent")


@pytest.mark.model
def test_training_with_the_default_embedder(data: Path, tmp_path: Path) -> None:
    result = run(data, "--out", tmp_path / "w.onnx", "--json")
    assert result.exit_code == 0, result.output
    weights = read_weights(tmp_path / "w.onnx").weights
    assert (weights.embedder, weights.dimension) == ("multilingual-e5-small", 384)
