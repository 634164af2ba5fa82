"""Errors in Anthropic's shape."""

from __future__ import annotations

import orjson
import pytest

from gateway.errors import RequestError, openai_error_body
from gateway.wire.messages_errors import error_body, error_frame, upstream_message

ANTHROPICS = (
    b'{"type": "error",\n "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "r"}'
)
OPENAIS = b'{"error": {"message": "No such model", "type": "invalid_request_error", "code": null}}'


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (409, "invalid_request_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_each_status_has_its_type(status: int, kind: str) -> None:
    body = orjson.loads(error_body(RequestError("No.", status=status)))
    assert body == {"type": "error", "error": {"type": kind, "message": "No."}}


def test_an_upstreams_own_body_is_kept_byte_for_byte() -> None:
    error = RequestError("claude refused", status=529, upstream_body=ANTHROPICS, upstream_api="messages")
    assert error_body(error) == ANTHROPICS


def test_what_an_openai_backend_said_is_told_in_anthropics_shape() -> None:
    error = RequestError("gpt answered 404", status=404, upstream_body=OPENAIS)
    told = {"type": "not_found_error", "message": "No such model"}
    assert orjson.loads(error_body(error)) == {"type": "error", "error": told}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"error": "x"}', b'{"error": {"message": 3}}'])
def test_a_body_of_another_shape_is_not_told(body: bytes) -> None:
    error = RequestError("gpt answered 500", status=500, upstream_body=body)
    assert orjson.loads(error_body(error))["error"] == {"type": "api_error", "message": "gpt answered 500"}
    assert upstream_message(body) is None


def test_an_error_in_a_stream_is_one_event_of_its_own() -> None:
    frame = error_frame(RequestError("x", status=529, upstream_body=ANTHROPICS))
    assert frame.startswith(b"event: error\ndata: {")
    assert frame.count(b"\n") == 3
    assert orjson.loads(frame.partition(b"data: ")[2]) == orjson.loads(ANTHROPICS)


def test_an_openai_client_can_be_told_what_anthropic_said() -> None:
    assert upstream_message(ANTHROPICS) == "Overloaded"
    error = RequestError("Overloaded", status=529, upstream_body=ANTHROPICS, upstream_api="messages")
    assert orjson.loads(openai_error_body(error))["error"]["message"] == "Overloaded"
