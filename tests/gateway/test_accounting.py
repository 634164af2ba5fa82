"""What ends up in the ledger, of requests that go all the way."""

from __future__ import annotations

from typing import Any

from backends.errors import UpstreamCut, UpstreamTimeout
from backends.protocols import Call
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


async def test_attempts_count_for_the_model_that_was_asked() -> None:
    route = {"small": "small", "large": "large", "policy": {"fallbacks": ["large"]}}
    async with running(routes={"auto": route}) as test:
        stream = test.backend.stream

        def failing(call: Call) -> Any:
            test.backend.error = UpstreamTimeout("too late") if call.body["model"] == "fake-small" else None
            return stream(call)

        test.backend.stream = failing  # type: ignore[method-assign]
        response = await test.ask(headers={"x-lockgate-route": "small"})
        assert response.headers["x-lockgate-model"] == "fake-large"
        calls = {row.name: row.sums.upstream_calls for row in test.gateway.ledger.by("model")}
        assert calls == {"fake-small": 1, "fake-large": 1}
