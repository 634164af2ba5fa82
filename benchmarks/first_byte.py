"""How long an event of a stream spends in the gateway: from its being written upstream to the client's
having it.

Real processes on loopback: an upstream that writes an event every `--gap-ms`, each with the time at which
it was written (the system's monotonic clock, which all processes share), and Lockgate in front of it with
authentication, metrics and its log on and the cache off. One client reads streams of both, in turns.

    python benchmarks/first_byte.py [--quick] [--json] [--streams N] [--events N] [--gap-ms MS]

--json prints one object: `direct` and `lockgate`, each with `first` and `later` (events), and of each
`count`, `p50_ms`, `p99_ms`, `max_ms`; `added_p50_ms` of the first event (Lockgate over direct);
`environment`. Seed: none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import report
from benchmarks.latency import free_port, process, uvicorn, wait_for

UPSTREAM = """
import asyncio, json, os, time
GAP_S, EVENTS = float(os.environ["GAP_S"]), int(os.environ["EVENTS"])
def event(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\\n\\n"
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(EVENTS):
        await asyncio.sleep(GAP_S)
        written = {"content": str(time.monotonic_ns())}
        await send({"type": "http.response.body", "body": event(written), "more_body": True})
    await send({"type": "http.response.body", "body": event({}, "stop") + b"data: [DONE]\\n\\n"})
"""
CONFIG = """
[cache]
enabled = false
[ledger]
path = "{folder}/ledger.db"
[backends.up]
kind = "openai"
base_url = "{upstream}/v1"
[models.m]
backend = "up"
name = "m"
"""


async def read(session: aiohttp.ClientSession, url: str) -> list[float]:
    """Milliseconds that each event took."""
    took = []
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        async for line in response.content:
            now = time.monotonic_ns()
            if line.startswith(b"data: {"):
                written = json.loads(line[6:])["choices"][0]["delta"].get("content")
                if written is not None:
                    took.append((now - int(written)) / 1e6)
    return took


def summary(values: list[float]) -> dict[str, float]:
    cuts = quantiles(values, n=100)
    return {"count": len(values), "p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": max(values)}


async def measure(urls: dict[str, str], streams: int) -> dict[str, Any]:
    first: dict[str, list[float]] = {name: [] for name in urls}
    later: dict[str, list[float]] = {name: [] for name in urls}
    async with aiohttp.ClientSession(headers={"authorization": "Bearer sk-benchmark"}) as session:
        for number in range(streams + 3):
            for name, url in urls.items():
                took = await read(session, url)
                if number >= 3:  # the first ones warm up
                    first[name].append(took[0])
                    later[name] += took[1:]
    told: dict[str, Any] = {
        name: {"first": summary(first[name]), "later": summary(later[name])} for name in urls
    }
    told["added_p50_ms"] = told["lockgate"]["first"]["p50_ms"] - told["direct"]["first"]["p50_ms"]
    return told


def run(streams: int, events: int, gap_ms: float) -> dict[str, Any]:
    ports = {name: free_port() for name in ("direct", "lockgate")}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "upstream.py").write_text(UPSTREAM)
        (folder / "lockgate.toml").write_text(CONFIG.format(folder=folder, upstream=urls["direct"]))
        gateway = ["-m", "gateway", "serve", "--config", "lockgate.toml", "--port", str(ports["lockgate"])]
        pace = {"GAP_S": str(gap_ms / 1000), "EVENTS": str(events)}
        stack.enter_context(process(*uvicorn("upstream", ports["direct"]), folder=folder, **pace))
        stack.enter_context(process(*gateway, folder=folder))
        for url in urls.values():
            asyncio.run(wait_for(url))
        return asyncio.run(measure(urls, streams))


def table(payload: dict[str, Any]) -> str:
    lines = ["server      event    p50 ms   p99 ms   max ms"]
    for name in ("direct", "lockgate"):
        for which in ("first", "later"):
            row = payload[name][which]
            lines.append(
                f"{name:<10}  {which:<6} {row['p50_ms']:8.2f} {row['p99_ms']:8.2f} {row['max_ms']:8.2f}"
            )
    return "\n".join([*lines, f"added to the first event, p50: {payload['added_p50_ms']:.2f} ms"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--gap-ms", type=float, default=5.0)
    options = parser.parse_args()
    payload = run(30 if options.quick else options.streams, options.events, options.gap_ms)
    if not options.quick:
        report.write("first_byte", payload, " ".join(["python benchmarks/first_byte.py", *sys.argv[1:]]))
    if options.json:
        print(json.dumps({**payload, "environment": report.environment()}))
    else:
        print(table(payload))


if __name__ == "__main__":
    main()
