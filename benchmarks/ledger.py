"""Does the ledger add up? Mixed requests beside the upstream's own count and what the clients saw.

One real `lockgate serve` before an upstream that counts, both in processes of their own. 10,000 requests of
three keys and two tenants, over five APIs, with and without streaming and `include_usage`: new and repeated
questions, five equal ones at once, retries, fallbacks, failures, streams that break, clients that leave
before the answer or in the middle of it, translated APIs, and what the gateway refuses itself. Then the sums
of `/admin/stats` by every dimension, of /metrics, of `lockgate stats` and, after a clean stop, of the file
must be those of the upstream (calls, tokens and pico-USD of each model) and of the clients, exactly. And of a
gateway that is killed, nothing is lost that ended a second before.

    python benchmarks/ledger.py [--quick] [--json]

--json prints one object:
- `requests`, `seed`, `seconds`, `scenes` (how many of each kind), `killed` (requests before the first kill);
- `ledger`: its totals after the stop; `upstream`: what it counted, by model;
- `checks`: for `running`, `stopped`, `killed` and `killed under load` how many were `made`, and which
  `failed`: `name`, what the `ledger` says and what was `wanted`; `environment`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import report
from benchmarks.ledger_checks import Check, Pages, checks, cli, failed, while_running
from benchmarks.ledger_client import ANSWER_LIMIT_S, Client, Log, Seen
from benchmarks.ledger_mix import TOGETHER, Mix, Scene
from benchmarks.ledger_servers import Servers, fetch, serving

SEED = 20_261_130
REQUESTS, QUICK_REQUESTS = 10_000, 600
KILLED_REQUESTS = 300
KILLED_AFTER_S = 2.0
SCENES_AT_ONCE = 24
WATCH_EVERY_S = 0.5
CLEAN_STATUSES = (0, -signal.SIGTERM)  # uvicorn raises the signal again once all is closed
LOST_S = 1.0
"""What a kill may lose at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`found` are the checks, by when they were made."""

    scenes: Counter[str]
    seconds: float
    found: dict[str, list[Check]]
    ledger: dict[str, Any]
    upstream: dict[str, Any]


async def play(servers: Servers, scenes: list[Scene], seen: list[Seen]) -> None:
    """Plays all scenes; `seen` is what the clients saw."""
    waiting = iter(scenes)

    async def work(client: Client) -> None:
        for scene in waiting:
            await scene.play(client)

    timeout = aiohttp.ClientTimeout(total=ANSWER_LIMIT_S)
    connector = aiohttp.TCPConnector(limit=0)
    with closing(Log(servers.log)) as log:
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            client = Client(http, servers.gateway, servers.upstream, log, seen)
            async with asyncio.TaskGroup() as group:
                for _ in range(SCENES_AT_ONCE):
                    group.create_task(work(client))


async def play_watched(servers: Servers, scenes: list[Scene], seen: list[Seen]) -> list[Pages]:
    """And what `/admin/stats` says meanwhile."""
    told: list[Pages] = []

    async def watch() -> None:
        while True:
            told.append(await asyncio.to_thread(servers.pages))
            await asyncio.sleep(WATCH_EVERY_S)

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        await play(servers, scenes, seen)
        watching.cancel()
    return told


def run(folder: Path, requests: int, seed: int = SEED) -> Run:
    """A whole run and a clean stop. Raises Failed."""
    scenes, seen = list(Mix(seed).scenes(requests)), list[Seen]()
    with serving(folder) as servers:
        began = time.monotonic()
        meanwhile = uvloop.run(play_watched(servers, scenes, seen))
        seconds = time.monotonic() - began
        servers.settled(len(seen))
        pages, upstream = servers.pages(), servers.count()
        metrics = fetch(f"{servers.gateway}/metrics").decode()
        found = [
            *while_running([*meanwhile, pages]),
            *checks(pages, upstream, seen, metrics),
            *cli(pages, servers.cli),
        ]
        status = servers.stop()
        kept = servers.reopened()
    stopped = [
        Check(name="exit status", ledger=status in CLEAN_STATUSES, wanted=True),
        Check(name="the file, and what was told last", ledger=kept, wanted=pages),
        *checks(kept, upstream, seen),
    ]
    return Run(
        scenes=Counter(scene.name for scene in scenes),
        seconds=round(seconds, 1),
        found={"running": found, "stopped": stopped},
        ledger=kept["day"]["total"],
        upstream=upstream["models"],
    )


def run_and_kill(folder: Path, requests: int, seed: int = SEED) -> list[Check]:
    """Kills the gateway `LOST_S` after it has ended its last request. Raises Failed."""
    scenes, seen = list(Mix(seed).scenes(requests)), list[Seen]()
    with serving(folder) as servers:
        uvloop.run(play(servers, scenes, seen))
        servers.settled(len(seen))
        time.sleep(LOST_S)
        upstream = servers.count()
        servers.kill()
        return checks(servers.reopened(), upstream, seen)


def kill_under_load(folder: Path, after_s: float, seed: int = SEED) -> list[Check]:
    """Kills the gateway in the midst of its work. Raises Failed."""
    scenes, seen = list(Mix(seed).scenes(REQUESTS)), list[Seen]()

    async def killed(servers: Servers) -> float:
        playing = asyncio.ensure_future(play(servers, scenes, seen))
        await asyncio.sleep(after_s)
        servers.process.kill()
        at = time.monotonic()
        await asyncio.wait([playing])
        playing.exception()  # that nobody answers any more
        return at

    with serving(folder) as servers:
        killed_at = uvloop.run(killed(servers))
        kept = servers.reopened()["day"]["total"]["requests"]
    before = sum(one.ended_at < killed_at - LOST_S for one in seen)
    return [
        Check(name="requests ended a second before the kill", ledger=min(kept, before), wanted=before),
        Check(
            name="requests at the kill, at most",
            ledger=max(kept, len(seen) + SCENES_AT_ONCE * TOGETHER),
            wanted=len(seen) + SCENES_AT_ONCE * TOGETHER,
        ),
    ]


def told(ran: Run) -> dict[str, Any]:
    """The figures for people and files."""
    return {
        "requests": ran.ledger["requests"],
        "killed": KILLED_REQUESTS,
        "seed": SEED,
        "seconds": ran.seconds,
        "scenes": dict(sorted(ran.scenes.items())),
        "ledger": ran.ledger,
        "upstream": ran.upstream,
        "checks": {
            when: {"made": len(found), "failed": [one.told() for one in found if not one.holds]}
            for when, found in ran.found.items()
        },
    }


def table(ran: Run) -> str:
    """For a terminal."""
    total = ran.ledger
    lines = [
        f"{total['requests']:,} requests in {ran.seconds:g} s: {total['hits']:,} hits, {total['errors']:,} "
        f"errors, {total['cancelled']:,} cancelled, {total['upstream_calls']:,} upstream calls",
        f"{total['prompt_tokens']:,} tokens in, {total['completion_tokens']:,} out; "
        f"{total['cost_usd']:.12f} USD, {total['without_usd']:.12f} without",
    ]
    for when, found in ran.found.items():
        wrong = failed(found)
        lines.append(f"{when}: {len(found) - len(wrong)} of {len(found)} checks hold")
        lines += [f"  {line}" for line in wrong]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_REQUESTS} requests; writes nothing")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        ran = run(Path(first), QUICK_REQUESTS if options.quick else REQUESTS)
        ran.found["killed"] = run_and_kill(Path(second), KILLED_REQUESTS)
    with tempfile.TemporaryDirectory() as third:
        ran.found["killed under load"] = kill_under_load(Path(third), KILLED_AFTER_S)
    payload = told(ran)
    if not options.quick:
        report.write("ledger", payload, " ".join(["python benchmarks/ledger.py", *sys.argv[1:]]))
    print(json.dumps({**payload, "environment": report.environment()}) if options.json else table(ran))
    if any(failed(found) for found in ran.found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
