"""Reading config.toml: every problem at once, each with key path, value and what was expected."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.config_problems import ConfigError, Problem, problems_of, shown
from gateway.settings import Settings


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings from a TOML file, or the built-in ones when `path` is None. Raises ConfigError."""
    if path is None:
        return parse({}, environment, source="defaults")
    try:
        text = path.read_bytes().decode("utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        reason = f"a readable file ({error.strerror or error})"
        raise ConfigError([Problem(key="", value="", expected=reason)], str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(key="", value="", expected=f"valid TOML: {error}")], str(path)) from None
    return parse(table, environment, source=str(path))


def parse(table: Mapping[str, Any], environment: Mapping[str, str], *, source: str) -> Settings:
    """Settings from parsed TOML: references resolved, default models filled in, names checked."""
    problems: list[Problem] = []
    resolved = _resolve(dict(table), environment, "", problems)
    if not any(table.get(name) for name in ("models", "routes", "backends")):
        resolved = _with_default_models(resolved, environment)
    try:
        settings = Settings.model_validate(resolved)
    except ValidationError as error:
        problems += problems_of(error, table)
        raise ConfigError(problems, source) from None
    problems += [
        Problem(key=key, value=shown(key, value), expected=expected)
        for key, value, expected in settings.broken_references()
    ]
    problems += _problems_of_rules(settings.cache.volatile.rules)
    if problems:
        raise ConfigError(problems, source)
    return settings


def _problems_of_rules(rules: str) -> list[Problem]:
    from gateway.volatile_rules import load_rules

    try:
        load_rules(None if rules == "default" else Path(rules).expanduser())
    except ConfigError as error:
        key = "cache.volatile.rules"
        return [Problem(key=key, value=shown(key, rules), expected=f"usable rules: {error}")]
    return []


def _with_default_models(table: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Small is the built-in model. Large is a hosted API when its key is in the environment."""
    backends: dict[str, Any] = {"builtin": {"kind": "batched"}}
    large: dict[str, Any] = {"backend": "builtin"}
    unknown = {}
    if key := environment.get("OPENAI_API_KEY"):
        backends["openai"] = {"kind": "openai", "api_key": key}
        large = {"backend": "openai", "name": "gpt-5"}
        unknown = {"unknown_models": {"backend": "openai"}}
    elif key := environment.get("ANTHROPIC_API_KEY"):
        backends["anthropic"] = {"kind": "anthropic", "api_key": key}
        large = {"backend": "anthropic", "name": "claude-sonnet-4-5"}
        unknown = {"unknown_models": {"backend": "anthropic"}}
    server = table.get("server", {})
    if isinstance(server, dict):
        server = unknown | server
    return {
        **table,
        "server": server,
        "backends": backends,
        "models": {"small": {"backend": "builtin"}, "large": large},
        "routes": {"auto": {"small": "small", "large": "large"}},
    }


def _resolve(value: Any, environment: Mapping[str, str], key: str, problems: list[Problem]) -> Any:
    """Replace `env::NAME` and `file::PATH` by what they refer to, at any depth."""
    if isinstance(value, dict):
        children = {
            name: _resolve(child, environment, f"{key}.{name}" if key else name, problems)
            for name, child in value.items()
        }
        return {name: child for name, child in children.items() if child is not None}
    if isinstance(value, list):
        return [_resolve(child, environment, f"{key}[{i}]", problems) for i, child in enumerate(value)]
    if not isinstance(value, str):
        return value
    if value.startswith("env::"):
        found = environment.get(value[5:])
        # An unset admin token means loopback only, which is the safe side; other secrets are needed.
        if not found and key != "server.admin_token":
            wanted = f"the environment variable {value[5:]} to be set"
            problems.append(Problem(key=key, value=f'"{value}"', expected=wanted))
        return found or None
    if value.startswith("file::"):
        try:
            return Path(value[6:]).expanduser().read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            problems.append(Problem(key=key, value=f'"{value}"', expected=f"a readable file ({reason})"))
            return None
    return value
