"""Backend errors at the HTTP edge."""

from __future__ import annotations

import json

from backends.errors import BackendError, Overloaded, UpstreamRejected
from gateway.errors import RequestError, from_backend, openai_error_body


def test_the_body_is_openais_shape() -> None:
    error = RequestError("no", status=404, code="c", param="p")
    assert json.loads(openai_error_body(error)) == {
        "error": {"message": "no", "type": "invalid_request_error", "param": "p", "code": "c"}
    }


def test_an_upstreams_own_error_is_kept_byte_for_byte() -> None:
    body = b'{"error": {"message": "m", "type": "t", "extra": 1}}'
    error = from_backend(UpstreamRejected("m", status=418, body=body, headers={"retry-after": "7"}))
    assert (error.status, openai_error_body(error), error.headers) == (418, body, {"retry-after": "7"})


def test_an_upstreams_error_of_another_shape_is_put_into_ours() -> None:
    for body in (b"", b"[]", b'{"error": "flat"}', b'{"detail": "x"}', b"<html>"):
        error = from_backend(UpstreamRejected("told", status=500, body=body, headers={}))
        assert json.loads(openai_error_body(error))["error"]["message"] == "told"
        assert json.loads(openai_error_body(error))["error"]["type"] == "upstream_error"


def test_retry_after_is_whole_seconds_and_at_least_one() -> None:
    assert from_backend(Overloaded("full", retry_after_s=0.1)).headers == {"retry-after": "1"}
    assert from_backend(Overloaded("full", retry_after_s=2.5)).headers == {"retry-after": "3"}


def test_an_error_we_do_not_know_is_a_502() -> None:
    assert from_backend(BackendError("odd")).status == 502
