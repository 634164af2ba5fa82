"""`lockgate keys`: make the keys of [auth.keys], and hash those that people have already."""

from __future__ import annotations

import json
import re
import sys

import click

_BARE_TOML_KEY = re.compile(r"[A-Za-z0-9_-]+")
_HEADER_VALUE = re.compile(r"[!-~]+")
_MAX_KEY_BYTES = 4096


def is_terminal() -> bool:
    return sys.stdin.isatty()


@click.group()
def keys() -> None:
    """Make the keys that let clients in (auth.mode = "keys")."""


@keys.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def new(name: str, as_json: bool) -> None:
    """Make a key, shown this once, and its table for config.toml.

    NAME: letters, digits, _ and -; it names the key in the configuration, the logs and the figures.
    """
    from gateway.cli import UserError
    from gateway.keys import new_key, sha256_of

    if not _BARE_TOML_KEY.fullmatch(name):
        raise UserError(f"NAME = {name!r}: expected letters, digits, _ and - only")
    key = new_key()
    sha256 = sha256_of(key)
    table = f'[auth.keys.{name}]\nsha256 = "{sha256}"'
    if as_json:
        click.echo(json.dumps({"name": name, "key": key, "sha256": sha256, "toml": table}))
    else:
        click.echo(f"The key, for the client; it is not shown again:\n{key}\n\nFor config.toml:\n{table}")


@keys.command(name="hash")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def hash_key(as_json: bool) -> None:
    """Print the SHA-256 of a key, read from stdin or, on a terminal, asked for."""
    from gateway.cli import UserError
    from gateway.keys import sha256_of

    if is_terminal():
        text = click.prompt("Key", hide_input=True, err=True, type=str)
    else:
        text = sys.stdin.buffer.read(_MAX_KEY_BYTES + 1).decode("latin-1")
    key = text.strip()
    if not key:
        raise UserError("stdin: expected a key, and there is none")
    if not _HEADER_VALUE.fullmatch(key) or len(text) > _MAX_KEY_BYTES:
        raise UserError(
            f"stdin: expected one key of printable ASCII without spaces, {_MAX_KEY_BYTES} at most"
        )
    sha256 = sha256_of(key)
    click.echo(json.dumps({"sha256": sha256}) if as_json else sha256)
