"""Answers passed through: byte for byte, but for keys in errors."""

from __future__ import annotations

from backends.protocols import RawCall
from tests.openai_calls import OWN_KEY, make
from tests.upstreams import FakeUpstream, Reply, error_reply


async def test_a_key_that_an_error_quotes_is_taken_out(upstream: FakeUpstream) -> None:
    backend = make(upstream.base_url)
    upstream.replies(error_reply(401, f"no such key {OWN_KEY}"))
    call = RawCall(method="GET", path="files", query="", headers=[], body=None)
    answer = await backend.forward(call)
    body = b"".join([piece async for piece in answer])
    answer.close()
    assert answer.status == 401
    assert OWN_KEY.encode() not in body
    assert b"no such key [redacted]" in body
    assert "content-length" not in dict(answer.headers)
    await backend.aclose()


async def test_other_errors_pass_as_they_are(upstream: FakeUpstream) -> None:
    backend = make(upstream.base_url)
    raw = b'\xff{"odd": "bytes"}'
    upstream.replies(Reply(status=418, pieces=[raw[:3], raw[3:]]))
    answer = await backend.forward(RawCall(method="GET", path="files", query="", headers=[], body=None))
    assert b"".join([piece async for piece in answer]) == raw
    answer.close()
    await backend.aclose()
