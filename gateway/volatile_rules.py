"""Reading the rules about questions that change with time: the file that ships, or one's own."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from gateway.config_problems import ConfigError, Problem, shown
from policies.volatility import VolatileRule, VolatileRules, why_unusable

_KEYS = VolatileRule.__struct_fields__


def load_rules(path: Path | None) -> VolatileRules:
    """Rules of a TOML file; None is `policies/volatile.toml`, which explains the form. Raises
    ConfigError."""
    file = resources.files("policies") / "volatile.toml" if path is None else path
    try:
        table = tomllib.loads(file.read_bytes().decode("utf-8"))
    except OSError as error:
        expected = f"expected a readable file ({error.strerror or error})"
        raise ConfigError([Problem(key="", value="", expected=expected)], str(file)) from None
    except ValueError as error:  # not TOML, or not UTF-8
        problem = Problem(key="", value="", expected=f"expected valid TOML: {error}")
        raise ConfigError([problem], str(file)) from None
    problems: list[Problem] = []
    exceptions = _exceptions(table, problems)
    rules = _rules(table, problems)
    if problems:
        raise ConfigError(problems, str(file))
    return VolatileRules(rules, exceptions)


def _exceptions(table: Mapping[str, Any], problems: list[Problem]) -> list[str]:
    given = table.get("exceptions", [])
    if not isinstance(given, list):
        problems.append(_problem("exceptions", given, "a list of patterns"))
        return []
    for i, pattern in enumerate(given):
        _check_pattern(f"exceptions[{i}]", pattern, problems)
    return [_joined(pattern) for pattern in given if isinstance(pattern, str)]


def _rules(table: Mapping[str, Any], problems: list[Problem]) -> list[VolatileRule]:
    _check_keys("", table, ("exceptions", "rules"), problems)
    given = table.get("rules")
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        problems.append(_problem("rules", given, "tables, each under [[rules]]"))
        return []
    rules = []
    names: set[Any] = set()
    for i, one in enumerate(given):
        name = one.get("name")
        at = f"rules.{name}" if isinstance(name, str) and name else f"rules[{i}]"
        before = len(problems)
        _check_rule(at, one, problems)
        if len(problems) > before:
            continue
        if name in names:
            problems.append(_problem(f"rules[{i}].name", name, "a name that no other rule has"))
        names.add(name)
        rules.append(VolatileRule(**{**one, "pattern": _joined(one["pattern"])}))
    return rules


def _check_rule(at: str, rule: Mapping[str, Any], problems: list[Problem]) -> None:
    _check_keys(f"{at}.", rule, _KEYS, problems)
    for key in _KEYS:
        value = rule.get(key)
        if key not in rule:
            problems.append(_problem(f"{at}.{key}", None, "a value; the key is missing"))
        elif key == "pattern":
            _check_pattern(f"{at}.{key}", value, problems)
        elif key == "ttl_s":
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                problems.append(_problem(f"{at}.{key}", value, "a number of seconds, at least 0"))
        elif not isinstance(value, str) or not value.strip():
            problems.append(_problem(f"{at}.{key}", value, "text that is not empty"))


def _check_keys(at: str, table: Mapping[str, Any], known: Sequence[str], problems: list[Problem]) -> None:
    expected = f"one of the known keys {', '.join(known)}"
    problems += [_problem(f"{at}{key}", table[key], expected) for key in table if key not in known]


def _check_pattern(key: str, value: Any, problems: list[Problem]) -> None:
    if not isinstance(value, str):
        problems.append(_problem(key, value, "a regular expression in quotes"))
    elif why := why_unusable(_joined(value)):
        problems.append(_problem(key, value, f"a regular expression ({why})"))


def _joined(pattern: str) -> str:
    """A pattern written over several lines: line breaks, and blanks around them, are no part of it."""
    return "".join(line.strip() for line in pattern.splitlines())


def _problem(key: str, value: Any, expected: str) -> Problem:
    return Problem(key=key, value=shown(key, value), expected=expected)
