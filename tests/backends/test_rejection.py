from __future__ import annotations

from typing import Any

import orjson
import pytest

from backends.rejection import Redactor, error_message, rejection, secrets_of

NOTHING = Redactor([])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "nested", "code": 400}}, "nested"),
        ({"error": "flat", "error_type": "overloaded"}, "flat"),
        ({"message": "flatter", "type": "x", "code": 1}, "flatter"),
        ({"object": "error", "message": "old vLLM"}, "old vLLM"),
        ({"detail": "fastapi"}, "fastapi"),
        ({"error": {"message": ""}, "detail": "second"}, "second"),
        ({"detail": [{"msg": "no one message"}]}, None),
        ({"error": None}, None),
        ([], None),
    ],
)
def test_finds_the_message_of_each_engine(body: Any, message: str | None) -> None:
    assert error_message(body) == message


@pytest.mark.parametrize(
    ("authorization", "secrets"),
    [(None, []), ("", []), ("Bearer sk-abcd", ["Bearer sk-abcd", "sk-abcd"]), ("sk-abcd", ["sk-abcd", ""])],
)
def test_knows_the_secrets_of_a_header(authorization: str | None, secrets: list[str]) -> None:
    assert secrets_of(authorization) == secrets


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("key sk-secret-1 is wrong", "key [redacted] is wrong"),
        ("Incorrect API key provided: sk-s*****et-1.", "Incorrect API key provided: [redacted]."),
        ("sk-secret-1sk-secret-1", "[redacted][redacted]"),
        ("sk-other", "sk-other"),
        ("a ** b", "a ** b"),
    ],
)
def test_redacts_secrets_whole_or_starred(text: str, clean: str) -> None:
    assert Redactor(["sk-secret-1", "abc", ""]).text(text) == clean


def test_a_secret_within_another_leaves_no_rest() -> None:
    assert Redactor(["Bearer", "Bearer sk-long-key"]).text("Bearer sk-long-key") == "[redacted]"


def test_a_body_without_secrets_stays_byte_for_byte() -> None:
    body = b'{ "error" : {"message": "sm\\u00f6rg"} }'
    error = rejection("up", 404, {}, body, Redactor(["sk-secret-1"]))
    assert error.body == body
    assert str(error) == "up answered 404: smörg"


def test_a_secret_is_found_however_json_writes_it() -> None:
    body = b'{"error": {"message": "bad \\u0073k-secret-1", "sk-secret-1": ["sk-secret-1", 1, null]}}'
    error = rejection("up", 401, {}, body, Redactor(["sk-secret-1"]))
    assert orjson.loads(error.body) == {
        "error": {"message": "bad [redacted]", "[redacted]": ["[redacted]", 1, None]}
    }
    assert str(error) == "up answered 401: bad [redacted]"


def test_keeps_the_headers_a_client_acts_on() -> None:
    headers = {
        "Retry-After": "7",
        "X-RateLimit-Remaining-Requests": "0",
        "x-ratelimit-key": "sk-secret-1",
        "Set-Cookie": "a=b",
        "x-request-id": "r",
    }
    error = rejection("up", 429, headers, b"", Redactor(["sk-secret-1"]))
    assert error.headers == {
        "retry-after": "7",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-key": "[redacted]",
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>bad gateway</html>",
        b'"text"',
        b"[]",
        b"{",
        b'{"error": ' + b"[" * 400 + b"]" * 400 + b"}",
    ],
)
def test_a_body_that_is_no_json_object_is_left_out(body: bytes) -> None:
    error = rejection("up", 502, {}, body, NOTHING)
    assert error.body == b""
    assert str(error) == "up answered 502 without saying why"
