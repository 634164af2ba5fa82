"""`lockgate stats`: what a running gateway has done, spent and saved."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import click

DIMENSIONS = ("tenant", "key", "model", "day", "route", "cache", "api")
MAX_NAME_CELLS = 40
_COUNTS = (
    ("requests", "requests"),
    ("hits", "hits"),
    ("errors", "errors"),
    ("upstream_calls", "calls"),
    ("prompt_tokens", "tokens in"),
    ("completion_tokens", "tokens out"),
    ("saved_tokens", "tokens saved"),
)
_MONEY = (
    ("cost_usd", "cost USD"),
    ("without_usd", "without"),
    ("overhead_usd", "overhead"),
    ("saving_usd", "saved USD"),
)


@click.command()
@click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="A running gateway.")
@click.option("--token", envvar="LOCKGATE_ADMIN_TOKEN", help="The admin token, if the gateway has one.")
@click.option("--by", type=click.Choice(DIMENSIONS), help="Money and tokens by this, from the ledger.")
@click.option("--since", metavar="YYYY-MM-DD", help="With --by: from this UTC day on.")
@click.option("--until", metavar="YYYY-MM-DD", help="With --by: up to and including this UTC day.")
@click.option("--csv", "as_csv", is_flag=True, help="With --by: comma-separated values on stdout.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def stats(
    url: str,
    token: str | None,
    by: str | None,
    since: str | None,
    until: str | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """What a running gateway has done so far; with --by, what it spent and what it saved.

    "without" is what the same requests would have cost without Lockgate. "saved" is that less the cost, and
    less the overhead, which is what embedding and verifying cost.
    """
    from gateway.cli import UserError

    if by is None and (since or until or as_csv):
        raise UserError("--since, --until and --csv need --by: for example --by day")
    if as_csv and as_json:
        raise UserError("--csv and --json: expected one of them")
    asked = {"by": by, "since": since, "until": until, "format": "csv" if as_csv else None}
    body = _fetch(url, token, {name: value for name, value in asked.items() if value is not None})
    if as_csv:
        click.echo(body, nl=False)
        return
    try:
        figures = json.loads(body)
    except ValueError as error:
        raise UserError(f"{url}: no gateway answers there ({error})") from None
    if by is not None and "rows" not in figures:
        raise UserError(f"{url}: that gateway has no ledger")
    if as_json:
        click.echo(json.dumps(figures))
    elif by is None:
        click.echo(_overview(figures))
    else:
        click.echo(table(figures))


def table(figures: Mapping[str, Any]) -> str:
    """The figures of `/admin/stats?by=…` for a terminal: one line for each row, and their total."""
    by, rows, total = figures["by"], figures["rows"], figures["total"]
    if not rows:
        return "no requests in that time"
    decimals = _decimals([row[key] for row in (*rows, total) for key, _ in _MONEY])
    lines = [[by, *(title for _, title in (*_COUNTS, *_MONEY))]]
    lines += [[_name(row[by]), *_cells(row, decimals)] for row in rows]
    lines.append(["total", *_cells(total, decimals)])
    widths = [max(_width(line[column]) for line in lines) for column in range(len(lines[0]))]
    shown = [
        "  ".join(
            _padded(cell, width, n == 0) for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    shown.insert(-1, "-" * _width(shown[0]))
    if total["without_usd"]:
        share = total["saving_usd"] / total["without_usd"]
        shown.append(f"saved {share:.1%} of what it would have cost, net of embedding and verifying")
    return "\n".join(shown)


def _fetch(url: str, token: str | None, parameters: Mapping[str, str]) -> str:
    import httpx

    from gateway.cli import UserError

    headers = {"authorization": f"Bearer {token}"} if token else {}
    address = f"{url.rstrip('/')}/admin/stats"
    try:
        response = httpx.get(address, params=parameters, headers=headers, timeout=30, trust_env=False)
        response.raise_for_status()
    except httpx.HTTPStatusError as error:
        try:
            detail = error.response.json()["error"]["message"]
        except (ValueError, KeyError, TypeError):
            detail = f"HTTP {error.response.status_code}"
        raise UserError(f"{url}: {detail}") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UserError(f"{url}: no gateway answers there ({error or type(error).__name__})") from None
    if parameters.get("format") == "csv" and "csv" not in response.headers.get("content-type", ""):
        raise UserError(f"{url}: that gateway has no ledger")
    return response.text


def _overview(figures: Mapping[str, Any]) -> str:
    lines = []
    for name, value in figures.items():
        shown = (
            ", ".join(f"{k} {v}" for k, v in value.items()) or "none" if isinstance(value, dict) else value
        )
        lines.append(f"{name:<13} {shown}")
    return "\n".join(lines)


def _cells(row: Mapping[str, Any], decimals: int) -> list[str]:
    counts = [f"{row[key]:,}" for key, _ in _COUNTS]
    return counts + [f"{row[key]:,.{decimals}f}" for key, _ in _MONEY]


def _decimals(amounts: Sequence[float]) -> int:
    """The same for a whole table, so that its columns add up: enough for its largest amount."""
    largest = max(map(abs, amounts))
    return next((digits for least, digits in ((100, 2), (1, 4), (0.01, 6)) if largest >= least), 9)


def _name(name: str) -> str:
    shown, cells = "", 0
    for character in name:
        cells += _width(character)
        if cells > MAX_NAME_CELLS:
            return f"{shown[:-1]}…"
        shown += character if character.isprintable() else "?"
    return shown or "-"


def _width(text: str) -> int:
    """Cells of a terminal: East Asian wide characters take two, combining ones none."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def _padded(cell: str, width: int, left: bool) -> str:
    space = " " * (width - _width(cell))
    return cell + space if left else space + cell
