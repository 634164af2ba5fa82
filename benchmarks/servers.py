"""The servers of a gateway benchmark: the upstream, the bare proxy, Lockgate, and its peers, each a process
tree."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.peers import Launch, Peer, Setting, Unavailable, install
from benchmarks.processes import free_port, last_line, running

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT_S = 120.0
_CORES = os.sched_getaffinity(0)
# The servers share one core in turn, so that each has as much as the others; the client and the upstream have
# all others, where there are others.
SERVER_CORES = {max(_CORES)}
CLIENT_CORES = _CORES - SERVER_CORES or SERVER_CORES
LOCKGATE_CONFIG = """
[cache]
enabled = {enabled}
store = "sqlite"
path = "{folder}/cache.db"
[cache.policy]
kind = "exact"
[backends.up]
kind = "openai"
base_url = "{upstream}/v1"
[models.small]
backend = "up"
name = "upstream-model"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One that runs. `hits`: it is asked what it has in its cache; `what`: what was installed."""

    name: str
    url: str
    model: str
    headers: dict[str, str]
    pid: int
    hits: bool
    what: str
    log: Path


def bare(at: Setting) -> Launch:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "benchmarks.bare:app", "--port", str(port)]
    command += ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]
    url = f"http://127.0.0.1:{port}"
    return Launch(
        command=command,
        url=f"{url}/v1/chat/completions",
        ready_url=url,
        environment={"PYTHONPATH": str(ROOT), "UPSTREAM": at.upstream},
    )


def lockgate(at: Setting) -> Launch:
    return _lockgate(at, enabled="false")


def lockgate_with_cache(at: Setting) -> Launch:
    return _lockgate(at, enabled="true")


def _lockgate(at: Setting, enabled: str) -> Launch:
    port = free_port()
    config = at.folder / "config.toml"
    config.write_text(LOCKGATE_CONFIG.format(enabled=enabled, folder=at.folder, upstream=at.upstream))
    url = f"http://127.0.0.1:{port}"
    return Launch(
        command=[sys.executable, "-m", "gateway", "serve", "--config", str(config), "--port", str(port)],
        url=f"{url}/v1/chat/completions",
        ready_url=f"{url}/health/live",
        environment={"PYTHONPATH": str(ROOT)},
    )


OWN = (
    Peer(name="bare", requirement="starlette + aiohttp", launch=bare),
    Peer(name="lockgate", requirement="this checkout", launch=lockgate),
    Peer(name="lockgate-hit", requirement="this checkout", hits=True, launch=lockgate_with_cache),
)


def upstream(stack: ExitStack, folder: Path, gap_ms: float) -> str:
    """Starts the upstream; its base URL. Raises Unavailable."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "benchmarks.upstream", str(port), "--gap-ms", str(gap_ms)]
    launch = Launch(command=command, url=url, ready_url=url, environment={"PYTHONPATH": str(ROOT)})
    _run(stack, launch, folder, CLIENT_CORES)
    return url


def start(
    stack: ExitStack, peer: Peer, folder: Path, *, upstream: str, key: str, may_install: bool = True
) -> Server:
    """Installs a peer where it needs it, starts it, and waits until it serves. Raises Unavailable."""
    if peer.launch is None:
        raise Unavailable(peer.why_not)
    home = folder
    if peer.home:
        home = install(peer, may_install=may_install)
    own = folder / peer.name
    own.mkdir()
    launch = peer.launch(Setting(installed=home, folder=own, upstream=upstream, key=key))
    process = _run(stack, launch, own, SERVER_CORES)
    url = launch.url if launch.url_file is None else launch.url_file.read_text() + launch.url
    return Server(
        name=peer.name,
        url=url,
        model=launch.model,
        headers=launch.headers,
        pid=process.pid,
        hits=peer.hits,
        what=peer.what(),
        log=own / "log",
    )


def _run(stack: ExitStack, launch: Launch, folder: Path, cores: set[int]) -> subprocess.Popen[bytes]:
    log = folder / "log"
    process = stack.enter_context(running(launch.command, folder, log, launch.environment, cores))
    deadline = time.monotonic() + START_LIMIT_S
    while not (launch.url_file.exists() if launch.url_file else _answers(launch.ready_url)):
        if process.poll() is not None:
            raise Unavailable(f"does not start: {last_line(log.read_text(errors='replace'))}")
        if time.monotonic() > deadline:
            raise Unavailable(f"does not serve within {START_LIMIT_S:g} s of its start")
        time.sleep(0.1)
    return process


def _answers(url: str) -> bool:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.netloc, timeout=5)
    try:
        connection.request("GET", where.path or "/")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
