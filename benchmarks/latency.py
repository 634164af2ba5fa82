"""What a request costs: exact hit, semantic hit and miss, against a bare Starlette proxy in the same run.

Real processes on loopback, each with one worker: an upstream that answers a fixed completion at once, a bare
Starlette + aiohttp proxy in front of it that does nothing but forward, and Lockgate in front of it with
everything on (auth, embedder, FAISS, SQLite, routing, metrics, a log line per request). The kinds of request
take turns, round by round, so that a busy machine hurts all alike. CPU time is that of the server process,
from /proc: the figure noise hurts least.

    python benchmarks/latency.py [--quick] [--json] [--rounds N] [--requests N]

Kinds of request:
- `bare`: through the proxy.
- `pass`: a model asked for by name in a gateway with its cache off; nothing is embedded.
- `exact`: one question again and again.
- `semantic`: other wordings of stored questions; each is embedded, searched, and served by similarity.
- `verified`: the same, served by policy `bounded`: its verifier reads each, its cross-encoder some.
- `miss`: a new question each time; embedded, searched at a threshold nothing reaches, forwarded, stored.
- `uncached`: the cache bypassed by temperature; embedded for the route, forwarded.

--json prints one object: `kinds`, by name, each with `requests`, `errors`, `p50_ms`, `p95_ms`, `p99_ms`,
`cpu_us` (median over rounds of the server's CPU time per request) and `cpu_ratio` (over `bare`); `entries`
(stored before the run), `environment`. Seed: none; the questions are numbered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import report

BARE_PROXY = """
import contextlib, os, aiohttp
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
async def forward(request):
    body = await request.body()
    url = os.environ["UPSTREAM"] + request.url.path
    headers = {"content-type": "application/json", "authorization": request.headers["authorization"]}
    async with app.state.session.post(url, data=body, headers=headers) as r:
        return Response(await r.read(), r.status, media_type="application/json")
@contextlib.asynccontextmanager
async def lifespan(app):
    async with aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()) as session:
        app.state.session = session
        yield
