"""`lockgate keys`: what it makes lets its client in."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib

import click
import pytest
from click.testing import CliRunner, Result

from gateway.auth import Authenticator
from gateway.cli import main
from gateway.config import parse
from gateway.keys import key_ring


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["keys", *arguments], input=stdin)


def lets_in(key: str, table: str) -> str | None:
    toml = f'[auth]\nmode = "keys"\n{table}\n'
    settings = parse(tomllib.loads(toml), {}, source="c.toml")
    known = Authenticator("keys", b"s" * 32, keys=key_ring(settings.auth.keys))
    return known.identify({b"authorization": f"Bearer {key}".encode()}).key


def test_a_new_key_and_its_table_fit() -> None:
    done = run("new", "web-2")
    assert done.exit_code == 0
    (key,) = re.findall(r"^lg-[\w-]{43}$", done.stdout, re.MULTILINE)
    table = done.stdout[done.stdout.index("[auth.keys.web-2]") :]
    assert lets_in(key, table) == "web-2"
    assert key not in table
    assert done.stdout.count(key) == 1


def test_a_new_key_in_json() -> None:
    told = json.loads(run("new", "web", "--json").stdout)
    assert set(told) == {"name", "key", "sha256", "toml"}
    assert told["sha256"] == hashlib.sha256(told["key"].encode()).hexdigest()
    assert lets_in(told["key"], told["toml"]) == "web"


def test_each_new_key_is_another() -> None:
    assert run("new", "web").stdout != run("new", "web").stdout


@pytest.mark.parametrize("name", ["", "two words", "a.b", "é", 'a"', "a]\n[server"])
def test_a_name_that_toml_would_quote_is_refused(name: str) -> None:
    done = run("new", name)
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "expected letters, digits" in done.stderr


@pytest.mark.parametrize("stdin", [b"sk-mine", b"sk-mine\n", b"  sk-mine\r\n"])
def test_the_hash_of_a_key_from_stdin(stdin: bytes) -> None:
    sha256 = hashlib.sha256(b"sk-mine").hexdigest()
    assert run("hash", stdin=stdin).stdout == f"{sha256}\n"
    assert json.loads(run("hash", "--json", stdin=stdin).stdout) == {"sha256": sha256}
    assert lets_in("sk-mine", f'[auth.keys.mine]\nsha256 = "{sha256}"') == "mine"


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        (b"", "there is none"),
        (b" \n", "there is none"),
        (b"sk-one\nsk-two\n", "one key"),
        ("schlüssel".encode(), "printable ASCII"),
        (b"\xff\x00", "printable ASCII"),
        (b"k" * 5000, "4096"),
    ],
)
def test_what_is_no_key_is_refused_and_not_repeated(stdin: bytes, said: str) -> None:
    done = run("hash", stdin=stdin)
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
    assert "sk-one" not in done.stderr


def test_on_a_terminal_the_key_is_asked_for_without_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def prompt(text: str, **how: object) -> str:
        asked.append((text, how["hide_input"], how["err"]))
        return "sk-mine"

    monkeypatch.setattr("gateway.cli_keys.is_terminal", lambda: True)
    monkeypatch.setattr(click, "prompt", prompt)
    assert run("hash").stdout == f"{hashlib.sha256(b'sk-mine').hexdigest()}\n"
    assert asked == [("Key", True, True)]
