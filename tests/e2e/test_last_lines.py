"""What a gateway that is told to stop has written by its end."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.servers import serving

CONFIG = """
[cache]
enabled = false
[backends.up]
kind = "openai"
base_url = "http://127.0.0.1:9/v1"
[models.m]
backend = "up"
name = "m"
"""


def test_the_log_line_of_the_last_request_is_there(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)
    with serving(tmp_path) as server:
        headers = {"x-request-id": "the-last-one"}
        asked = httpx.post(f"{server.base_url}/chat/completions", json={}, headers=headers, trust_env=False)
        assert asked.status_code == 400
        server.stop()
        assert any("the-last-one" in line for line in server.lines)
