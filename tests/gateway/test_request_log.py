"""The log line of each request: what is in it, and that it is written."""

from __future__ import annotations

import asyncio
import io
import json
from datetime import UTC, datetime

import pytest

from gateway import request_log
from gateway.ledger import Ledger
from gateway.ledger_store import LedgerStore
from gateway.metrics import Metrics
from gateway.recorder import Recorder, RequestLine
from gateway.request_log import JsonRequestLog
from gateway.served import ServedAnswers
from gateway.trace import Trace


def line(**fields: object) -> RequestLine:
    told = {"event": "request", "timestamp": datetime(2027, 1, 15, tzinfo=UTC), "level": "info"}
    return RequestLine(**{**told, "request_id": "r", **fields})  # type: ignore[arg-type]


def written(stream: io.BytesIO) -> list[dict[str, object]]:
    return [json.loads(text) for text in stream.getvalue().splitlines()]


async def test_a_line_leaves_out_what_is_empty() -> None:
    stream = io.BytesIO()
    log = JsonRequestLog(stream)
    log.write(line(status=200, stored=False, attempts=["up ok m 3 ms"]))
    log.flush()
    assert written(stream) == [
        {
            "event": "request",
            "timestamp": "2027-01-15T00:00:00Z",
            "level": "info",
            "request_id": "r",
            "status": 200,
            "attempts": ["up ok m 3 ms"],
        }
    ]


async def test_lines_are_written_soon_without_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "FLUSH_AFTER_S", 0.01)
    stream = io.BytesIO()
    log = JsonRequestLog(stream)
    log.write(line())
    log.write(line())
    assert written(stream) == []
    async with asyncio.timeout(5):
        while not stream.getvalue():  # noqa: ASYNC110 - the log has no event for it
            await asyncio.sleep(0.005)
    assert len(written(stream)) == 2


async def test_many_lines_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "MAX_BUFFERED_BYTES", 100)
    stream = io.BytesIO()
    log = JsonRequestLog(stream)
    log.write(line(reason="x" * 200))
    assert len(written(stream)) == 1


async def test_a_reader_that_is_gone_does_no_harm() -> None:
    class FakeBrokenPipe(io.BytesIO):
        def write(self, data: object) -> int:
            raise BrokenPipeError

    log = JsonRequestLog(FakeBrokenPipe())
    log.write(line())
    log.flush()


async def test_a_refused_request_says_no_more_than_there_is() -> None:
    stream = io.BytesIO()
    log = JsonRequestLog(stream)
    ledger = Ledger(LedgerStore(None))
    recorder = Recorder(Metrics(), ledger, ServedAnswers(), log.write)
    recorder.record(Trace(request_id="r", status=400, error="max_tokens: the field is missing."))
    log.flush()
    ledger.close()
    (told,) = written(stream)
    assert told.keys() == {"event", "timestamp", "level", "request_id", "api", "status", "ms", "error"}
