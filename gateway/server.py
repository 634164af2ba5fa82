"""`lockgate serve`: from a config file to a listening socket."""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import os
import socket
import sys
from pathlib import Path

import click

from backends.errors import EngineUnavailable
from embeddings.protocols import EmbedderError, StoreError
from gateway.cli import UserError
from gateway.config import load
from gateway.config_problems import ConfigError
from gateway.ledger_store import LedgerError
from gateway.settings import Settings
from policies.difficulty import WeightsError

GRACE_S = 10
BACKLOG = 2048


def run(config_path: Path | None, *, host: str | None, port: int | None, as_json: bool) -> None:
    """Serve until told to stop. Raises UserError for all that a user can mend."""
    from gateway import logs

    as_json = as_json or not sys.stderr.isatty()
    logs.configure(as_json=as_json)
    try:
        settings = load(config_path)
        listener = listen(host or settings.server.host, settings.server.port if port is None else port)
        with listener, asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, listener, as_json=as_json))
    except (ConfigError, EmbedderError, StoreError, EngineUnavailable, WeightsError, LedgerError) as error:
        raise UserError(str(error)) from None
    except KeyboardInterrupt:
        sys.exit(130)


def listen(host: str, port: int) -> socket.socket:
    """Bind before anything is loaded: a taken port shows at once. Raises UserError."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except socket.gaierror:
        raise UserError(f"server.host = {host!r}: expected a name or address of this machine") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = "; choose another with --port" if "in use" in reason else ""
        raise UserError(f"cannot listen on {host}:{port}: {reason.lower()}{hint}") from None
    listener.setblocking(False)
    return listener


async def _serve(settings: Settings, listener: socket.socket, *, as_json: bool) -> None:
    import uvicorn

    from gateway.app import build_app
    from gateway.assembly import assemble
    from gateway.request_log import ConsoleRequestLog, JsonRequestLog

    announce("lockgate", importlib.metadata.version("lockgate"))
    log = JsonRequestLog(sys.stderr.buffer) if as_json else ConsoleRequestLog()
    gateway = await assemble(settings, announce, log=log)
    config = uvicorn.Config(
        build_app(gateway),
        http="httptools",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the peer is who connects, whatever a header claims
        lifespan="on",
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_S,
    )
    _relieve_the_collector()
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    announce("listening", f"http://{address}  (base_url for clients: http://{address}/v1)")
    await uvicorn.Server(config).serve(sockets=[listener])


def _relieve_the_collector() -> None:
    """What is there at the start stays: the garbage collector need not look at it again, and under load it
    need not run every few requests (measured: a third of a pass-through's CPU at 64 connections)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def announce(part: str, state: str) -> None:
    """One line of the start-up report."""
    click.echo(f"{part:<10} {state}", err=True)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    loop: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop
