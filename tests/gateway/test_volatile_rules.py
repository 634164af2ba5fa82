"""Reading the rules about questions that change with time."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from gateway.config_problems import ConfigError
from gateway.volatile_rules import load_rules

RULE = """
[[rules]]
name = "tide"
language = "en"
pattern = "high tide"
reason = "the tide"
ttl_s = 90
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "own.toml"
    path.write_text(text, "utf-8")
    return path


def problems_of(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_rules(path)
    assert all(line.startswith(f"{path}: ") for line in str(caught.value).splitlines())
    return str(caught.value)


def test_the_shipped_rules_cover_two_languages_and_say_why() -> None:
    rules = load_rules(None).rules
    assert {rule.language for rule in rules} == {"en", "ko"}
    assert all(f"the question asks about {rule.reason}".isprintable() for rule in rules)
    assert min(rule.ttl_s for rule in rules) == 0


def test_the_shipped_file_lies_in_its_package() -> None:
    assert (resources.files("policies") / "volatile.toml").is_file()


def test_ones_own_rules_stand_instead_of_the_shipped_ones(tmp_path: Path) -> None:
    rules = load_rules(written(tmp_path, 'exceptions = ["high tide mark"]' + RULE))
    found = rules.match("When is high tide?")
    assert found is not None
    assert (found.name, found.reason, found.ttl_s) == ("tide", "the tide", 90)
    assert rules.match("the high tide mark") is None
    assert rules.match("What time is it?") is None


def test_a_pattern_may_go_over_several_lines(tmp_path: Path) -> None:
    lines = "'''\n  high tide|\n  low tide\n'''"
    rules = load_rules(written(tmp_path, RULE.replace('"high tide"', lines)))
    assert rules.match("low tide") is not None
    assert rules.match("slack water") is None


def test_an_empty_list_of_rules_is_a_way_to_have_none(tmp_path: Path) -> None:
    assert load_rules(written(tmp_path, "rules = []")).match("What time is it?") is None


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('pattern = "high tide"', 'pattern = "high ("', 'rules.tide.pattern = "high (": expected a regular'),
        ('"high tide"', "3", "rules.tide.pattern = 3: expected a regular expression in quotes"),
        ('"high tide"', '"(high) tide"', "capture"),
        ('"high tide"', '"x*"', "empty text"),
        ("ttl_s = 90", "", "rules.tide.ttl_s: expected a value; the key is missing"),
        ('name = "tide"', "", "rules[0].name: expected a value; the key is missing"),
        ("ttl_s = 90", "ttl_s = -1", "rules.tide.ttl_s = -1: expected a number of seconds, at least 0"),
        ("ttl_s = 90", "ttl_s = inf", "rules.tide.ttl_s = inf: expected a number of seconds"),
        ("ttl_s = 90", "ttl_s = nan", "rules.tide.ttl_s = nan: expected a number of seconds"),
        ("ttl_s = 90", "ttl_s = true", "rules.tide.ttl_s = true: expected a number of seconds"),
        ("ttl_s = 90", 'ttl_s = "90"', 'rules.tide.ttl_s = "90": expected a number of seconds'),
        ("ttl_s = 90", "ttl_s = 90\nttl = 3", "rules.tide.ttl = 3: expected one of the known keys name,"),
        ('reason = "the tide"', 'reason = " "', "rules.tide.reason"),
        ('language = "en"', "language = 1", "rules.tide.language = 1: expected text"),
        (
            "ttl_s = 90",
            f"ttl_s = 90\n{RULE}",
            'rules[1].name = "tide": expected a name that no other rule has',
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert told in problems_of(written(tmp_path, RULE.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rules = [", "expected valid TOML"),
        ("", "rules: expected tables, each under [[rules]]"),
        ("rules = 3", "rules = 3: expected tables"),
        ("rules = [3]", "rules = [3]: expected tables"),
        ("[rules]", "rules: expected tables"),
        (f"ttl_s = 3{RULE}", "ttl_s = 3: expected one of the known keys exceptions, rules"),
        (f"exceptions = 3{RULE}", "exceptions = 3: expected a list of patterns"),
        (f'exceptions = ["ok", "("]{RULE}', 'exceptions[1] = "(": expected a regular expression'),
        (f"exceptions = [3]{RULE}", "exceptions[0] = 3: expected a regular expression in quotes"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, told: str) -> None:
    assert told in problems_of(written(tmp_path, text))


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    broken = RULE.replace("90", "-1") + RULE.replace("tide", "surf").replace('"the surf"', '""')
    assert len(problems_of(written(tmp_path, broken)).splitlines()) == 2


def test_a_file_that_cannot_be_read_or_is_no_text(tmp_path: Path) -> None:
    assert "expected a readable file" in problems_of(tmp_path / "absent.toml")
    assert "expected a readable file" in problems_of(tmp_path)
    (tmp_path / "own.toml").write_bytes(b"\xff\xfe")
    assert "expected valid TOML" in problems_of(tmp_path / "own.toml")
