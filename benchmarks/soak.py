"""Lockgate under clients that come and go: does its memory stay flat, and is nothing left behind?

One real `lockgate serve` (one worker; an SQLite cache of 2,000 entries, policy `exact`; passthrough keys; its
log in a file) before an upstream in a process of its own, and 64 connections of mixed requests: chat
completions, Anthropic messages and Responses, with and without streaming; new questions, repeated ones, equal
ones at the same time, and some that no cache may keep. One request in five is left: while its body is sent,
before its answer, or in the middle of it; half of those who leave do it with a reset. Every answer must be
whole and that of its question. At the end all leave at once.

    python benchmarks/soak.py [--quick] [--seconds S] [--json]
    python benchmarks/soak.py --census | --traced   (where growth comes from: objects by type; memory by line)

--json prints one object:
- `clients`: `requests`, and how many were `answered`, what the `cache` said, how many `left` where, `faults`;
- `upstream`: completions `asked` of it, and those `dropped`: the gateway closed their connection;
- `samples`, every 5 s: `at_s`, `rss_mib`, `pss_mib`, `anonymous_mib` (RSS without files), `fds`, `sockets`,
  `threads`, `upstream_connections` and `upstream_running` (as the upstream counts them); `tasks`, `flights`
  and `entries` as /metrics tells them, null where it does not;
- `thirds`: medians of each over the three thirds of the time;
- `rest`: the same figures with no client there, `before` (after a warm-up) and `after`;
- `upstream_idle_s`: when, after the last client had left, the upstream was last seen with a request running;
- `pool_left`: upstream connections half a minute later, when the pool has closed the idle ones; null with
  --quick;
- `goals`: a list of `name`, `value`, `wanted`, `met`; `environment`; `seed`;
- `census`: what grew `under_load`, from the end of the first third to the end, and `at_rest`, from before to
  after; null without --census.

In a short run memory still grows: the cache and the allocators fill up first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import report
from benchmarks.peers import Unavailable
from benchmarks.processes import pinned
from benchmarks.servers import CLIENT_CORES
from benchmarks.soak_client import Questions, Tally, visit
from benchmarks.soak_figures import Figures, at_rest, judged, medians, table
from benchmarks.soak_probe import growth
from benchmarks.soak_servers import MAX_ENTRIES, Watched, start

CONNECTIONS = 64
SEED = 20_260_729
EVERY_S = 5.0
RESET_HELD_S = 6.0
"""uvicorn's timers hold what belonged to a connection that was reset for 5 s."""
POOL_KEPT_S = 35.0
"""aiohttp closes what was idle for 15 s, and looks every 15 s."""
IDLE_WATCH_S = 2.0
IDLE_LIMIT_S = 10.0
REST_LIMIT_S = 5.0


async def soak(
    watched: Watched, seconds: float, every_s: float, connections: int, *, census: bool, drained: bool
) -> Figures:
    """The whole run, against servers that are there. `drained`: it waits until the pool is empty, too."""
    questions, tally = Questions(watched.url, SEED), Tally()
    samples: list[Figures] = []
    censuses: list[Figures] = []
    count = round(seconds / every_s)
    first_third = max(1, round(count / 3))

    async def watch() -> None:
        began = time.monotonic()
        for number in range(1, count + 1):
            await asyncio.sleep(began + number * every_s - time.monotonic())
            at_s = round(time.monotonic() - began, 1)
            samples.append({"at_s": at_s, **await asyncio.to_thread(watched.sample)})
            if census and number in (first_third, count):
                censuses.append(await asyncio.to_thread(watched.census))

    await _visited(watched, questions, Tally(), connections, asyncio.sleep(min(5.0, seconds / 6)))
    await _idle_s(watched)
    before = await asyncio.to_thread(watched.sample)
    first = await _census_at_rest(watched) if census else {}
    await _visited(watched, questions, tally, connections, watch())
    idle_s = await _idle_s(watched)
    after = await _rest(watched, before)
    last = await _census_at_rest(watched) if census else {}
    told = watched.at_upstream()
    return {
        "seconds": seconds,
        "connections": connections,
        "seed": SEED,
        "max_entries": MAX_ENTRIES,
        "clients": tally.told(),
        "upstream": {"asked": told["asked"], "dropped": told["dropped"]},
        "samples": samples,
        "thirds": medians(samples),
        "rest": {"before": before, "after": after},
        "upstream_idle_s": idle_s,
        "pool_left": await _pool_left(watched) if drained else None,
        "census": {"under_load": growth(censuses[0], censuses[-1]), "at_rest": growth(first, last)}
        if census
        else None,
    }


