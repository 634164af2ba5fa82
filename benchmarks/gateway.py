"""Lockgate beside a bare proxy and other gateways: one interleaved run, the same load, the same upstream.

Real processes on loopback, one worker each (the Rust ones with the threads they take), each in front of an
upstream that answers at once. In every cell (kind of request, connections) the servers take turns, round by
round, so that a busy machine hurts all alike; figures are medians over the rounds. Every answer's status,
length and end are checked, its content once, and after every round how often the upstream was asked: once a
request, or never where the answers come from a cache.

    python benchmarks/gateway.py [--quick] [--json] [--rounds N] [--peers a,b | --no-peers]
    python benchmarks/gateway.py --profile {json,stream,paced,hit,hit-stream}

Servers: `bare` (Starlette + aiohttp, which only forwards), `lockgate` (cache off, bearer keys, metrics, a log
line for each request), `lockgate-hit` (cache on in SQLite, policy `exact`, asked one question again and
again), and the peers of benchmarks/peers.py: installed on the first run, each into an environment of its own
under the user's cache folder. One that cannot be had is reported with the reason.
Kinds: `json` (1 KB each way), `stream` (36 SSE events that the upstream sends in one write), `paced` (the
same events 2 ms apart: each costs its own way through).

--json prints one object:
- `servers`, by name: `what` (was installed), `rss_mib`, `pss_mib` (after the run, whole process tree);
- `unavailable`: reasons, by name of the server;
- `cells`: a list of `kind`, `connections`, `server`, `requests` (of all rounds), `errors` (counts by what was
  wrong), `req_per_s`, `p50_ms`, `p99_ms`, `cpu_us` (of all threads of the server's processes, per request);
- `goals`: a list of `name`, `value`, `wanted`, `met`;
- `environment`. Seed: none; every request of a cell is the same.

--profile writes benchmarks/results/gateway_profile.txt: where Lockgate's own time goes, by py-spy's samples.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import report, servers
from benchmarks.contest import play, prepare
from benchmarks.gateway_goals import Cells, judged, table
from benchmarks.peers import PEERS, Peer, Unavailable
from benchmarks.processes import memory_mib, pinned
from benchmarks.profiler import profile
from benchmarks.servers import Server

CELLS = (("json", 1), ("json", 64), ("stream", 1), ("stream", 64), ("paced", 64))
GAP_MS = 2.0
PROFILED = {
    "json": ("lockgate", "json"),
    "stream": ("lockgate", "stream"),
    "paced": ("lockgate", "paced"),
    "hit": ("lockgate-hit", "json"),
    "hit-stream": ("lockgate-hit", "stream"),
}
PROFILE_S = 10.0


async def compete(
    entrants: list[Server], base: str, key: str, cells: Sequence[tuple[str, int]], rounds: int, round_s: float
) -> tuple[Cells, dict[str, str]]:
    """All cells; and what could not be measured, by server."""
    figures: Cells = []
    faults: dict[str, str] = {}
    for kind, connections in cells:
        contests = []
        for server in entrants:
            # A hit asks nothing upstream: there is no pace to follow.
            if server.name in faults or (kind == "paced" and server.hits):
                continue
            try:
                contests.append(await prepare(server, kind, connections, key, round_s))
            except Unavailable as reason:
                faults[server.name] = str(reason)
        for number in range(rounds):
            first = number % max(1, len(contests))
            for contest in contests[first:] + contests[:first]:
                await play(contest, connections, base)
        figures += [contest.figures(kind, connections) for contest in contests]
        print(f"gateway: {kind} over {connections} done", file=sys.stderr)
    return figures, faults


def run(
    wanted: Sequence[Peer], cells: Sequence[tuple[str, int]], rounds: int, round_s: float, quick: bool
) -> dict[str, Any]:
    entrants: list[Server] = []
    unavailable: dict[str, str] = {}
    key = f"sk-{secrets.token_hex(32)}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(pinned(servers.CLIENT_CORES))
        base = servers.upstream(stack, folder, GAP_MS)
        for peer in wanted:
            try:
                if quick and peer.slow:
                    raise Unavailable("too slow for a quick run")
                server = servers.start(stack, peer, folder, upstream=base, key=key, may_install=not quick)
                entrants.append(server)
            except Unavailable as reason:
                unavailable[peer.name] = str(reason)
                print(f"gateway: {peer.name}: {reason}", file=sys.stderr)
        figures, faults = uvloop.run(compete(entrants, base, key, cells, rounds, round_s))
        told = {}
        for server in entrants:
            memory = memory_mib(server.pid)
            told[server.name] = {"what": server.what, "rss_mib": memory["rss"], "pss_mib": memory["pss"]}
    return {
        "rounds": rounds,
        "servers": told,
        "unavailable": unavailable | faults,
        "cells": figures,
        "goals": judged(figures, told),
    }


def profile_one(kind: str) -> str:
    """Where the time of one kind of request goes. Raises Unavailable."""
    name, sent = PROFILED[kind]
    key = f"sk-{secrets.token_hex(32)}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(pinned(servers.CLIENT_CORES))
        base = servers.upstream(stack, folder, GAP_MS)
        [peer] = [own for own in servers.OWN if own.name == name]
        server = servers.start(stack, peer, folder, upstream=base, key=key)

        async def under_load() -> str:
            contest = await prepare(server, sent, 64, key, round_s=PROFILE_S + 2)
            busy = play(contest, 64, base)
            found, _ = await asyncio.gather(asyncio.to_thread(profile, server.pid, PROFILE_S), busy)
            figures = contest.figures(kind, 64)
            return f"{json.dumps(figures)}\n\n{found}"

        text: str = uvloop.run(under_load())
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="under a minute; installs nothing, writes nothing"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-s", type=float, default=2.0, help="how long a server's turn lasts, about")
    parser.add_argument("--peers", help=f"some of {','.join(peer.name for peer in PEERS)}; all by default")
    parser.add_argument("--no-peers", action="store_true", help="only the bare proxy and Lockgate")
    parser.add_argument("--profile", choices=sorted(PROFILED))
    options = parser.parse_args()
    if options.profile:
        try:
            text = profile_one(options.profile)
        except Unavailable as reason:
            raise SystemExit(f"gateway: {reason}") from None
        (report.RESULTS / "gateway_profile.txt").write_text(text)
        print(text)
        return
    names = [peer.name for peer in PEERS] if options.peers is None else options.peers.split(",")
    if unknown := set(names) - {peer.name for peer in PEERS}:
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    wanted = [*servers.OWN, *(peer for peer in PEERS if peer.name in names and not options.no_peers)]
    if options.quick:
        payload = run(wanted, CELLS[:4], rounds=2, round_s=0.25, quick=True)
    else:
        payload = run(wanted, CELLS, rounds=options.rounds, round_s=options.round_s, quick=False)
    if not options.quick:
        report.write("gateway", payload, " ".join(["python benchmarks/gateway.py", *sys.argv[1:]]))
    if options.json:
        print(json.dumps({**payload, "environment": report.environment()}))
    else:
        print(table(payload))


if __name__ == "__main__":
    main()
