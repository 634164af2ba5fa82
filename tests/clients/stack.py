"""The real gateway in a process of its own, with a fake upstream for each API behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.clients import fake_anthropic
from tests.clients.background import BackgroundUpstream
from tests.clients.fake_openai import FakeOpenAI
from tests.clients.file_server import FileServer, serving_files
from tests.servers import Server, serving

CANCELLED_WITHIN_S = 1.0
"""What the gateway promises."""
ARRIVES_WITHIN_S = 10.0
"""What a test waits for a request to come to an upstream."""
BEHAVIOURS = (
    "",
    "-thinks",
    "-dies",
    "-hangs",
    *(f"-fails-{status}" for status in (400, 401, 404, 429, 500, 503, 529)),
)
ROUTE = "auto"
"""Small is `gpt`, large is `claude`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """`gpt…` models are behind an OpenAI server with all its APIs, `plain…` behind one with chat completions
    alone, `claude…` behind Anthropic's. What else a client asks for goes to the server of files."""

    server: Server
    openai: BackgroundUpstream
    plain: BackgroundUpstream
    claude: BackgroundUpstream
    files: FileServer


@contextmanager
def running_stack(home: Path, more_config: str = "", api_key: str | None = None) -> Iterator[Stack]:
    """Exact hits only, so that no embedder is started; each upstream is asked twice at most. `api_key` is
    the gateway's own for each upstream; None: the client's goes there."""
    with ExitStack() as opened:
        openai = opened.enter_context(BackgroundUpstream(FakeOpenAI()))
        plain = opened.enter_context(BackgroundUpstream(FakeOpenAI(["chat/completions"])))
        claude = opened.enter_context(BackgroundUpstream(fake_anthropic.answer))
        files = opened.enter_context(serving_files())
        path = home / "config.toml"
        own = "" if api_key is None else f'api_key = "{api_key}"'
        path.write_text(_config(openai, plain, claude, files).replace("# own key", own) + more_config)
        server = opened.enter_context(serving(home, "--config", str(path)))
        yield Stack(server=server, openai=openai, plain=plain, claude=claude, files=files)


def _config(
    openai: BackgroundUpstream, plain: BackgroundUpstream, claude: BackgroundUpstream, files: FileServer
) -> str:
    return "\n".join(
        [
            '[cache.policy]\nkind = "exact"',
            _backend("openai", "openai", openai.base_url),
            _backend("plain", "openai", plain.base_url) + '\napis = ["chat"]',
            _backend("found-out", "openai", plain.base_url),
            _backend("anthropic", "anthropic", claude.base_url),
            _backend("files", "openai", files.base_url),
            '[server.unknown_models]\nbackend = "files"',
            *(_model(f"gpt{behaviour}", "openai") for behaviour in BEHAVIOURS),
            *(_model(f"plain{behaviour}", "plain") for behaviour in BEHAVIOURS),
            *(_model(f"claude{behaviour}", "anthropic") for behaviour in BEHAVIOURS),
            _model("chat-alone", "found-out"),
            f'[routes.{ROUTE}]\nsmall = "gpt"\nlarge = "claude"',
            f'[routes.{ROUTE}.policy]\nkind = "always-small"',
            "",
        ]
    )


def _backend(name: str, kind: str, base_url: str) -> str:
    return (
        f'[backends.{name}]\nkind = "{kind}"\nbase_url = "{base_url}"\n# own key\n'
        "retries = 1\nbreaker_failure_share = 0"
    )


def _model(name: str, backend: str) -> str:
    prices = "input_usd_per_mtok = 1.0\noutput_usd_per_mtok = 2.0"
    return f'[models.{name}]\nbackend = "{backend}"\nname = "{name}"\n{prices}'
