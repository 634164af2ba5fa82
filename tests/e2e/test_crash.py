"""Kill -9 while answers are being stored: what a client was given as stored is there after a restart."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path

import httpx
import pytest

from tests.servers import Server, serving
from tests.upstreams import FakeUpstream

pytestmark = pytest.mark.model

ROUNDS = 3
WORDS = ("river", "engine", "violin", "planet", "harbour", "pepper", "glacier", "lantern")


def config(home: Path, base_url: str) -> Path:
    path = home / "config.toml"
    path.write_text(
        f'[cache]\npath = "{home}/cache.db"\n[embeddings]\ndeadline_ms = 5000\n'
        f'[backends.up]\nkind = "openai"\nbase_url = "{base_url}"\n'
        '[models.m]\nbackend = "up"\nname = "m"\n'
    )
    return path


def question(number: int) -> str:
    return f"Tell me about the {WORDS[number % len(WORDS)]} with the number {number * 7919}."


async def ask(client: httpx.AsyncClient, number: int) -> tuple[str, str]:
    """(cache status, cache-status header), after the whole answer has come."""
    body = {"model": "m", "messages": [{"role": "user", "content": question(number)}], "temperature": 0}
    response = await client.post("/chat/completions", json=body)
    response.raise_for_status()
    return response.headers["x-lockgate-cache"], response.headers["cache-status"]


async def write_until_killed(server: Server, kill_after: int, first: int) -> list[int]:
    """Asks different questions, eight at a time, and kills the server in the midst of it; the numbers of
    those that were answered and stored."""
    stored: list[int] = []
    numbers = iter(range(first, first + 10_000))
    async with httpx.AsyncClient(base_url=server.base_url, timeout=30) as client:

        async def work() -> None:
            for number in numbers:
                try:
                    kind, status = await ask(client, number)
                except httpx.HTTPError:
                    return
                if kind == "miss" and status.endswith("stored"):
                    stored.append(number)
                if len(stored) == kill_after:
                    server.process.kill()

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(work())
    return stored


async def test_every_answer_given_as_stored_is_a_hit_after_kill_9(tmp_path: Path) -> None:
    chance = random.Random(5)
    stored: list[int] = []
    async with FakeUpstream() as upstream:
        for round_ in range(ROUNDS):
            path = config(tmp_path, upstream.base_url)
            with serving(tmp_path, "--config", str(path)) as server:
                stored += await write_until_killed(server, chance.randint(10, 60), first=round_ * 10_000)
        with serving(tmp_path, "--config", str(path)) as server:
            before = len(upstream.received)
            async with httpx.AsyncClient(base_url=server.base_url, timeout=30) as client:
                kinds = [(await ask(client, number))[0] for number in stored]
            assert len(stored) >= 10 * ROUNDS
            assert set(kinds) == {"hit-exact"}
            assert len(upstream.received) == before
    with sqlite3.connect(tmp_path / "cache.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
