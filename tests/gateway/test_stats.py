"""The figures of the ledger, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from gateway.errors import RequestError
from gateway.ledger import GenerationPosting, Ledger, RequestPosting
from gateway.ledger_rows import Dimension
from gateway.ledger_store import LedgerError, LedgerStore
from gateway.stats import DIMENSIONS, ledger_figures, ledger_page
from policies.types import Usage
from tests.gateway.ledger_cases import NOON


def fill(ledger: Ledger) -> None:
    """A miss through the small model, a hit on its answer, and a request for a strange name a day later."""
    usage = Usage(prompt_tokens=100, completion_tokens=20)
    shop: dict[str, Any] = {"tenant": "shop", "model": "m", "api": "chat"}
    miss: dict[str, Any] = {**shop, "route": "small", "cache": "miss"}
    hit: dict[str, Any] = {**shop, "route": "", "cache": "hit-exact"}
    lost: dict[str, Any] = {"tenant": '=1+2,"x"', "route": "", "model": "", "api": "messages", "cache": ""}
    ledger.request(RequestPosting(**miss, status=200, without_usd=0.01, embed_s=0.5))
    ledger.generation(GenerationPosting(**miss, usage=usage, cost_usd=0.001))
    ledger.request(RequestPosting(**hit, status=200, without_usd=0.01, saved_tokens=120))
    ledger.request(RequestPosting(**lost, status=404, at=NOON + 86_400))


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    opened = Ledger(LedgerStore(None), usd_per_cpu_hour=0.36, clock=lambda: NOON)
    fill(opened)
    yield opened
    opened.close()


def refused(ledger: Ledger, **parameters: str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        ledger_page(ledger, parameters)
    return caught.value


def test_a_row_tells_what_was_spent_and_saved(ledger: Ledger) -> None:
    figures = ledger_figures(ledger, "tenant")
    assert [row["tenant"] for row in figures["rows"]] == ["shop", '=1+2,"x"']
    assert figures["rows"][0] == {
        "tenant": "shop",
        "requests": 2,
        "hits": 1,
        "errors": 0,
        "cancelled": 0,
        "generations": 1,
        "upstream_calls": 1,
        "estimated": 0,
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "cached_tokens": 0,
        "cache_write_tokens": 0,
        "saved_tokens": 120,
        "embed_seconds": 0.5,
        "verify_seconds": 0.0,
        "cost_usd": 0.001,
        "without_usd": 0.02,
        "overhead_usd": 0.00005,
        "saving_usd": 0.01895,
    }
    assert (figures["total"]["requests"], figures["total"]["errors"]) == (3, 1)


@pytest.mark.parametrize("by", DIMENSIONS)
def test_every_dimension_has_rows_and_the_same_total(ledger: Ledger, by: Dimension) -> None:
    body, content_type = ledger_page(ledger, {"by": by})
    figures = json.loads(body)
    assert content_type == "application/json"
    assert figures["total"] == ledger_figures(ledger, "tenant")["total"]
    assert all(by in row for row in figures["rows"])


def test_since_and_until_choose_days(ledger: Ledger) -> None:
    body, _ = ledger_page(ledger, {"by": "day", "since": "2027-01-16", "until": "2027-01-20"})
    figures = json.loads(body)
    assert (figures["since"], figures["until"]) == ("2027-01-16", "2027-01-20")
    assert [row["day"] for row in figures["rows"]] == ["2027-01-16"]
    assert ledger_figures(ledger, "day", until=date(2027, 1, 15))["total"]["requests"] == 2


def test_csv_reads_back_as_the_json_and_no_cell_is_a_formula(ledger: Ledger) -> None:
    body, content_type = ledger_page(ledger, {"by": "tenant", "format": "csv"})
    rows = list(csv.DictReader(io.StringIO(body.decode(), newline="")))
    figures = ledger_figures(ledger, "tenant")
    assert content_type == "text/csv; charset=utf-8"
    assert [row.pop("tenant") for row in rows] == ["shop", '\'=1+2,"x"']
    for row, expected in zip(rows, figures["rows"], strict=True):
        assert {name: float(value) for name, value in row.items()} == {
            name: value for name, value in expected.items() if name != "tenant"
        }
    assert rows[0]["overhead_usd"] == "0.00005"


def test_csv_of_an_empty_ledger_is_its_header() -> None:
    ledger = Ledger(LedgerStore(None))
    body, _ = ledger_page(ledger, {"by": "model", "format": "csv"})
    ledger.close()
    assert body.startswith(b"model,requests,hits,")
    assert body.count(b"\r\n") == 1


@pytest.mark.parametrize(
    ("parameters", "param", "said"),
    [
        ({}, "by", "expected one of day, tenant, key, route, model, api, cache"),
        ({"by": "colour"}, "by", "by = 'colour': expected one of day"),
        ({"by": "day", "format": "xml"}, "format", "expected one of json, csv"),
        ({"by": "day", "since": "20270115"}, "since", "since = '20270115': expected a day, YYYY-MM-DD"),
        ({"by": "day", "until": "2027-02-30"}, "until", "expected a day"),
        ({"by": "day", "until": ""}, "until", "expected a day"),
        ({"by": "day", "untill": "2027-02-03"}, "untill", "expected one of by, since, until, format"),
    ],
)
def test_a_bad_parameter_is_named(ledger: Ledger, parameters: dict[str, str], param: str, said: str) -> None:
    error = refused(ledger, **parameters)
    assert (error.status, error.param) == (400, param)
    assert said in str(error)


def test_a_ledger_that_cannot_be_read_is_a_503(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise LedgerError("the disk is away")

    monkeypatch.setattr(ledger, "by", broken)
    error = refused(ledger, by="day")
    assert (error.status, str(error)) == (503, "the disk is away.")
