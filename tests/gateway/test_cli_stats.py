"""`lockgate stats`: its tables, and what it says when there are none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.cli_stats import DIMENSIONS, table
from gateway.errors import RequestError, openai_error_body
from gateway.ledger import Ledger
from gateway.ledger_store import LedgerStore
from gateway.stats import DIMENSIONS as OF_THE_LEDGER
from gateway.stats import ledger_figures, ledger_page
from tests.gateway.ledger_cases import NOON
from tests.gateway.test_stats import fill


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    opened = Ledger(LedgerStore(None), usd_per_cpu_hour=0.36, clock=lambda: NOON)
    fill(opened)
    yield opened
    opened.close()


@contextmanager
def answering(ledger: Ledger | None) -> Iterator[str]:
    """The URL of a server that answers `/admin/stats` as a gateway does; without a ledger, as an old one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content_type = 200, "application/json"
            parameters = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
            if parameters and ledger is not None:
                try:
                    body, content_type = ledger_page(ledger, parameters)
                except RequestError as error:
                    status, body = error.status, openai_error_body(error)
            else:
                body = json.dumps({"requests": 3, "faults": {}, "by_cache": {"miss": 2}}).encode()
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def stats(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["stats", "--url", url, *arguments])


def test_a_table_has_a_line_for_each_row_and_a_total(ledger: Ledger) -> None:
    with answering(ledger) as url:
        done = stats(url, "--by", "day")
    assert done.exit_code == 0
    assert [line.rstrip() for line in done.output.splitlines()] == [
        "day         requests  hits  errors  calls  tokens in  tokens out  tokens saved  cost USD   without"
        "  overhead  saved USD",
        "2027-01-15         2     1       0      1        100          20           120  0.001000  0.020000"
        "  0.000050   0.018950",
        "2027-01-16         1     0       1      0          0           0             0  0.000000  0.000000"
        "  0.000000   0.000000",
        "-" * 119,
        "total              3     1       1      1        100          20           120  0.001000  0.020000"
        "  0.000050   0.018950",
        "saved 94.8% of what it would have cost, net of embedding and verifying",
    ]


def test_the_days_go_to_the_gateway(ledger: Ledger) -> None:
    with answering(ledger) as url:
        done = stats(url, "--by", "day", "--since", "2027-01-16", "--until", "2027-01-16", "--json")
        nothing = stats(url, "--by", "day", "--since", "2030-01-01")
    assert [row["day"] for row in json.loads(done.output)["rows"]] == ["2027-01-16"]
    assert nothing.output == "no requests in that time\n"


def test_csv_is_what_the_gateway_wrote(ledger: Ledger) -> None:
    with answering(ledger) as url:
        done = stats(url, "--by", "tenant", "--csv")
    body, _ = ledger_page(ledger, {"by": "tenant", "format": "csv"})
    assert done.stdout_bytes == body


def test_without_by_it_is_the_overview() -> None:
    with answering(None) as url:
        assert stats(url).output == "requests      3\nfaults        none\nby_cache      miss 2\n"
        assert json.loads(stats(url, "--json").output)["requests"] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--csv",), "need --by"),
        (("--since", "2027-01-01"), "need --by"),
        (("--by", "day", "--csv", "--json"), "expected one of them"),
        (("--by", "day", "--since", "yesterday"), "since = 'yesterday': expected a day, YYYY-MM-DD"),
        (("--by", "colour"), "'colour' is not one of"),
    ],
)
def test_what_is_asked_wrongly_is_said_in_a_line(
    ledger: Ledger, arguments: tuple[str, ...], said: str
) -> None:
    with answering(ledger) as url:
        done = stats(url, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_gateway_that_knows_no_ledger_is_told_apart() -> None:
    with answering(None) as url:
        for more in ((), ("--csv",), ("--json",)):
            done = stats(url, "--by", "day", *more)
            assert (done.exit_code, done.stderr) == (2, f"lockgate: {url}: that gateway has no ledger\n")


def figures(*rows: tuple[str, float]) -> dict[str, Any]:
    ledger = Ledger(LedgerStore(None))
    empty = ledger_figures(ledger, "model")["total"]
    ledger.close()
    filled = [{**empty, "model": name, "cost_usd": usd, "saving_usd": -usd} for name, usd in rows]
    total = {**empty, "cost_usd": sum(usd for _, usd in rows)}
    return {"by": "model", "rows": filled, "total": total}


@pytest.mark.parametrize(
    ("usd", "shown"), [(1234.5, "1,234.50"), (1.5, "1.5000"), (0.0123456, "0.012346"), (1e-8, "0.000000010")]
)
def test_money_has_as_many_digits_as_its_largest_amount_asks_for(usd: float, shown: str) -> None:
    lines = table(figures(("m", usd), ("n", 0.0))).splitlines()
    assert f"  {shown}  " in lines[1]
    assert f"-{shown}" in lines[1]
    assert len({len(line) for line in lines}) == 1


def test_names_are_aligned_cut_and_harmless() -> None:
    lines = table(figures(("한국어 모델", 1.0), ("", 2.0), ("x" * 99, 3.0), ("a\x1b[2Jb", 4.0))).splitlines()
    assert lines[1].startswith("한국어 모델" + " " * (40 - 11) + "  ")
    assert lines[2].startswith("-  ")
    assert lines[3].startswith("x" * 39 + "…  ")
    assert lines[4].startswith("a?[2Jb ")


def test_the_command_offers_what_the_ledger_has() -> None:
    assert sorted(DIMENSIONS) == sorted(OF_THE_LEDGER)
