"""Requests of APIs that the gateway does not read: the same bytes both ways."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from tests.gateways import SETTINGS, Running, running
from tests.raw_upstreams import Answer, RawUpstream, raw_upstream
from tests.upstreams import FakeUpstream, Reply

RANDOM = random.Random(7).randbytes(300_000)
CREDENTIAL = "Bearer sk-client-secret"
OWN = "sk-own-secret"


@asynccontextmanager
async def passing(base_url: str, **more: Any) -> AsyncIterator[Running]:
    backend = {"kind": "openai", "base_url": base_url, "api_key": OWN, "retries": 0}
    settings: dict[str, Any] = {
        "cache": {"enabled": False},
        "backends": {**SETTINGS["backends"], "up": {**backend, **more.pop("backend", {})}},
        "routes": {},
        "server": {"unknown_models": {"backend": "up"}, **more.pop("server", {})},
    }
    async with running(**{**settings, **more}) as test:
        test.http.headers["authorization"] = CREDENTIAL
        yield test


@asynccontextmanager
async def passed(answer: Answer | None = None, **more: Any) -> AsyncIterator[tuple[RawUpstream, Running]]:
    async with raw_upstream() as upstream, passing(upstream.base_url, **more) as test:
        if answer is not None:
            upstream.answer = answer
        yield upstream, test


def replying(make: Callable[[], web.Response]) -> Answer:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return make()

    return answer


async def in_pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(body), size):
        yield body[at : at + size]


async def test_a_binary_body_goes_up_as_it_is() -> None:
    async with passed() as (upstream, test):
        response = await test.http.post(
            "/v1/audio/odd", content=RANDOM, headers={"content-type": "audio/x-odd; a=1"}
        )
        assert (response.status_code, response.content) == (200, b"ok")
        (received,) = upstream.received
        assert received.body == RANDOM
        assert received.all("content-type") == ["audio/x-odd; a=1"]


async def test_a_body_of_announced_length_goes_up_with_that_length() -> None:
    """Many servers of files take no chunked body."""
    async with passed() as (upstream, test):
        await test.http.post("/v1/files", content=RANDOM)
        assert upstream.received[0].all("content-length") == [str(len(RANDOM))]
        assert upstream.received[0].all("transfer-encoding") == []


async def test_a_chunked_body_goes_up_chunked() -> None:
    async with passed() as (upstream, test):
        await test.http.post("/v1/files", content=in_pieces(RANDOM, 1009))
        assert upstream.received[0].body == RANDOM
        assert upstream.received[0].all("transfer-encoding") == ["chunked"]
        assert upstream.received[0].all("content-length") == []


async def test_a_multipart_upload_keeps_its_boundary_and_bytes() -> None:
    async with passed() as (upstream, test):
        request = test.http.build_request(
            "POST", "/v1/files", files={"file": ("a\x01é.bin", RANDOM, "x/y")}, data={"purpose": "batch"}
        )
        body = await request.aread()
        await test.http.send(request)
        assert upstream.received[0].body == body
        assert upstream.received[0].all("content-type") == [request.headers["content-type"]]


async def test_a_compressed_body_stays_compressed_both_ways() -> None:
    packed = gzip.compress(b"text " * 1000)
    headers = {"content-encoding": "gzip"}
    async with passed(replying(lambda: web.Response(body=packed, headers=headers))) as (upstream, test):
        async with test.http.stream("POST", "/v1/files", content=packed, headers=headers) as response:
            assert b"".join([piece async for piece in response.aiter_raw()]) == packed
            assert response.headers["content-encoding"] == "gzip"
        assert upstream.received[0].body == packed
        assert upstream.received[0].all("content-encoding") == ["gzip"]


async def test_what_a_client_accepts_is_what_the_upstream_is_asked_for() -> None:
    async with passed() as (upstream, test):
        await test.http.get("/v1/files", headers={"accept-encoding": "br", "accept": "audio/mpeg"})
        await test.http.get("/v1/files", headers={"accept-encoding": "identity"})
        assert [one.all("accept-encoding") for one in upstream.received] == [["br"], ["identity"]]
        assert upstream.received[0].all("accept") == ["audio/mpeg"]


@pytest.mark.parametrize(
    "target",
    [
        "/v1/files/a%2Fb%20c/content?x=%2F&y=a+b&y=&%C3%A9",
        "/v1/files/%E4%BD%A0?q=%",
        "/v1/files//double///",
        "/v1/files/a:b@c,d;e=f!$&'()*~",
        "/v1/files?",
        "/v1/files/%00",
    ],
)
async def test_paths_and_queries_are_untouched(target: str) -> None:
    async with passed() as (upstream, test):
        path, _, query = target.partition("?")
        await ask_raw(test, path, query)
        assert upstream.received[0].target == (f"{path}?{query}" if query else path)


async def ask_raw(test: Running, path: str, query: str = "", method: str = "GET") -> list[dict[str, Any]]:
    """Speaks ASGI itself, for clients tidy up what they send."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(), "headers": [],
        "query_string": query.encode(), "client": ("127.0.0.1", 1), "root_path": "", "http_version": "1.1",
        "scheme": "http", "server": ("gateway", 80), "asgi": {"version": "3.0"},
    }  # fmt: skip
    await test.app(scope, receive, send)
    return sent


