from __future__ import annotations

import base64

import pytest

from backends.endpoint import parse_endpoint


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://host:8000/v1", "http://host:8000/v1/chat/completions"),
        ("https://host/v1/", "https://host/v1/chat/completions"),
        ("https://host", "https://host/chat/completions"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1/chat/completions"),
        ("https://host/openai?api-version=1#part", "https://host/openai/chat/completions?api-version=1"),
        (" https://host/v1\n", "https://host/v1/chat/completions"),
    ],
)
def test_paths_go_below_the_base(base_url: str, url: str) -> None:
    assert parse_endpoint("up", base_url, None).url("chat/completions") == url


def test_the_key_becomes_a_bearer_token() -> None:
    endpoint = parse_endpoint("up", "https://host/v1", "sk-key\n")
    assert endpoint.authorization == "Bearer sk-key"
    assert endpoint.secrets == ("sk-key",)


@pytest.mark.parametrize("api_key", [None, "", "  "])
def test_without_a_key_there_is_no_authorization(api_key: str | None) -> None:
    assert parse_endpoint("up", "https://host/v1", api_key).authorization is None


def test_a_login_in_the_url_leaves_it() -> None:
    endpoint = parse_endpoint("up", "https://me:p%40ss@host:8000/v1", None)
    token = base64.b64encode(b"me:p@ss").decode()
    assert endpoint.authorization == f"Basic {token}"
    assert endpoint.url("models") == "https://host:8000/v1/models"
    assert {token, "p@ss", "p%40ss"} <= set(endpoint.secrets)


def test_the_key_wins_over_the_login() -> None:
    endpoint = parse_endpoint("up", "https://me:pass@host/v1", "sk-key")
    assert endpoint.authorization == "Bearer sk-key"
    assert {"pass", "sk-key"} <= set(endpoint.secrets)


@pytest.mark.parametrize("base_url", ["", "host/v1", "ftp://host/v1", "http:///v1", "http://h:99999/v1"])
def test_a_url_that_cannot_work_is_refused(base_url: str) -> None:
    with pytest.raises(ValueError, match="up: base_url"):
        parse_endpoint("up", base_url, None)


@pytest.mark.parametrize("api_key", ["sk-a\nb", "sk-\x00key", "sk-ключ"])
def test_a_key_that_cannot_be_sent_is_refused_without_repeating_it(api_key: str) -> None:
    with pytest.raises(ValueError, match="up: api_key") as caught:
        parse_endpoint("up", "https://host/v1", api_key)
    assert api_key not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    assert "sk-key" not in repr(parse_endpoint("up", "https://host/v1", "sk-key"))
