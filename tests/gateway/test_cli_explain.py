"""`lockgate explain`: what is said of two questions, by the shipped verifier and by other policies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main

CONFIG = """\
[cache]
store = "memory"
[cache.policy]
kind = "{kind}"
"""


def explained(tmp_path: Path, asked: str, cached: str, *options: str, kind: str = "bounded") -> Result:
    path = tmp_path / "c.toml"
    path.write_text(CONFIG.format(kind=kind), "utf-8")
    return CliRunner().invoke(main, ["explain", asked, cached, "--config", str(path), *options])


@pytest.mark.model
def test_a_trap_is_told_from_a_rewording(tmp_path: Path) -> None:
    same, trap = (
        json.loads(explained(tmp_path, "How do I enable dark mode?", cached, "--json").stdout)
        for cached in ("how do I enable dark mode", "How do I disable dark mode?")
    )
    assert same["serve"]
    assert not trap["serve"]
    assert same["risk"] < 0.0085 < 0.25 < trap["risk"]
    assert same["stage"] in ("features", "cross-encoder")
    assert trap["spoke"]


@pytest.mark.model
def test_the_words_for_people(tmp_path: Path) -> None:
    told = explained(tmp_path, "Take 5 mg a day?", "Take 50 mg a day?").stdout
    rows = {line.split("  ")[0] for line in told.splitlines()}
    assert {"similarity", "stage", "probability", "risk", "spoke", "generate"} <= rows
    static = explained(tmp_path, "Take 5 mg a day?", "Take 50 mg a day?", kind="static").stdout
    assert "generate" in static
    assert "number" in static


def test_questions_that_are_none(tmp_path: Path) -> None:
    done = explained(tmp_path, " ", "What?")
    assert done.exit_code == 2
    assert "two questions are needed" in done.output


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["explain", "a", "b", "--config", str(tmp_path / "none.toml")])
    assert done.exit_code == 2
