"""The two servers of the ledger's benchmark, and what the gateway says of itself."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.ledger_checks import DIMENSIONS
from benchmarks.ledger_client import KEYS, TENANTS
from benchmarks.ledger_questions import MODELS, ROUTES
from benchmarks.processes import free_port, last_line, running
from gateway.keys import sha256_of
from gateway.ledger import Ledger
from gateway.ledger_store import LedgerStore
from gateway.stats import ledger_figures

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0
SETTLED_LIMIT_S = 10.0
_LOG = "gateway.log"
_CONFIG = """
[auth]
mode = "keys"
{keys}
[cache]
path = "{folder}/cache.db"
max_temperature = 0.9
[cache.policy]
kind = "exact"
[ledger]
path = "{folder}/ledger.db"
[backends.fleet]
kind = "openai"
base_url = "{upstream}/v1"
breaker_failure_share = 0.0
[backends.openai]
kind = "openai"
base_url = "{upstream}/v1"
breaker_failure_share = 0.0
[backends.plain]
kind = "openai"
base_url = "{upstream}/v1"
apis = ["chat"]
breaker_failure_share = 0.0
[backends.claude]
kind = "anthropic"
base_url = "{upstream}"
breaker_failure_share = 0.0
{models}
"""


class Failed(Exception):
    """A server that does not start or stop; says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Both, running. `folder` holds the gateway's files."""

    gateway: str
    upstream: str
    folder: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def log(self) -> Path:
        """The gateway's, one line a request."""
        return self.folder / _LOG

    def pages(self) -> dict[str, dict[str, Any]]:
        """`/admin/stats` by every dimension."""
        return {by: json.loads(fetch(f"{self.gateway}/admin/stats?by={by}")) for by in DIMENSIONS}

    def count(self) -> dict[str, Any]:
        """What the upstream counts."""
        told: dict[str, Any] = json.loads(fetch(f"{self.upstream}/count"))
        return told

    def settled(self, requests: int) -> None:
        """Waits until so many requests are in the ledger and nothing runs upstream, for a while at most: the
        checks tell what is missing."""
        deadline = time.monotonic() + SETTLED_LIMIT_S
        while self.pages()["day"]["total"]["requests"] < requests or self.count()["running"]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)

    def cli(self, *arguments: str) -> str:
        """What `lockgate stats` prints."""
        command = [sys.executable, "-m", "gateway", "stats", "--url", self.gateway, *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    def stop(self) -> int:
        """As an operator would; the exit status. Raises Failed."""
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def kill(self) -> None:
        """As a crash would. Raises Failed."""
        self.process.kill()
        self._ended()

    def _ended(self) -> int:
        try:
            return self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"the gateway does not stop within {STOP_LIMIT_S:g} s") from None

    def reopened(self) -> dict[str, dict[str, Any]]:
        """What the ledger's file holds, once the gateway has ended, as `pages`."""
        ledger = Ledger(LedgerStore(self.folder / "ledger.db"))
        try:
            return {by: ledger_figures(ledger, by) for by in DIMENSIONS}
        finally:
            ledger.close()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Servers]:
    """Starts both. Raises Failed."""
    with ExitStack() as stack:
        port = free_port()
        upstream = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "benchmarks.ledger_upstream", str(port)]
        _start(stack, command, folder / "upstream.log", f"{upstream}/count")
        config = folder / "config.toml"
        config.write_text(_config(folder, upstream))
        port = free_port()
        gateway = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(config), "--port", str(port)]
        process = _start(stack, command, folder / _LOG, f"{gateway}/health/live")
        yield Servers(gateway=gateway, upstream=upstream, folder=folder, process=process)


def fetch(url: str) -> bytes:
    """The body of a GET. Raises OSError."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.netloc, timeout=30)
    try:
        connection.request("GET", f"{where.path}?{where.query}")
        return connection.getresponse().read()
    finally:
        connection.close()


def _start(stack: ExitStack, command: list[str], log: Path, ready_url: str) -> subprocess.Popen[bytes]:
    environment = {"PYTHONPATH": str(ROOT)}
    process = stack.enter_context(running(command, log.parent, log, environment, os.sched_getaffinity(0)))
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            fetch(ready_url)
            return process
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"{log.stem} does not start: {last_line(log.read_text(errors='replace'))}")
        time.sleep(0.05)


def _config(folder: Path, upstream: str) -> str:
    keys = "".join(
        f'[auth.keys.{name}]\nsha256 = "{sha256_of(secret)}"\ntenant = "{TENANTS[name]}"\n'
        for name, secret in KEYS.items()
    )
    tables = [
        f'[models.{name}]\nbackend = "{model.backend}"\nname = "{model.upstream_name}"\n'
        f"input_usd_per_mtok = {model.input / 1e6:.6f}\noutput_usd_per_mtok = {model.output / 1e6:.6f}\n"
        f"cached_input_usd_per_mtok = {model.cached / 1e6:.6f}\n"
        f"cache_write_usd_per_mtok = {model.written / 1e6:.6f}\n"
        for name, model in MODELS.items()
    ]
    tables += [
        f'[routes.{name}]\nsmall = "{small}"\nlarge = "{large}"\n'
        f'[routes.{name}.policy]\nkind = "always-small"\nfallbacks = ["{large}"]\n'
        for name, (small, large) in ROUTES.items()
    ]
    return _CONFIG.format(keys=keys, folder=folder, upstream=upstream, models="".join(tables))
