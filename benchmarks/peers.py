"""Other gateways: how each is installed, started and asked.

Each lives in an environment of its own, `<user cache>/lockgate/peers/NAME`, made once and made again when its
pinned requirement changes. One that cannot be had raises Unavailable with the reason.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from benchmarks.processes import CommandFailed, finish, free_port

INSTALL_LIMIT_S = 600.0
CACHE = Path(platformdirs.user_cache_dir("lockgate")) / "peers"


class Unavailable(Exception):
    """A peer that cannot be measured here; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A server to be: its command and environment, and what a chat request to it needs.

    `url` takes chat completions; a server that chooses its own port writes its base URL to `url_file`
    instead, and `url` is the path. `ready_url` answers once it serves. `environment` is added to ours.
    """

    command: list[str]
    url: str
    ready_url: str = ""
    url_file: Path | None = None
    model: str = "small"
    headers: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a server starts: its environment's folder, an empty folder for its files, the upstream's base URL
    without /v1, and the bearer key that clients will send."""

    installed: Path
    folder: Path
    upstream: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """`requirement`: what pip or npm is asked for, into the environment `home`; where there is none,
    `why_not` says why. `overrides`: versions that npm must take of its dependencies. `hits`: answers from its
    own exact cache. `slow`: left out of a quick run."""

    name: str
    home: str = ""
    requirement: str = ""
    npm: bool = False
    overrides: Mapping[str, str] = field(default_factory=dict)
    why_not: str = ""
    hits: bool = False
    slow: bool = False
    launch: Callable[[Setting], Launch] | None = None

    def what(self) -> str:
        """What is installed, in words."""
        held = [f"{name} {version}" for name, version in self.overrides.items()]
        return " with ".join([self.requirement, *held])


def install(peer: Peer, *, may_install: bool = True, limit_s: float = INSTALL_LIMIT_S) -> Path:
    """The folder with a peer installed in it, each of the two steps within `limit_s`. Raises Unavailable."""
    folder = CACHE / peer.home
    marker = folder / "installed.txt"
    if marker.exists() and marker.read_text() == peer.what():
        return folder
    if not may_install:
        raise Unavailable("not installed yet; a run without --quick installs it")
    if peer.npm and shutil.which("npm") is None:
        raise Unavailable("npm is not installed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        if peer.npm:
            (folder / "package.json").write_text(json.dumps({"overrides": dict(peer.overrides)}))
            options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
            finish(["npm", "install", "--prefix", str(folder), *options, peer.requirement], limit_s)
        else:
            finish([sys.executable, "-m", "venv", str(folder)], limit_s)
            options = ["--disable-pip-version-check", "--quiet", "--no-input"]
            finish([str(folder / "bin" / "pip"), "install", *options, peer.requirement], limit_s)
    except CommandFailed as failure:
        raise Unavailable(f"does not install: {failure}") from None
    marker.write_text(peer.what())
    return folder


# TensorZero's wheel holds its gateway; this starts it on a port of its choosing and says which.
_TENSORZERO = """
import pathlib, sys, threading
from tensorzero import _start_http_gateway
gateway = _start_http_gateway(config_file=sys.argv[1], clickhouse_url=None, postgres_url=None,
                              valkey_url=None, async_setup=False)
written = pathlib.Path(sys.argv[2] + ".new")
written.write_text(gateway.base_url)
written.rename(sys.argv[2])
threading.Event().wait()
"""
_TENSORZERO_CONFIG = """
[gateway]
observability.enabled = false
[models.small]
routing = ["up"]
[models.small.providers.up]
type = "openai"
model_name = "upstream-model"
api_base = "{upstream}/v1/"
api_key_location = "env::OPENAI_API_KEY"
"""
_LITELLM_CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/upstream-model, api_base: "{upstream}/v1", api_key: "{key}"}}
litellm_settings: {settings}
"""


def tensorzero(at: Setting) -> Launch:
    config, url_file = at.folder / "tensorzero.toml", at.folder / "url.txt"
    config.write_text(_TENSORZERO_CONFIG.format(upstream=at.upstream))
    python = str(at.installed / "bin" / "python")
    return Launch(
        command=[python, "-c", _TENSORZERO, str(config), str(url_file)],
        url="/chat/completions",
        url_file=url_file,
        model="tensorzero::model_name::small",
        environment={"OPENAI_API_KEY": at.key},
    )


def vllm_router(at: Setting) -> Launch:
    port = free_port()
    command = [str(at.installed / "bin" / "vllm-router"), "--host", "127.0.0.1", "--port", str(port)]
    command += [
        "--worker-urls",
        at.upstream,
        "--policy",
        "round_robin",
        "--prometheus-port",
        str(free_port()),
    ]
    url = f"http://127.0.0.1:{port}"
    return Launch(command=command, url=f"{url}/v1/chat/completions", ready_url=f"{url}/health")


def portkey(at: Setting) -> Launch:
    port = free_port()
    script = at.installed / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    url = f"http://127.0.0.1:{port}"
    return Launch(
        command=["node", str(script), f"--port={port}", "--headless"],
        url=f"{url}/v1/chat/completions",
        ready_url=url,
        headers={"x-portkey-provider": "openai", "x-portkey-custom-host": f"{at.upstream}/v1"},
    )


def litellm(at: Setting) -> Launch:
    return _litellm(at, settings="{}")


def litellm_with_cache(at: Setting) -> Launch:
    return _litellm(at, settings="{cache: true, cache_params: {type: local}}")


def _litellm(at: Setting, settings: str) -> Launch:
    port = free_port()
    config = at.folder / "litellm.yaml"
    config.write_text(_LITELLM_CONFIG.format(upstream=at.upstream, key=at.key, settings=settings))
    command = [str(at.installed / "bin" / "litellm"), "--config", str(config)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    url = f"http://127.0.0.1:{port}"
    return Launch(
        command=command,
        url=f"{url}/v1/chat/completions",
        ready_url=f"{url}/health/liveliness",
        # Without a key it refuses to start; without the second it looks for prices on the network.
        environment={"LITELLM_MASTER_KEY": at.key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )


_LITELLM = "litellm[proxy]==1.108.7"  # 1.110.2 with this extra does not resolve
_NO_PACKAGE = "no package of it in PyPI (vllm-router there is the Rust router): an image or a checkout only"
PEERS = (
    Peer(name="vllm-router", home="vllm-router", requirement="vllm-router==0.1.17", launch=vllm_router),
    Peer(name="tensorzero", home="tensorzero", requirement="tensorzero==2026.6.0", launch=tensorzero),
    Peer(
        name="portkey",
        home="portkey",
        requirement="@portkey-ai/gateway@1.15.2",
        npm=True,
        # From 1.14 on every stream is answered 500: the headers it copies can no longer be added to.
        overrides={"@hono/node-server": "1.13.8"},
        launch=portkey,
    ),
    Peer(name="litellm", home="litellm", requirement=_LITELLM, slow=True, launch=litellm),
    Peer(
        name="litellm-hit",
        home="litellm",
        requirement=_LITELLM,
        slow=True,
        hits=True,
        launch=litellm_with_cache,
    ),
    Peer(name="production-stack", why_not=_NO_PACKAGE),
)