@pytest.mark.parametrize("path", ["/v1/../admin", "/v1/a/%2e%2e/%2E%2e/x", "/v1/./x", "/v1/files/.."])
async def test_no_path_climbs_out_of_the_upstreams_base_url(path: str) -> None:
    """The backend's own key must not reach what lies beside its API."""
    async with passed() as (upstream, test):
        sent = await ask_raw(test, path)
        assert sent[0]["status"] == 404
        assert not upstream.received


async def test_the_base_urls_own_query_stays() -> None:
    async with raw_upstream() as upstream, passing(upstream.base_url + "?api-version=1") as test:
        await test.http.get("/v1/files")
        await test.http.get("/v1/files?a=b")
    assert [one.target for one in upstream.received] == [
        "/v1/files?api-version=1",
        "/v1/files?api-version=1&a=b",
    ]


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "OPTIONS", "POST"])
async def test_a_request_without_a_body_has_none_upstream(method: str) -> None:
    async with passed() as (upstream, test):
        response = await test.http.request(method, "/v1/files/f1")
        assert response.status_code == 200
        (received,) = upstream.received
        assert (received.method, received.body) == (method, b"")
        assert received.all("transfer-encoding") == []
        assert received.all("content-length") in ([], ["0"])


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH", "PUT"])
async def test_a_body_goes_up_whatever_the_method(method: str) -> None:
    async with passed() as (upstream, test):
        await test.http.request(method, "/v1/files/f1", content=b"body")
        assert (upstream.received[0].method, upstream.received[0].body) == (method, b"body")


async def test_head_tells_the_length_and_sends_nothing() -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"x" * 77)

    async with passed(answer) as (_, test):
        response = await test.http.head("/v1/files/f1/content")
        assert response.headers["content-length"] == "77"
        assert response.content == b""


async def test_a_binary_answer_comes_as_it_is() -> None:
    headers = {
        "content-type": "audio/mpeg",
        "content-disposition": 'attachment; filename="a.mp3"',
        "etag": '"e1"',
        "cache-control": "private",
        "x-ratelimit-remaining-requests": "9",
        "openai-processing-ms": "7",
        "retry-after": "1",
    }
    async with passed(replying(lambda: web.Response(body=RANDOM, headers=headers))) as (_, test):
        response = await test.http.get("/v1/files/f1/content")
        assert response.content == RANDOM
        assert {name: response.headers[name] for name in headers} == headers
        assert response.headers["content-length"] == str(len(RANDOM))


async def test_a_chunked_answer_comes_whole() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        async for piece in in_pieces(RANDOM, 4093):
            await response.write(piece)
        return response

    async with passed(answer) as (_, test):
        response = await test.http.get("/v1/files/f1/content")
        assert response.content == RANDOM
        assert "content-length" not in response.headers


@pytest.mark.parametrize("status", [201, 204, 206, 302, 304, 400, 404, 416, 429, 500, 503])
async def test_every_status_is_the_upstreams(status: int) -> None:
    headers = {"location": "http://elsewhere.test/x", "content-range": "bytes 0-1/9"}
    body = None if status in (204, 304) else b"why"
    async with passed(replying(lambda: web.Response(status=status, body=body, headers=headers))) as (
        up,
        test,
    ):
        response = await test.http.get("/v1/files/f1")
        assert (response.status_code, response.content) == (status, body or b"")
        assert response.headers["location"] == "http://elsewhere.test/x", (
            "redirects are the client's to follow"
        )
        assert len(up.received) == 1


SECRET_NAMES = ("cookie", "set-cookie", "authorization", "x-api-key", "proxy-authorization", "api-key")


async def test_no_secret_of_the_client_goes_up_and_none_of_the_upstream_comes_down() -> None:
    secrets = {name: f"secret-of-{name}" for name in SECRET_NAMES}
    hops = {"te": "trailers", "keep-alive": "timeout=5", "upgrade": "x", "proxy-connection": "close"}
    answer = replying(
        lambda: web.Response(body=b"ok", headers={**secrets, **hops, "server": "s", "x-own": "1"})
    )
    async with passed(answer) as (upstream, test):
        response = await test.http.post(
            "/v1/files", content=b"x", headers={**secrets, **hops, "x-own": "1", "forwarded": "for=1"}
        )
        received = upstream.received[0]
        assert received.all("authorization") == [f"Bearer {OWN}"]
        assert not any("secret-of" in value for _, value in received.headers)
        assert not any("secret" in value for value in response.headers.values())
        for name in (*hops, "x-own", "forwarded"):
            assert received.all(name) == [], name
            assert name not in response.headers, name
        assert received.all("host") == [upstream.base_url.split("/")[2]]


