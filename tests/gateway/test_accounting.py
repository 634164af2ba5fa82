"""What ends up in the ledger, of requests that go all the way."""

from __future__ import annotations

from backends.errors import UpstreamCut
from gateway.ledger_rows import LedgerRow, Sums
from tests.gateways import Running, running


def posted(test: Running) -> Sums:
    return LedgerRow.total(test.gateway.ledger.by("day")).sums


async def test_a_stream_that_breaks_is_an_error() -> None:
    async with running() as test:
        test.backend.error, test.backend.error_after = UpstreamCut("broke off"), 2
        response = await test.ask(stream=True)
        assert response.status_code == 200
        assert posted(test).errors == 1
