"""The verified cache as it ships: the real embedder, verifier and cross-encoder behind a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.servers import Server, serving

pytestmark = pytest.mark.model

# So free a bound that a near rewording is served at once: with less, other requests must have paid for it.
CONFIG = """\
[cache.policy]
kind = "bounded"
max_error_rate = 0.1
verify_share = 0.0
explore_share = 0.0
"""
TALK = [
    {"role": "user", "content": "I lost my debit card."},
    {"role": "assistant", "content": "I am sorry. Shall I block it?"},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("verified")
    (home / "config.toml").write_text(CONFIG, "utf-8")
    with serving(home) as running:
        yield running


def ask(server: Server, *messages: dict[str, str], **fields: Any) -> httpx.Response:
    body = {"model": "small", "messages": list(messages), "max_tokens": 80, **fields}
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120.0)
    assert response.status_code == 200, response.text
    return response


def question(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_a_rewording_is_served_at_once_and_a_trap_never(server: Server) -> None:
    ask(server, question("What is the capital of France?"))
    hit = ask(server, question("Hi, what is the capital of France?"))
    assert hit.headers["x-lockgate-cache"] == "hit-semantic", hit.headers["x-lockgate-reason"]
    assert hit.headers["x-lockgate-reason"].startswith("risk 0.0")
    assert float(hit.headers["x-lockgate-confidence"]) > 0.9
    for trap in (
        "What is the capital of Germany?",
        "What was the capital of France in 1941?",
        "Why is there a capital of France?",
    ):
        miss = ask(server, question(trap))
        assert miss.headers["x-lockgate-cache"] == "miss", trap
        assert "verifier" in miss.headers["x-lockgate-reason"]


def test_the_last_message_alone_is_no_reason_to_serve(server: Server) -> None:
    first = ask(server, *TALK, question("yes please"))
    assert first.headers["x-lockgate-cache"] == "miss"
    other = [
        {**TALK[0], "content": "I found a debit card."},
        {**TALK[1], "content": "Great. Shall I send you a box?"},
    ]
    again = ask(server, *other, question("yes please"))
    assert again.headers["x-lockgate-cache"] == "miss"
    same = ask(server, *TALK, question("yes please"))
    assert same.headers["x-lockgate-cache"] == "hit-exact"
