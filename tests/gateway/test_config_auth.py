"""The [auth] table of config.toml."""

from __future__ import annotations

import tomllib

import pytest

from gateway.config import parse
from gateway.config_problems import ConfigError
from gateway.settings import Auth

A, B = "a" * 64, "b" * 64


def auth(toml: str, **environment: str) -> Auth:
    return parse(tomllib.loads(toml), environment, source="c.toml").auth


def problems(toml: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        auth(toml, **environment)
    return [line.removeprefix("c.toml: ") for line in str(caught.value).splitlines()]


def test_keys_with_all_they_may_have() -> None:
    read = auth(
        f'[auth]\nmode = "keys"\n[auth.keys.web]\nsha256 = "{A}"\ntenant = "shop"\n'
        "requests_per_minute = 600\ntokens_per_minute = 200_000\nbudget_usd_per_month = 50\n"
        '[auth.keys.batch]\nsha256 = "env::BATCH"\n',
        BATCH=B,
    )
    assert read.keys["web"].model_dump() == {
        "sha256": A,
        "tenant": "shop",
        "requests_per_minute": 600,
        "tokens_per_minute": 200_000,
        "budget_usd_per_month": 50.0,
    }
    assert read.keys["batch"].model_dump(exclude_none=True) == {"sha256": B}


def test_keys_may_wait_in_the_file_while_the_mode_is_another() -> None:
    assert auth(f'[auth.keys.web]\nsha256 = "{A}"').mode == "passthrough"


WEB = f'[auth.keys.web]\nsha256 = "{A}"\n'


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        (
            '[auth]\nmode = "keys"',
            'auth.keys: expected at least one [auth.keys.NAME] table when auth.mode = "keys" '
            "(`lockgate keys new NAME`)",
        ),
        ('[auth]\nmode = "key"', "auth.mode = \"key\": expected one of 'passthrough', 'keys', 'open'"),
        (
            f'{WEB}[auth.keys.b]\nsha256 = "{A.upper()}"',
            "auth.keys.b.sha256 = (secret): expected a key of its own: auth.keys.web has the same",
        ),
        (
            '[auth.keys.web]\nsha256 = "lg-plain"',
            "auth.keys.web.sha256 = (secret): expected the SHA-256 of a key, 64 hex digits "
            "(`lockgate keys hash`)",
        ),
        (f'[auth.keys.web]\nsha256 = "{A}\\n"', "auth.keys.web.sha256 = (secret): expected the SHA-256"),
        ("[auth.keys.web]\n", "auth.keys.web.sha256: expected a value; the key is missing"),
        ("[auth.keys.web]\nsha256 = 5", "auth.keys.web.sha256 = (secret): expected text in quotes"),
        (f'{WEB}tenant = ""', "auth.keys.web.tenant: expected text that is not empty"),
        (f"{WEB}tenant = 5", "auth.keys.web.tenant = 5: expected text in quotes"),
        (
            f"{WEB}requests_per_minute = 0",
            "auth.keys.web.requests_per_minute = 0: expected a number of at least 1",
        ),
        (
            f"{WEB}tokens_per_minute = 1.5",
            "auth.keys.web.tokens_per_minute = 1.5: expected a whole number",
        ),
        (
            f"{WEB}budget_usd_per_month = 0",
            "auth.keys.web.budget_usd_per_month = 0: expected a number of more than 0",
        ),
        (f"{WEB}budget_usd_per_month = inf", "auth.keys.web.budget_usd_per_month = inf: expected a number"),
        (
            f"{WEB}budget = 5",
            "auth.keys.web.budget = (secret): expected one of the known keys budget_usd_per",
        ),
        (f'[auth.keys.""]\nsha256 = "{A}"', "auth.keys.: expected text that is not empty"),
        ('[auth]\nkey = "x"', "auth.key = (secret): expected one of the known keys keys, mode"),
    ],
)
def test_each_problem_names_key_value_and_expectation(toml: str, said: str) -> None:
    (line,) = problems(toml)
    assert line.startswith(said)


def test_every_key_that_is_there_twice_is_named() -> None:
    both = f'[auth.keys.b]\nsha256 = "{A}"\n[auth.keys.c]\nsha256 = "{A}"\n'
    assert [line.split(" ")[0] for line in problems(WEB + both)] == [
        "auth.keys.b.sha256",
        "auth.keys.c.sha256",
    ]


@pytest.mark.parametrize(
    "toml",
    [
        '[auth]\nkeys = "lg-plain"',
        '[auth]\nkeys = ["lg-plain"]',
        '[auth]\nlg = "lg-plain"',
        '[auth.keys]\nweb = "lg-plain"',
        '[auth.keys]\nmode = "lg-plain"',
        '[auth.keys]\ntenant = "lg-plain"',
        '[auth.keys.web]\nkey = "lg-plain"',
        '[auth.keys.web]\nsha256 = ["lg-plain"]',
    ],
)
def test_a_key_in_the_wrong_place_is_not_shown(toml: str) -> None:
    assert "lg-plain" not in "".join(problems(toml))
