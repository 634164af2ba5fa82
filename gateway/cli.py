"""`lockgate`: the command line. Commands import what they need when they run, so that help is quick."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from gateway.cli_cache import cache
from gateway.cli_explain import explain
from gateway.cli_keys import keys
from gateway.cli_router import router
from gateway.cli_stats import stats
from gateway.cli_verifier import verifier

DEFAULT_CONFIG = Path("config.toml")


class UserError(click.ClickException):
    """Something the user can mend: one line on stderr, exit status 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        for line in self.format_message().splitlines():
            click.echo(f"lockgate: {line}", err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lockgate", prog_name="lockgate")
def main() -> None:
    """Semantic cache and routing gateway for LLM APIs."""


config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The configuration file; without it ./config.toml if there is one, else the defaults.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


def chosen_config(path: Path | None) -> Path | None:
    """The file that was asked for, else ./config.toml if it exists."""
    return path or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)


@main.command()
@config_option
@click.option("--host", help="Instead of server.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="Instead of server.port; 0 takes a free one.")
@click.option("--json", "as_json", is_flag=True, help="Start-up and log lines as JSON.")
def serve(config_path: Path | None, host: str | None, port: int | None, as_json: bool) -> None:
    """Start the gateway."""
    from gateway.server import run

    run(chosen_config(config_path), host=host, port=port, as_json=as_json)


@main.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@json_option
def check(path: Path | None, as_json: bool) -> None:
    """Check a configuration file: exit status 0, or 2 and every problem found."""
    from gateway.config import load
    from gateway.config_problems import ConfigError

    path = chosen_config(path)
    source = str(path or "defaults")
    problems: list[dict[str, str]] = []
    try:
        load(path)
    except ConfigError as error:
        problems = [
            {"key": problem.key, "value": problem.value, "expected": problem.expected}
            for problem in error.problems
        ]
        if not as_json:
            raise UserError(str(error)) from None
    if as_json:
        click.echo(json.dumps({"source": source, "ok": not problems, "problems": problems}))
    else:
        click.echo(f"{source}: ok")
    sys.exit(2 if problems else 0)


@main.command()
@config_option
@json_option
def doctor(config_path: Path | None, as_json: bool) -> None:
    """Look over the installation: packages, models, hardware, folders."""
    from gateway.doctor import examine

    findings = examine(chosen_config(config_path))
    bad = any(finding.status == "bad" for finding in findings)
    if as_json:
        rows = [{"part": f.part, "status": f.status, "detail": f.detail} for f in findings]
        click.echo(json.dumps({"ok": not bad, "findings": rows}))
    else:
        width = max(len(finding.part) for finding in findings)
        for finding in findings:
            mark = {"ok": "ok ", "note": "-- ", "bad": "BAD"}[finding.status]
            click.echo(f"{mark} {finding.part:<{width}}  {finding.detail}")
    sys.exit(2 if bad else 0)


main.add_command(cache)
main.add_command(router)
main.add_command(stats)
main.add_command(keys)
main.add_command(explain)
main.add_command(verifier)
