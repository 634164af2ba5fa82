"""The figures behind `/admin/stats` and `lockgate stats`: of the metrics, and by dimension of the ledger."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, get_args

import orjson

from embeddings.protocols import StoreSize
from gateway.errors import RequestError
from gateway.ledger import Ledger
from gateway.ledger_rows import HITS, MICRO, Dimension, LedgerRow
from gateway.ledger_store import LedgerError
from gateway.metrics import Metrics

DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
FORMATS = ("json", "csv")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def figures(
    metrics: Metrics, *, size: StoreSize, degraded: dict[str, str], uptime_s: float
) -> dict[str, Any]:
    """Counts since the start. `hit_ratio` is hits over the requests that a cache could have answered."""
    by_cache: dict[str, float] = defaultdict(float)
    by_route: dict[str, float] = defaultdict(float)
    by_status: dict[str, float] = defaultdict(float)
    for labels, value in _samples(metrics.requests):
        by_status[labels["status"]] += value
        if labels["status"] == "200":
            by_cache[labels["cache"]] += value
            if labels["route"]:
                by_route[labels["route"]] += value
    answered = sum(by_cache.values())
    cacheable = answered - by_cache["bypass"]
    tokens: dict[str, dict[str, int]] = defaultdict(dict)
    for labels, value in _samples(metrics.tokens):
        tokens[labels["model"]][labels["direction"]] = int(value)
    return {
        "uptime_s": round(uptime_s, 1),
        "requests": int(sum(by_status.values())),
        "by_status": _whole(by_status),
        "by_cache": _whole(by_cache),
        "by_route": _whole(by_route),
        "hit_ratio": round(sum(by_cache[kind] for kind in HITS) / cacheable, 4) if cacheable else 0.0,
        "entries": size.entries,
        "cache_bytes": size.stored_bytes,
        "tokens": dict(tokens),
        "saved_tokens": int(_total(metrics.saved_tokens)),
        "cost_usd": round(_total(metrics.cost_usd), 6),
        "saved_usd": round(_total(metrics.saved_usd), 6),
        "faults": {labels["part"]: int(value) for labels, value in _samples(metrics.cache.faults)},
        "degraded": degraded,
    }


def ledger_figures(
    ledger: Ledger, by: Dimension, since: date | None = None, until: date | None = None
) -> dict[str, Any]:
    """A row for each value of a dimension, and their total. Reads the file, so call it on another thread.
    Raises LedgerError."""
    rows = ledger.by(by, since, until)
    return {
        "by": by,
        "since": since.isoformat() if since else None,
        "until": until.isoformat() if until else None,
        "rows": [{by: row.name, **_ledger_row(row)} for row in rows],
        "total": _ledger_row(LedgerRow.total(rows)),
    }


def ledger_page(ledger: Ledger, parameters: Mapping[str, str]) -> tuple[bytes, str]:
    """The body of `/admin/stats?by=…` and its content type. Call it on another thread.

    Parameters: `by`, a dimension; `since` and `until`, UTC days YYYY-MM-DD, both included; `format`, json or
    csv (RFC 4180, without the total). Raises RequestError: 400 names a bad parameter, 503 is a ledger that
    cannot be read.
    """
    unknown = sorted(parameters.keys() - {"by", "since", "until", "format"})
    if unknown:
        raise _bad(unknown[0], parameters[unknown[0]], "one of by, since, until, format")
    by = next((name for name in DIMENSIONS if name == parameters.get("by", "")), None)
    if by is None:
        raise _bad("by", parameters.get("by", ""), f"one of {', '.join(DIMENSIONS)}")
    form = parameters.get("format", "json")
    if form not in FORMATS:
        raise _bad("format", form, f"one of {', '.join(FORMATS)}")
    since, until = _day("since", parameters), _day("until", parameters)
    try:
        figures = ledger_figures(ledger, by, since, until)
    except LedgerError as error:
        raise RequestError(f"{error}.", status=503, kind="server_error") from None
    if form == "csv":
        return _csv(figures["rows"], [by, *figures["total"]]), "text/csv; charset=utf-8"
    return orjson.dumps(figures), "application/json"


def _ledger_row(row: LedgerRow) -> dict[str, int | float]:
    sums = row.sums
    return {
        "requests": sums.requests,
        "hits": row.hits,
        "errors": sums.errors,
        "cancelled": sums.cancelled,
        "generations": sums.generations,
        "upstream_calls": sums.upstream_calls,
        "estimated": sums.estimated,
        "prompt_tokens": sums.prompt_tokens,
        "completion_tokens": sums.completion_tokens,
        "cached_tokens": sums.cached_tokens,
        "cache_write_tokens": sums.cache_write_tokens,
        "saved_tokens": sums.saved_tokens,
        "embed_seconds": sums.embed_us / MICRO,
        "verify_seconds": sums.verify_us / MICRO,
        "cost_usd": row.cost_usd,
        "without_usd": row.without_usd,
        "overhead_usd": row.overhead_usd,
        "saving_usd": row.saving_usd,
    }


def _csv(rows: list[dict[str, Any]], columns: list[str]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _cell(value: str | float) -> str:
    if isinstance(value, float):  # spreadsheets differ over 1e-07
        return f"{Decimal(repr(value)):f}"
    text = str(value)
    # A spreadsheet runs what begins like a formula, and clients choose the names of tenants and models:
    # https://owasp.org/www-community/attacks/CSV_Injection
    return f"'{text}" if isinstance(value, str) and text.startswith(("=", "+", "-", "@")) else text


def _day(name: str, parameters: Mapping[str, str]) -> date | None:
    given = parameters.get(name)
    if given is None:
        return None
    try:
        return date.fromisoformat(given if _DAY.fullmatch(given) else "")
    except ValueError:
        raise _bad(name, given, "a day, YYYY-MM-DD") from None


def _bad(name: str, value: str, expected: str) -> RequestError:
    return RequestError(f"{name} = {value!r}: expected {expected}.", param=name)


def _samples(counter: Any) -> list[tuple[dict[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for family in counter.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    ]


def _total(counter: Any) -> float:
    return sum(value for _, value in _samples(counter))


def _whole(counts: dict[str, float]) -> dict[str, int]:
    return {name: int(value) for name, value in sorted(counts.items()) if value}
