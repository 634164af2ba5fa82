"""Who is let in to /admin, and what is told and logged there."""

from __future__ import annotations

import httpx
import pytest
from structlog.testing import capture_logs

from gateway.admin_access import is_admin
from gateway.app import _others
from gateway.raw_endpoint import RawEndpoint
from tests.gateways import Running, running

HERE = {"host": "localhost"}
TOKEN = {"admin_token": "secret-tökén"}


async def get(test: Running, headers: dict[str, str | bytes], path: str = "/admin/stats") -> httpx.Response:
    sent = [
        (name, value if isinstance(value, bytes) else value.encode())
        for name, value in {**HERE, **headers}.items()
    ]
    return await test.http.get(path, headers=[(name.encode(), value) for name, value in sent])


def asked_from(test: Running, peer: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(test.app, client=(peer, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_the_token_is_needed_when_there_is_one() -> None:
    async with running(server=TOKEN) as test:
        for wrong in ("", "Bearer nope", "Bearer ", "Bearer secret-tökén ", "Basic secret-tökén"):
            refused = await get(test, {"authorization": wrong.encode()})
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert refused.json()["error"]["type"] == "authentication_error"
        assert (await get(test, {"authorization": "Bearer secret-tökén".encode()})).status_code == 200


async def test_the_token_lets_in_through_proxies_and_by_any_name() -> None:
    async with running(server=TOKEN) as test:
        headers: dict[str, str | bytes] = {
            "authorization": "Bearer secret-tökén".encode(),
            "host": "gateway.example",
            "x-forwarded-for": "192.0.2.7",
        }
        assert (await get(test, headers)).status_code == 200


@pytest.mark.parametrize(
    ("peer", "status"),
    [("127.0.0.1", 200), ("127.8.9.1", 200), ("::1", 200), ("192.0.2.7", 403), ("::2", 403), ("unix", 403)],
)
async def test_without_a_token_only_this_machine_is_answered(peer: str, status: int) -> None:
    async with running() as test, asked_from(test, peer) as client:
        assert (await client.get("/admin/stats")).status_code == status
        assert (await client.get("/health/live")).status_code == 200


@pytest.mark.parametrize(
    "name", ["x-forwarded-for", "X-Forwarded-Host", "x-forwarded-proto", "forwarded", "X-Real-IP"]
)
async def test_without_a_token_what_a_proxy_passed_on_is_refused(name: str) -> None:
    async with running() as test:
        refused = await get(test, {name: "127.0.0.1"})
        assert refused.status_code == 403
        assert name.lower() in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LocalHost:8080", 200),
        ("127.0.0.1:8080", 200),
        ("192.0.2.1", 200),
        ("[::1]:8080", 200),
        ("[::1]", 200),
        ("attacker.example:8080", 403),
        ("localhost.attacker.example", 403),
        ("127.0.0.1.attacker.example", 403),
        ("attacker.example/localhost", 403),
        ("localhost@attacker.example", 403),
        ("", 403),
        ("[", 403),
    ],
)
async def test_without_a_token_a_page_whose_name_leads_here_is_refused(host: str, status: int) -> None:
    async with running() as test:
        answer = await get(test, {"host": host})
        assert answer.status_code == status
        if status == 403:
            assert "neither localhost nor an address" in answer.json()["error"]["message"]


async def test_every_path_below_admin_is_guarded_and_every_post_there_needs_json() -> None:
    async with running() as test:
        gateway = test.gateway
        routes = _others(gateway, RawEndpoint(gateway.catalog, gateway.edge)).routes
        guarded = [
            (method, getattr(route, "path", "").replace("{id}", "1"))
            for route in routes
            for method in sorted(getattr(route, "methods", None) or ())
            if is_admin(getattr(route, "path", ""))
        ]
        assert {("GET", "/admin/stats"), ("DELETE", "/admin/entries/1")} < set(guarded)
        async with asked_from(test, "192.0.2.7") as stranger, asked_from(test, "127.0.0.1") as client:
            for method, path in guarded:
                refused = await stranger.request(method, path, json={})
                assert (refused.status_code, path) == (403, path)
                if method != "POST":
                    continue
                for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
                    headers = {"content-type": kind} if kind else {}
                    posted = await client.post(path, content=b'{"all":true}', headers=headers)
                    assert (posted.status_code, path) == (415, path)
                    assert "application/json" in posted.json()["error"]["message"]


async def test_no_answer_may_be_kept_on_the_way() -> None:
    async with running() as test, asked_from(test, "192.0.2.7") as stranger:
        test.http.base_url = httpx.URL("http://localhost")
        for method, path, status in (
            ("GET", "/admin/stats", 200),
            ("GET", "/admin/entries", 200),
            ("GET", "/admin/entries/9", 404),
            ("GET", "/admin/nothing", 404),
            ("GET", "/admin", 404),
            ("PUT", "/admin/stats", 405),
            ("POST", "/admin/invalidate", 415),
        ):
            answer = await test.http.request(method, path)
            assert (answer.status_code, answer.headers["cache-control"]) == (status, "no-store")
            assert answer.status_code == 200 or answer.json()["error"]["message"]
        refused = await stranger.get("/admin/stats")
        assert (refused.status_code, refused.headers["cache-control"]) == (403, "no-store")
        assert "cache-control" not in (await stranger.get("/health/live")).headers


async def test_a_fault_of_ours_may_not_be_kept_either(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as test:
        monkeypatch.setattr(test.gateway.degradation, "current", lambda: 1 / 0)
        answer = await get(test, {})
        assert (answer.status_code, answer.headers["cache-control"]) == (500, "no-store")


async def test_each_access_is_logged_without_its_query() -> None:
    async with running() as test, asked_from(test, "192.0.2.7") as stranger:
        with capture_logs() as lines:
            await get(test, {}, "/admin/entries?text=secret%20words")
            await stranger.get("/admin/stats")
            await get(test, {}, "/health/live")
        assert lines == [
            {
                "event": "admin",
                "log_level": "info",
                "action": "GET /admin/entries",
                "status": 200,
                "peer": "127.0.0.1",
                "returned": 0,
            },
            {
                "event": "admin",
                "log_level": "warning",
                "action": "GET /admin/stats",
                "status": 403,
                "peer": "192.0.2.7",
            },
        ]


async def test_errors_are_in_openais_shape_for_anthropics_clients_too() -> None:
    async with running() as test:
        answer = await get(test, {"anthropic-version": "2023-06-01"}, "/admin/entries/9")
        assert answer.status_code == 404
        assert answer.json().keys() == {"error"}
