"""`lockgate verifier`, end to end on a small data set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli_verifier import verifier
from gateway.verifier_training import MIN_PAIRS
from gateway.verifier_weights import read_verifier, shipped
from tests.gateway.verifier_cases import FakeEmbedder, pairs


@pytest.fixture(autouse=True)
def fake_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "embeddings.onnx_embedder.OnnxEmbedder.open", lambda model, device, threads: FakeEmbedder()
    )


def run(*arguments: str) -> Result:
    return CliRunner().invoke(verifier, arguments)


def data_file(path: Path, count: int) -> str:
    lines = [json.dumps({"a": pair.a, "b": pair.b, "same": pair.same}) for pair in pairs(count)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_pairs_become_weights_that_measure_better_than_the_cosine(tmp_path: Path) -> None:
    data, out = data_file(tmp_path / "mine.jsonl", 600), tmp_path / "mine.json"
    trained = run("train", data, "--out", str(out), "--json")
    assert trained.exit_code == 0, trained.output
    about = json.loads(trained.stdout)
    assert about["out"] == str(out)
    assert about["data"][0]["name"] == "mine.jsonl"
    assert read_verifier(out).verifier.space == FakeEmbedder.space

    measured = run("measure", data, "--weights", str(out), "--json")
    assert measured.exit_code == 0, measured.output
    figures = json.loads(measured.stdout)["mine"]
    assert figures["same"] == figures["not_same"] == 300
    assert figures["verifier"][0] > figures["cosine"][0]

    table = run("measure", data, "--weights", str(out))
    assert "mine" in table.stdout
    assert "recall at 1% / 5% / 10%: verifier" in table.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"a": "x", "b": "y"}\n', 'mine.jsonl line 1: "same" must be true or false, not None'),
        (
            '{"a": "x", "b": "y", "same": true}\n',
            f"1 pairs, 1 of them the same: at least {MIN_PAIRS} are needed",
        ),
    ],
)
def test_what_cannot_be_trained_on_is_named(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "mine.jsonl").write_text(content)
    result = run("train", str(tmp_path / "mine.jsonl"), "--out", str(tmp_path / "out.json"))
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "out.json").exists()


def test_weights_of_another_space_are_not_measured_with(tmp_path: Path) -> None:
    result = run("measure", data_file(tmp_path / "mine.jsonl", 4), "--weights", str(shipped()))
    assert result.exit_code == 2
    assert f"not of {FakeEmbedder.space}" in result.stderr


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    data = data_file(tmp_path / "mine.jsonl", 600)
    result = run("train", data, "--out", str(tmp_path / "file" / "out.json"), "--cache", str(tmp_path))
    assert result.exit_code == 2
    assert str(tmp_path / "file") in result.stderr