app = Starlette(routes=[Route("/v1/chat/completions", forward, methods=["POST"])], lifespan=lifespan)
"""
UPSTREAM = """
import json
ANSWER = json.dumps({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "The quick brown fox. " * 34},
                 "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 18, "completion_tokens": 150, "total_tokens": 168}}).encode()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})
"""
CONFIG = """
[cache]
enabled = {enabled}
path = "{folder}/{name}.db"
[cache.policy]
{policy}
[embeddings]
deadline_ms = 5000
[backends.up]
kind = "openai"
base_url = "{upstream}/v1"
[models.small]
backend = "up"
name = "small"
[models.large]
backend = "up"
name = "large"
[routes.auto]
small = "small"
large = "large"
{route}
"""
STATIC = 'kind = "static"\nmin_similarity = {}'
# So free a bound that all rewordings are served: what a hit takes is measured, not how many there are.
BOUNDED = 'kind = "bounded"\nmax_error_rate = 0.5\nverify_share = 0.0\nexplore_share = 0.0'
SUBJECTS = (
    "a lighthouse", "a submarine", "a windmill", "a telescope", "a violin", "a glacier", "a honeycomb",
    "a steam engine", "a suspension bridge", "a volcano", "a coral reef", "a sundial", "a parachute",
    "a compass", "a barometer", "a loom",
)  # fmt: skip
WORDINGS = (
    "How does {} work?", "How does {} work exactly?", "How does {} actually work?", "So how does {} work?",
    "Tell me, how does {} work?", "how does {} work",
)  # fmt: skip


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def process(*command: str, folder: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("ab") as log:
        running = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", **environment},
            stdout=log,
            stderr=log,
        )
        try:
            yield running
        finally:
            running.terminate()
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                running.kill()


def uvicorn(module: str, port: int) -> list[str]:
    return [
        "-m",
        "uvicorn",
        f"{module}:app",
        "--port",
        str(port),
        "--no-access-log",
        "--log-level",
        "warning",
    ]


def cpu_seconds(pid: int) -> float:
    """Time on a CPU of all threads of a process so far, to the nanosecond (schedstat, Linux)."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


class Kind:
    """One kind of request against one server: what to send, and what came of it."""

    def __init__(
        self, name: str, url: str, pid: int, expected: str | None, body: Callable[[int], dict[str, Any]]
    ) -> None:
        self.name = name
        self.url = f"{url}/v1/chat/completions"
        self.pid = pid
        self.expected = expected
        self.body = body
        self.sent = 0
        self.errors = 0
        self.latencies: list[float] = []
        self.cpu_us: list[float] = []

    async def round(self, session: aiohttp.ClientSession, requests: int) -> None:
        before = cpu_seconds(self.pid)
        for _ in range(requests):
            body = json.dumps(self.body(self.sent)).encode()
            self.sent += 1
            began = time.perf_counter()
            async with session.post(self.url, data=body) as response:
                await response.read()
                self.latencies.append(time.perf_counter() - began)
                got = response.headers.get("x-lockgate-cache")
                if response.status != 200 or got != self.expected:
                    self.errors += 1
        self.cpu_us.append((cpu_seconds(self.pid) - before) / requests * 1e6)

    def summary(self, bare_cpu_us: float) -> dict[str, Any]:
        cuts = quantiles(self.latencies, n=100)
        return {
            "requests": len(self.latencies),
            "errors": self.errors,
            "p50_ms": cuts[49] * 1e3,
            "p95_ms": cuts[94] * 1e3,
            "p99_ms": cuts[98] * 1e3,
            "cpu_us": median(self.cpu_us),
            "cpu_ratio": median(self.cpu_us) / bare_cpu_us,
        }


def asking(text: str, model: str = "auto", **fields: Any) -> dict[str, Any]:
    system = {"role": "system", "content": "You are a helpful assistant."}
    return {
        "model": model,
        "messages": [system, {"role": "user", "content": text}],
        "max_tokens": 256,
        **fields,
    }


def stored_question(number: int) -> str:
    return WORDINGS[0].format(SUBJECTS[number % len(SUBJECTS)])


def reworded(number: int) -> str:
    # What was served by similarity is not stored under its own key: the same wording is searched each time.
    wording = WORDINGS[1 + number // len(SUBJECTS) % (len(WORDINGS) - 1)]
    return wording.format(SUBJECTS[number % len(SUBJECTS)])


async def wait_for(url: str, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < deadline:
            try:
                async with session.get(url) as response:
                    await response.read()
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)
    raise SystemExit(f"latency: nothing answers at {url}")


async def measure(kinds: list[Kind], gateways: list[str], rounds: int, requests: int) -> None:
    headers = {"authorization": "Bearer sk-benchmark", "content-type": "application/json"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for lockgate, number in product(gateways, range(len(SUBJECTS))):
            body = asking(stored_question(number))
            async with session.post(f"{lockgate}/v1/chat/completions", json=body) as response:
                await response.read()
        for kind in kinds:
            await kind.round(session, max(20, requests // 5))
            kind.errors, kind.latencies, kind.cpu_us = 0, [], []
        for _ in range(rounds):
            for kind in kinds:
                await kind.round(session, requests)


def run(rounds: int, requests: int) -> dict[str, Any]:
    ports = {name: free_port() for name in ("upstream", "bare", "cached", "strict", "verified", "plain")}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "upstream.py").write_text(UPSTREAM)
        (folder / "bare.py").write_text(BARE_PROXY)
        always_small = '[routes.auto.policy]\nkind = "always-small"'
        gateways = {
            "cached": {"enabled": "true", "policy": STATIC.format(0.95), "route": ""},
            "strict": {"enabled": "true", "policy": STATIC.format(1.0), "route": ""},
            "verified": {"enabled": "true", "policy": BOUNDED, "route": ""},
            "plain": {"enabled": "false", "policy": STATIC.format(0.9), "route": always_small},
        }
        for name, settings in gateways.items():
            text = CONFIG.format(folder=folder, name=name, upstream=urls["upstream"], **settings)
            (folder / f"{name}.toml").write_text(text)

        def gateway(name: str) -> list[str]:
            return ["-m", "gateway", "serve", "--config", f"{name}.toml", "--port", str(ports[name])]

        start = {
            "upstream": uvicorn("upstream", ports["upstream"]),
            "bare": uvicorn("bare", ports["bare"]),
            **{name: gateway(name) for name in gateways},
        }
        pids = {
            name: stack.enter_context(process(*command, folder=folder, UPSTREAM=urls["upstream"])).pid
            for name, command in start.items()
        }
        for url in urls.values():
            asyncio.run(wait_for(url))

        def kind(name: str, server: str, expected: str | None, body: Callable[[int], dict[str, Any]]) -> Kind:
            return Kind(name, urls[server], pids[server], expected, body)

        kinds = [
            kind("bare", "bare", None, lambda _: asking(stored_question(0))),
            kind("pass", "plain", "bypass", lambda _: asking(stored_question(0), "small")),
            kind("exact", "cached", "hit-exact", lambda _: asking(stored_question(0))),
            kind("semantic", "cached", "hit-semantic", lambda n: asking(reworded(n))),
            kind("verified", "verified", "hit-semantic", lambda n: asking(reworded(n))),
            kind(
                "miss", "strict", "miss", lambda n: asking(f"{stored_question(n)} Answer number {n * 7919}.")
            ),
            kind("uncached", "cached", "bypass", lambda _: asking(stored_question(0), temperature=1.5)),
        ]
        asyncio.run(measure(kinds, [urls["cached"], urls["verified"]], rounds, requests))
        bare = median(kinds[0].cpu_us)
        return {"entries": len(SUBJECTS), "kinds": {kind.name: kind.summary(bare) for kind in kinds}}


def table(kinds: dict[str, dict[str, Any]]) -> str:
    lines = ["kind        p50 ms   p95 ms   p99 ms   CPU us   x bare   requests   unexpected"]
    lines += [
        f"{name:<10} {k['p50_ms']:7.2f}  {k['p95_ms']:7.2f}  {k['p99_ms']:7.2f}  {k['cpu_us']:7.0f}"
        f"  {k['cpu_ratio']:7.2f}  {k['requests']:9d}  {k['errors']:11d}"
        for name, k in kinds.items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=200, help="of each kind in a round")
    options = parser.parse_args()
    rounds, requests = (3, 80) if options.quick else (options.rounds, options.requests)
    payload = run(rounds, requests)
    if not options.quick:
        report.write("latency", payload, " ".join(["python benchmarks/latency.py", *sys.argv[1:]]))
    if options.json:
        print(json.dumps({**payload, "environment": report.environment()}))
    else:
        print(table(payload["kinds"]))


if __name__ == "__main__":
    main()
