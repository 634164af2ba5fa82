"""The load client: it takes answers apart however they arrive, and no bad answer passes for a good one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load import Answer, Expected, get, parse, post, run

Script = Callable[[int], bytes]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
EXPECTED = Expected(body_bytes=2, body_end=b"ok")


@asynccontextmanager
async def server(script: Script) -> AsyncIterator[str]:
    """A server that answers its n-th request with `script(n)`; nothing closes the connection."""
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            try:
                await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionResetError):
                break
            answer = script(asked)
            asked += 1
            writer.write(answer)
            if not answer or b"connection: close" in answer:
                break
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
def test_a_chunked_body_is_what_its_chunks_hold(parts: list[bytes]) -> None:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"
    answer = parse(data)
    assert answer is not None
    assert (answer.status, answer.body) == (200, b"".join(parts))


@pytest.mark.parametrize(
    "whole", [OK, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"]
)
def test_no_beginning_of_an_answer_passes_for_all_of_it(whole: bytes) -> None:
    assert [length for length in range(len(whole) + 1) if parse(whole[:length])] == [len(whole)]


def test_what_has_no_end_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="neither a length nor chunks"):
        parse(b"HTTP/1.1 200 OK\r\n\r\nok")


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (200, b"data: 1\n\n[DONE]", None),
        (200, b"data: 12\n\n[DONE]", None),
        (500, b"data: 1\n\n[DONE]", "status 500"),
        (200, b"[DONE]", "another length"),
        (200, b"data: 1\n\n[DONE", "another end"),
    ],
)
def test_an_answer_is_held_to_status_length_and_end(status: int, body: bytes, fault: str | None) -> None:
    expected = Expected(body_bytes=15, body_end=b"[DONE]")
    assert expected.fault(Answer(status=status, head=b"", body=body)) == fault


def test_a_request_says_its_length_and_carries_its_headers() -> None:
    request = post("http://127.0.0.1:9/v1/x", {"a": 1}, {"authorization": "Bearer k"})
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"POST /v1/x HTTP/1.1"
    assert b"authorization: Bearer k" in head
    assert b"content-length: %d" % len(body) in head


async def test_every_request_is_sent_and_timed() -> None:
    async with server(lambda _: OK) as url:
        outcome = await run(url, get(url), connections=4, requests=50, expected=EXPECTED)
    assert (len(outcome.latencies_s), dict(outcome.errors)) == (50, {})
    assert 0 < min(outcome.latencies_s) <= outcome.elapsed_s


async def test_bad_answers_are_counted_apart_and_not_timed() -> None:
    bad = b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\nno"
    async with server(lambda number: bad if number % 5 == 0 else OK) as url:
        outcome = await run(url, get(url), connections=2, requests=50, expected=EXPECTED)
    assert (len(outcome.latencies_s), dict(outcome.errors)) == (40, {"status 503": 10})


async def test_a_connection_that_is_lost_costs_one_request() -> None:
    async with server(lambda number: b"" if number == 3 else OK) as url:
        outcome = await run(url, get(url), connections=1, requests=10, expected=EXPECTED)
    assert (len(outcome.latencies_s), dict(outcome.errors)) == (9, {"connection lost": 1})


async def test_a_server_that_closes_after_each_answer_is_followed() -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    async with server(lambda _: closing) as url:
        outcome = await run(url, get(url), connections=2, requests=10, expected=EXPECTED)
    assert (len(outcome.latencies_s), dict(outcome.errors)) == (10, {})


async def test_what_is_not_answered_in_time_is_an_error() -> None:
    async with server(lambda _: b"HTTP/1.1 200 OK\r\n") as url:
        outcome = await run(url, get(url), connections=1, requests=5, timeout_s=0.1)
    assert dict(outcome.errors) == {"no answer in time": 5}


async def test_where_nobody_listens_every_request_fails(unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}/"
    outcome = await run(url, get(url), connections=2, requests=6)
    assert dict(outcome.errors) == {"no connection": 6}
