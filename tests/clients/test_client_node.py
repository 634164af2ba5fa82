"""OpenAI's and Anthropic's clients for Node: the checks in node/*.mjs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.clients.node_packages import SCRIPTS, RegistryUnreachable, installed, run
from tests.clients.stack import CANCELLED_WITHIN_S, Stack

_CHECK = re.compile(r"^ *check\((?:\"(.+?)\"|`(.+?): \$\{model\}`)", re.MULTILINE)
_MODELS = re.compile(r"^for \(const model of (\[.+?\])\)", re.MULTILINE)

Results = dict[str, str | None]


def names_in(script: str) -> list[str]:
    """The names of a script's checks; those in a loop over models have one for each."""
    text = (SCRIPTS / script).read_text()
    models = json.loads(_MODELS.findall(text)[0])
    names = []
    for single, repeated in _CHECK.findall(text):
        names += [single] if single else [f"{repeated}: {model}" for model in models]
    return names


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        installed()
    except RegistryUnreachable as error:
        pytest.skip(f"the npm registry cannot be reached: {error}")
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def aborted_before(stack: Stack) -> tuple[int, int]:
    return stack.openai.aborted, stack.claude.aborted


@pytest.fixture(scope="module")
def openai_results(scratch: Path, stack: Stack, aborted_before: tuple[int, int]) -> Results:
    results: Results = json.loads(run("openai.mjs", scratch, stack.server.base_url))
    return results


@pytest.fixture(scope="module")
def anthropic_results(scratch: Path, stack: Stack, aborted_before: tuple[int, int]) -> Results:
    results: Results = json.loads(run("anthropic.mjs", scratch, stack.server.url))
    return results


@pytest.mark.parametrize("name", names_in("openai.mjs"))
def test_openais_client(openai_results: Results, name: str) -> None:
    assert openai_results[name] is None, openai_results[name]


@pytest.mark.parametrize("name", names_in("anthropic.mjs"))
def test_anthropics_client(anthropic_results: Results, name: str) -> None:
    assert anthropic_results[name] is None, anthropic_results[name]


def test_no_check_is_left_out(openai_results: Results, anthropic_results: Results) -> None:
    assert sorted(openai_results) == sorted(names_in("openai.mjs"))
    assert sorted(anthropic_results) == sorted(names_in("anthropic.mjs"))


def test_streams_that_are_left_reach_the_upstream(
    aborted_before: tuple[int, int], openai_results: Results, anthropic_results: Results, stack: Stack
) -> None:
    assert openai_results["a stream is left"] is anthropic_results["a stream is left"] is None
    by_openai, by_anthropic = aborted_before
    stack.openai.until(lambda counted: counted.aborted == by_openai + 1, CANCELLED_WITHIN_S)
    stack.claude.until(lambda counted: counted.aborted == by_anthropic + 1, CANCELLED_WITHIN_S)