async def _visited(
    watched: Watched,
    questions: Questions,
    tally: Tally,
    connections: int,
    meanwhile: Coroutine[Any, Any, None],
) -> None:
    """Clients come, and leave when `meanwhile` has ended."""
    async with asyncio.TaskGroup() as group:
        visiting = group.create_task(visit(watched.url, questions, tally, connections))
        await meanwhile
        visiting.cancel()


async def _idle_s(watched: Watched) -> float:
    """When from now on the upstream was last seen at work, within `IDLE_WATCH_S`; longer while it is.

    It may be idle for a moment and get a request that the gateway still had in hand: hence the watch."""
    began = time.monotonic()
    last_s = 0.0
    while (now_s := time.monotonic() - began) < max(IDLE_WATCH_S, last_s + 0.2) and now_s < IDLE_LIMIT_S:
        if (await asyncio.to_thread(watched.at_upstream))["running"]:
            last_s = time.monotonic() - began
        await asyncio.sleep(0.02)
    return round(last_s, 3)


async def _rest(watched: Watched, before: Figures) -> Figures:
    """The figures when all is as before, or those after `REST_LIMIT_S`."""
    deadline = time.monotonic() + REST_LIMIT_S
    while True:
        after = await asyncio.to_thread(watched.sample)
        if at_rest(after, before) or time.monotonic() > deadline:
            return after
        await asyncio.sleep(0.2)


async def _pool_left(watched: Watched) -> int:
    """How many connections there are when all idle ones should be closed."""
    deadline = time.monotonic() + POOL_KEPT_S
    while (left := (await asyncio.to_thread(watched.at_upstream))["connections"]) > 0:
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.5)
    return left


async def _census_at_rest(watched: Watched) -> Figures:
    await asyncio.sleep(RESET_HELD_S)
    return await asyncio.to_thread(watched.census)


def run(
    seconds: float,
    every_s: float,
    connections: int = CONNECTIONS,
    *,
    census: bool = False,
    traced: bool = False,
    drained: bool = False,
) -> Figures:
    """Starts the servers, soaks the gateway, and judges. Raises Unavailable."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(pinned(CLIENT_CORES))
        watched = start(stack, folder, probed=census, traced=traced)
        whole = soak(watched, seconds, every_s, connections, census=census or traced, drained=drained)
        figures: Figures = uvloop.run(whole)
    return {**figures, "goals": judged(figures)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under a minute; writes nothing")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--census", action="store_true", help="count objects by type; writes nothing")
    parser.add_argument("--traced", action="store_true", help="and memory by line, slowly; writes nothing")
    options = parser.parse_args()
    seconds, every_s = (30.0, 1.0) if options.quick else (options.seconds, EVERY_S)
    if seconds < 3 * every_s:
        parser.error(f"--seconds: expected at least {3 * every_s:g}")
    try:
        payload = run(
            seconds,
            every_s,
            options.connections,
            census=options.census,
            traced=options.traced,
            drained=not options.quick,
        )
    except Unavailable as reason:
        raise SystemExit(f"soak: {reason}") from None
    if not (options.quick or options.census or options.traced):
        report.write("soak", payload, " ".join(["python benchmarks/soak.py", *sys.argv[1:]]))
    if options.json:
        print(json.dumps({**payload, "environment": report.environment()}))
    else:
        print(table(payload))


if __name__ == "__main__":
    main()
