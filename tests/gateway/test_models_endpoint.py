"""The list of models, in the form of the client's API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from tests.gateways import SETTINGS, Running, running
from tests.upstreams import FakeUpstream, Reply

ANTHROPIC = {"anthropic-version": "2023-06-01"}
OPENAI_ROW = {"id": "gpt-x", "object": "model", "created": 1_700_000_000, "owned_by": "openai", "vendor": 1}
ANTHROPIC_ROW = {
    "type": "model", "id": "claude-x", "display_name": "Claude X", "created_at": "2024-02-29T00:00:00Z",
}  # fmt: skip


@asynccontextmanager
async def listing(data: Any, *, kind: str = "openai") -> AsyncIterator[tuple[FakeUpstream, Running]]:
    """A gateway whose backend for unknown models lists `data`, or answers with a reply."""
    reply = data if isinstance(data, Reply) else Reply(pieces=[orjson.dumps({"data": data})])
    async with FakeUpstream(lambda _: reply) as upstream:
        up = {"kind": kind, "base_url": upstream.base_url, "api_key": "sk-own"}
        settings = {
            "backends": {**SETTINGS["backends"], "up": up},
            "server": {"unknown_models": {"backend": "up"}},
            "cache": {"enabled": False},
            "routes": {},
        }
        async with running(**settings) as test:
            yield upstream, test


async def test_those_of_the_config_come_first_and_then_the_backends_own() -> None:
    async with listing([OPENAI_ROW, {"id": "small", "object": "model", "owned_by": "them"}]) as (_, test):
        rows = (await test.http.get("/v1/models")).json()["data"]
        assert [row["id"] for row in rows] == ["small", "large", "gpt-x"]
        assert rows[0]["owned_by"] == "lockgate", "the config's own meaning of a name stands"
        assert rows[2] == OPENAI_ROW


async def test_an_openai_client_sees_anthropics_models_in_its_own_form() -> None:
    async with listing([ANTHROPIC_ROW], kind="anthropic") as (upstream, test):
        row = (await test.http.get("/v1/models")).json()["data"][-1]
        assert (row["id"], row["object"], row["created"]) == ("claude-x", "model", 1_709_164_800)
        assert row["owned_by"] == "anthropic"
        assert upstream.received[0].path == "/v1/models"
        assert upstream.received[0].headers["x-api-key"] == "sk-own"


async def test_an_anthropic_client_sees_a_page_in_its_own_form() -> None:
    async with listing([OPENAI_ROW, ANTHROPIC_ROW]) as (_, test):
        page = (await test.http.get("/v1/models", headers=ANTHROPIC)).json()
        assert (page["first_id"], page["last_id"], page["has_more"]) == ("small", "claude-x", False)
        assert page["data"][-1] == ANTHROPIC_ROW
        assert page["data"][-2] == {
            "type": "model", "id": "gpt-x", "display_name": "gpt-x", "created_at": "2023-11-14T22:13:20Z",
        }  # fmt: skip


async def test_one_model_by_its_name_slashes_and_all() -> None:
    async with listing([{**OPENAI_ROW, "id": "org/model:7b"}]) as (_, test):
        assert (await test.http.get("/v1/models/org/model:7b")).json()["id"] == "org/model:7b"
        assert (await test.http.get("/v1/models/small")).json()["owned_by"] == "lockgate"
        as_anthropic = await test.http.get("/v1/models/small", headers=ANTHROPIC)
        assert as_anthropic.json()["type"] == "model"
        missing = await test.http.get("/v1/models/nope")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    "answer",
    [
        Reply(status=401, pieces=[b'{"error": {"message": "who are you"}}']),
        Reply(content_type="text/html", pieces=[b"<html>"]),
        Reply(pieces=[b'{"data": [{"id"'], end="reset"),
        Reply(status=0, end="reset"),
        Reply(pieces=[b"[1, 2]"]),
        Reply(pieces=[b'{"data": 7}']),
        Reply(pieces=[b'{"data": {"id": "x"}}']),
        Reply(pieces=[b'{"data": [1, null, {}, {"id": 5}, {"id": ["x"]}]}']),
    ],
)
@pytest.mark.parametrize("headers", [{}, ANTHROPIC])
async def test_a_backend_that_lists_none_leaves_those_of_the_config(
    answer: Reply, headers: dict[str, str]
) -> None:
    async with listing(answer) as (_, test):
        rows = (await test.http.get("/v1/models", headers=headers)).json()["data"]
        assert [row["id"] for row in rows] == ["small", "large"]


@pytest.mark.parametrize("created", ["soon", None, 1e300, -1e300, [], "2024-99-99"])
async def test_odd_times_are_read_over(created: Any) -> None:
    async with listing([{"id": "x", "created": created, "created_at": created}]) as (_, test):
        for headers in ({}, ANTHROPIC):
            rows = (await test.http.get("/v1/models", headers=headers)).json()["data"]
            assert rows[-1]["id"] == "x"


async def test_a_backend_that_is_slow_to_list_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.models_endpoint.UPSTREAM_TIMEOUT_S", 0.05)
    async with listing(Reply(status=0, end="hang")) as (upstream, test):
        assert (await test.http.get("/v1/models")).status_code == 200
        await upstream.until(lambda server: server.aborted == 1)


async def test_without_a_key_of_ours_nothing_is_listed() -> None:
    key = {"sha256": "a" * 64}
    async with running(auth={"mode": "keys", "keys": {"web": key}}) as test:
        assert (await test.http.get("/v1/models")).status_code == 401


async def test_deleting_a_tuned_model_is_the_backends_matter() -> None:
    async with listing([OPENAI_ROW]) as (upstream, test):
        assert (await test.http.delete("/v1/models/ft:x")).status_code == 200
        assert (upstream.received[0].method, upstream.received[0].path) == ("DELETE", "/v1/models/ft:x")