async def test_without_a_key_of_its_own_the_clients_credential_goes_up() -> None:
    async with raw_upstream() as upstream:
        async with passing(upstream.base_url, backend={"api_key": None}) as test:
            await test.http.get("/v1/files")
        async with passing(upstream.base_url, backend={"api_key": None}, auth={"mode": "open"}) as test:
            await test.http.get("/v1/files")
    assert [one.all("authorization") for one in upstream.received] == [[CREDENTIAL], []]


@pytest.mark.parametrize("given", ["client-id-1", None])
async def test_there_is_one_request_id_everywhere(given: str | None) -> None:
    answer = replying(lambda: web.Response(body=b"ok", headers={"x-request-id": "upstreams"}))
    async with passed(answer) as (upstream, test):
        headers = {"x-request-id": given} if given else {}
        response = await test.http.get("/v1/files", headers=headers)
        (told,) = response.headers.get_list("x-request-id")
        assert upstream.received[0].all("x-request-id") == [told]
        assert told == given or given is None


async def test_headers_beyond_ascii_are_the_same_bytes() -> None:
    name = 'attachment; filename="你é.txt"'
    answer = replying(lambda: web.Response(body=b"ok", headers={"content-disposition": name}))
    async with passed(answer, server={"forward_headers": ["x-note"]}) as (upstream, test):
        response = await test.http.get("/v1/files", headers={b"x-note": "你é".encode()})
        (value,) = [v for n, v in response.headers.raw if n == b"content-disposition"]
        assert value == name.encode()
        assert upstream.received[0].all("x-note") == ["你é"]


async def test_a_key_with_limits_is_counted_and_sees_its_own_limits() -> None:
    key = {"sha256": hashlib.sha256(b"k").hexdigest(), "requests_per_minute": 1}
    answer = replying(lambda: web.Response(body=b"ok", headers={"x-ratelimit-remaining-requests": "5000"}))
    async with passed(answer, auth={"mode": "keys", "keys": {"web": key}}) as (upstream, test):
        test.http.headers["authorization"] = "Bearer k"
        first = await test.http.get("/v1/files")
        assert first.headers.get_list("x-ratelimit-remaining-requests") == ["0"]
        second = await test.http.get("/v1/files")
        assert second.status_code == 429
        assert second.json()["error"]["code"] == "requests_per_minute_exceeded"
        assert len(upstream.received) == 1
        test.http.headers["authorization"] = "Bearer wrong"
        assert (await test.http.get("/v1/files")).status_code == 401


async def test_nobody_to_pass_it_to_is_404(unused_tcp_port: int) -> None:
    async with running() as test:
        response = await test.http.get("/v1/files")
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "unknown_path"
    async with passing(f"http://127.0.0.1:{unused_tcp_port}/v1") as test:
        response = await test.http.get("/v1/files")
        assert response.status_code == 502
        assert response.json()["error"]["code"] == "upstream_unreachable"
        assert len(response.headers.get_list("x-request-id")) == 1


async def test_an_upstream_that_is_not_http_or_too_late_is_told_in_json() -> None:
    async with FakeUpstream(lambda _: Reply(status=0, pieces=[], end="hang")) as upstream:
        async with passing(upstream.base_url, backend={"timeout_s": 0.05}) as test:
            response = await test.http.get("/v1/files")
            assert (response.status_code, response.json()["error"]["code"]) == (504, "upstream_timeout")
        await upstream.until(lambda server: server.aborted == 1)


async def test_a_request_is_never_repeated() -> None:
    """Not even when a kept-alive connection breaks: its body went by, and a job would run twice."""
    async with FakeUpstream(lambda _: Reply(pieces=[b"ok"])) as upstream, passing(upstream.base_url) as test:
        await test.http.post("/v1/batches", content=b"1")
        upstream.replies(Reply(status=0, end="reset"))
        assert (await test.http.post("/v1/batches", content=b"2")).status_code == 502
        assert [one.body for one in upstream.received] == [b"1", b"2"]
        assert upstream.connections == 1


async def test_a_log_line_tells_of_it() -> None:
    with capture_logs() as logs:
        async with passed() as (_, test):
            await test.http.get("/v1/files/secret-name?key=secret")
    (line,) = [line for line in logs if line["event"] == "request"]
    assert (line["status"], line["route"], line["backend"]) == (200, "raw", "up")
    assert "secret" not in str(line)
