"""The two servers of the soak, and what is seen of the gateway from outside."""

from __future__ import annotations

import http.client
import json
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import servers, soak_probe
from benchmarks.peers import Launch, Peer, Setting
from benchmarks.processes import PROC, free_port, memory_mib

MAX_ENTRIES = 2_000
GAP_MS = 4.0
_CONFIG = """
[cache]
store = "sqlite"
path = "{folder}/cache.db"
max_entries = {max_entries}
[cache.policy]
kind = "exact"
[ledger]
path = "{folder}/ledger.db"
[backends.up]
kind = "openai"
base_url = "{upstream}/v1"
apis = ["chat"]
[models.small]
backend = "up"
name = "upstream-model"
input_usd_per_mtok = 1.0
output_usd_per_mtok = 2.0
"""
_GAUGES = {
    "tasks": "lockgate_tasks",
    "flights": "lockgate_flights",
    "own_upstream_connections": "lockgate_upstream_connections",
    "entries": "lockgate_cache_entries",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A gateway that runs. `upstream`: the base URL of what it asks; `folder`: where its census is left."""

    url: str
    pid: int
    upstream: str
    folder: Path

    def sample(self) -> dict[str, Any]:
        """What it uses now. Blocks for a few milliseconds; the sockets are without the one that asks."""
        memory = memory_mib(self.pid)
        sockets, fds = _open_files(self.pid)
        told = self.at_upstream()
        return {
            "rss_mib": memory["rss"],
            "pss_mib": memory["pss"],
            "anonymous_mib": _anonymous_mib(self.pid),
            "fds": fds,
            "sockets": sockets,
            "threads": len(list((PROC / str(self.pid) / "task").iterdir())),
            "upstream_connections": told["connections"],
            "upstream_running": told["running"],
            **gauges(fetch(f"{self.url}/metrics").decode()),
        }

    def at_upstream(self) -> dict[str, int]:
        """What the upstream counts: `asked`, `running`, `dropped`, `connections`."""
        told: dict[str, int] = json.loads(fetch(f"{self.upstream}/soak"))
        return told

    def census(self) -> dict[str, Any]:
        """Raises TimeoutError, at once killing a gateway that was started without the probe."""
        return soak_probe.census(self.pid, self.folder)


def start(stack: ExitStack, folder: Path, *, probed: bool, traced: bool) -> Watched:
    """Starts both servers. Raises Unavailable."""
    upstream = servers.start(
        stack,
        Peer(name="soak-upstream", requirement="this checkout", launch=_upstream),
        folder,
        upstream="",
        key="",
    )
    # It shares the clients' cores: the gateway has its own.
    os.sched_setaffinity(upstream.pid, servers.CLIENT_CORES)
    environment = soak_probe.environment(folder, servers.ROOT, traced=traced) if probed or traced else {}
    gateway = servers.start(
        stack,
        Peer(name="lockgate", requirement="this checkout", launch=partial(_gateway, environment)),
        folder,
        upstream=upstream.url,
        key="",
    )
    return Watched(url=gateway.url, pid=gateway.pid, upstream=upstream.url, folder=folder)


def _upstream(_: Setting) -> Launch:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    return Launch(
        command=[sys.executable, "-m", "benchmarks.soak_upstream", str(port), "--gap-ms", str(GAP_MS)],
        url=url,
        ready_url=f"{url}/soak",
        environment={"PYTHONPATH": str(servers.ROOT)},
    )


def _gateway(environment: dict[str, str], at: Setting) -> Launch:
    port = free_port()
    config = at.folder / "config.toml"
    config.write_text(_CONFIG.format(folder=at.folder, upstream=at.upstream, max_entries=MAX_ENTRIES))
    url = f"http://127.0.0.1:{port}"
    return Launch(
        command=[sys.executable, "-m", "gateway", "serve", "--config", str(config), "--port", str(port)],
        url=url,
        ready_url=f"{url}/health/live",
        environment={"PYTHONPATH": str(servers.ROOT), **environment},
    )


def fetch(url: str) -> bytes:
    """The body of a GET. Raises OSError."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.netloc, timeout=10)
    try:
        connection.request("GET", where.path)
        return connection.getresponse().read()
    finally:
        connection.close()


def gauges(page: str) -> dict[str, float | None]:
    """Of a page of Prometheus metrics, those that a soak watches, over all labels; None where the gateway has
    no such."""
    values: dict[str, float] = {}
    for line in page.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            values[name] = values.get(name, 0.0) + float(value)
    return {name: values.get(gauge) for name, gauge in _GAUGES.items()}


def _open_files(pid: int) -> tuple[int, int]:
    """How many sockets a process has open, and how many files of all kinds."""
    targets = []
    for fd in (PROC / str(pid) / "fd").iterdir():
        try:
            targets.append(str(fd.readlink()))
        except OSError:
            continue  # closed meanwhile
    return sum(target.startswith("socket:") for target in targets), len(targets)


def _anonymous_mib(pid: int) -> float:
    """RSS without mapped files: what the process itself has asked for."""
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0
