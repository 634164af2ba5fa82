"""What is wrong with a config file, in words: key path, value, what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gateway.settings import BACKEND_KINDS, AuthKey, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a config file. `key` is the full path, "" for the file as a whole."""

    key: str
    value: str
    expected: str

    def __str__(self) -> str:
        if not self.key:
            return self.expected
        shown = f" = {self.value}" if self.value else ""
        return f"{self.key}{shown}: expected {self.expected}"


class ConfigError(Exception):
    """The configuration cannot be used; `problems` lists all that was found."""

    def __init__(self, problems: list[Problem], source: str) -> None:
        self.problems = problems
        self.source = source
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))


_EXPECTED = {
    "missing": "a value; the key is missing",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text in quotes",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "string_too_short": "text that is not empty",
    "finite_number": "a number",
    "string_pattern_mismatch": "an address that begins with http:// or https://",
}
_SHOWN_OF_A_KEY = AuthKey.model_fields.keys() - {"sha256"}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def problems_of(error: ValidationError, table: Mapping[str, Any]) -> list[Problem]:
    found: dict[str, Problem] = {}
    for item in error.errors(include_url=False):
        steps = _steps(item["loc"])
        key = ".".join(str(step) for step in steps)
        problem = Problem(key=key, value=shown(key, _value_at(table, steps)), expected=_expected(dict(item)))
        if key in found and problem.expected not in found[key].expected:
            problem = Problem(
                key=key, value=problem.value, expected=f"{found[key].expected} or {problem.expected}"
            )
        found[key] = problem
    return list(found.values())


def _steps(location: tuple[str | int, ...]) -> list[str | int]:
    """The path of the key: a union reports the branch it tried as a further step, which is no part of it."""
    steps = list(location)
    if steps[0] == "backends" and len(steps) > 2 and steps[2] in BACKEND_KINDS:
        del steps[2]
    # The first two steps are a table and a name that the user chose, whatever it is.
    further = [
        step for step in steps[2:] if step not in ("float", "constrained-float") and "[" not in str(step)
    ]
    return steps[:2] + further


def _expected(item: dict[str, Any]) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if kind == "string_pattern_mismatch" and item["loc"][-1] == "sha256":
        return "the SHA-256 of a key, 64 hex digits (`lockgate keys hash`)"
    if kind == "extra_forbidden":
        return f"one of the known keys {', '.join(_known_keys(item['loc'][:-1]))}"
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    if kind == "literal_error":
        return f"one of {context['expected']}".replace(" or ", ", ")
    if kind == "union_tag_invalid":
        return f"kind to be one of {', '.join(BACKEND_KINDS)}"
    if kind == "union_tag_not_found":
        return f"a kind: one of {', '.join(BACKEND_KINDS)}"
    bounds = [f"{words} {_number(context[name])}" for name, words in _BOUNDS.items() if name in context]
    return f"a number of {' and '.join(bounds)}" if bounds else str(item["msg"])


def _number(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _known_keys(steps: tuple[str | int, ...]) -> list[str]:
    """The keys of the table at `steps`, read from the settings' own JSON schema."""
    schema: dict[str, Any] = Settings.model_json_schema()
    node = schema
    for step in steps:
        if "discriminator" in node:
            node = {"$ref": node["discriminator"]["mapping"][step]}
        else:
            node = node.get("properties", {}).get(step) or node["additionalProperties"]
        node = next((branch for branch in node.get("anyOf", ()) if "$ref" in branch), node)
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    return sorted(node.get("properties", {}))


def _value_at(table: Any, steps: list[str | int]) -> Any:
    for step in steps:
        if isinstance(table, Mapping) and step in table:
            table = table[str(step)]
        else:
            return None
    return table


def shown(key: str, value: Any) -> str:
    """The value as TOML would write it; secrets and whole tables are not shown."""
    if value is None or value == "" or isinstance(value, Mapping):
        return ""
    if _may_be_secret(key):
        return "(secret)"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _may_be_secret(key: str) -> bool:
    """Under auth everything that is not known to be none: a key may stand where none belongs."""
    name = key.rsplit(".", 1)[-1]
    if key.startswith("auth."):
        return key != "auth.mode" and (key.count(".") < 3 or name not in _SHOWN_OF_A_KEY)
    return name in ("api_key", "admin_token", "sha256")
