"""The README says what is true: its tables, its config, its commands, its links."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.config import load, parse
from tests.servers import Server, serving

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_tables_are_those_of_the_results() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "tables.py", "--check"], check=False)
    assert done.returncode == 0, "make docs"


def test_the_config_is_valid() -> None:
    (example,) = blocks("toml")
    read = parse(tomllib.loads(example), {"OPENAI_API_KEY": "sk-test"}, source="README")
    assert set(read.models) == {"small", "large"}


def test_links_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_make_targets_are_one_line_each_and_the_readmes_exist() -> None:
    rules = re.findall(r"^(\w+):.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    targets = dict(rules)
    for name in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert name in targets
    assert all(recipe.count("\n") <= 1 for recipe in targets.values())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("readme")) as running:
        yield running


@pytest.mark.model
def test_the_curl_line_and_the_client_lines_work_as_printed(server: Server, tmp_path: Path) -> None:
    curl, admin = [block for block in blocks("console") if "curl" in block]
    curl = curl.replace("http://127.0.0.1:8080", server.url)
    for expected in ("miss", "hit-exact"):
        done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True)
        assert f"x-lockgate-cache: {expected}" in done.stdout
        assert "Paris" in done.stdout
    in_other_words = "Can you tell me what the capital of France is?"
    reworded = curl.replace("What is the capital of France?", in_other_words)
    done = subprocess.run(["bash", "-c", reworded], capture_output=True, text=True, check=True)
    assert "x-lockgate-cache: hit-semantic" in done.stdout

    admin = admin.replace("http://127.0.0.1:8080", server.url)
    done = subprocess.run(["bash", "-c", admin], capture_output=True, text=True, check=True)
    for answered in ('{"entries":[', '"dry_run":true', "No entry is known for the request req_"):
        assert answered in done.stdout

    (script,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", script.replace("http://127.0.0.1:8080", server.url)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "OPENAI_BASE_URL"},
        capture_output=True,
        text=True,
        check=True,
    )
    kinds = re.findall(r"^(miss|hit-semantic|hit-exact) (small|large|None)", done.stdout, re.MULTILINE)
    assert [kind for kind, _ in kinds] == ["miss", "hit-semantic", "miss"]
    assert [route for _, route in kinds] == ["small", "None", "large"]


def test_the_example_configs_are_valid() -> None:
    for path in (ROOT / "examples").glob("*.toml"):
        load(path, {})


@pytest.mark.model
def test_the_client_example_runs(server: Server) -> None:
    script = ROOT / "examples" / "openai_client.py"
    done = subprocess.run(
        [sys.executable, script, server.base_url], capture_output=True, text=True, check=True
    )
    kinds = [line.split()[0] for line in done.stdout.splitlines()]
    assert kinds[1:4] == ["hit-exact", "streamed", "bypass"]
    assert done.stdout.count("'miss'") == 1
