"""`lockgate cache`: write a cache to a file, and take one in."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

if TYPE_CHECKING:
    from gateway.cache_import import Imported
    from gateway.cache_moving import Source
    from gateway.settings import Settings

STANDARD = Path("-")

_config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The configuration file; without it ./config.toml if there is one, else the defaults.",
)


@click.group()
def cache() -> None:
    """Write the cache to a file, and take one in. docs/moving-a-cache.md shows how to use both."""


@cache.command(name="export")
@_config_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    default=STANDARD,
    show_default=True,
    metavar="FILE|-",
    help="Readable by its owner only. - is stdout.",
)
@click.option("--tenant", help="Only this tenant's entries.")
@click.option("--model", help="Only what this model or route was asked for, or answered.")
@click.option("--tag", help="Only entries with this tag.")
@click.option(
    "--with-secret",
    is_flag=True,
    help="Write the secret that tenants are hashed under, so that a new cache serves the same clients.",
)
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object.")
def export_(
    config_path: Path | None,
    output: Path,
    tenant: str | None,
    model: str | None,
    tag: str | None,
    with_secret: bool,
    as_json: bool,
) -> None:
    """Write the unexpired entries as JSON lines, as they are at this moment. The gateway may be running."""
    from embeddings.protocols import EntryFilter, StoreError
    from embeddings.sqlite_reader import SqliteReader
    from gateway.cache_export import export_lines
    from gateway.cli import UserError

    settings = _settings(config_path)
    which = EntryFilter(tenant=tenant, model=model, tag=tag)
    now = time.time()
    try:
        with ExitStack() as opened:
            store = SqliteReader.open(settings.cache.path)
            opened.callback(store.close)
            entries, unknown = store.count(which, now)
            file = opened.enter_context(_written(output))
            bar = opened.enter_context(_progress(entries + 1, "exporting"))
            for line in export_lines(store, which, now, with_secret=with_secret):
                file.write(line)
                bar.update(1)
    except StoreError as error:
        raise UserError(str(error)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"{output}: {error.strerror}") from None
    counts = {"entries": entries, "unknown_requests": unknown}
    if as_json:
        click.echo(json.dumps(counts), err=output == STANDARD)
        return
    click.echo(f"exported {entries:,} entries", err=True)
    if unknown:
        click.echo(
            f"{unknown:,} left out: an older lockgate stored them, and did not keep what was asked", err=True
        )


@cache.command(name="import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE|-")
@_config_option
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["lockgate", "gptcache"]),
    default="lockgate",
    show_default=True,
    help="What `lockgate cache export` wrote, or the SQLite file of GPTCache.",
)
@click.option("--model", help="With gptcache: the model that its clients ask for.")
@click.option("--tenant", help="With gptcache: the tenant that its clients are.")
@click.option("--system", metavar="TEXT", help="With gptcache: the system prompt that its clients send.")
@click.option(
    "--ttl-s",
    type=click.FloatRange(0, min_open=True),
    help="What has expired is valid for so many seconds from now; without it, it is left out.",
)
@click.option(
    "--embed/--no-embed",
    default=True,
    show_default=True,
    help="Embed questions that bring no vector of the configured model, or serve them by exact match only.",
)
@click.option("--dry-run", is_flag=True, help="Count only. The gateway may be running.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def import_(
    file: Path,
    config_path: Path | None,
    file_format: str,
    model: str | None,
    tenant: str | None,
    system: str | None,
    ttl_s: float | None,
    embed: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Take the entries of a file into the cache. The gateway must be stopped.

    Of two answers to the same request the newer one stays.
    """
    import asyncio

    from embeddings.protocols import EmbedderError, StoreError
    from gateway.cache_moving import import_entries
    from gateway.cache_transfer import TransferError
    from gateway.cli import UserError
    from gateway.config_problems import ConfigError

    settings = _settings(config_path)
    if not settings.cache.enabled:
        raise UserError("cache.enabled = false: expected true, for nothing that is taken in would be served")
    try:
        with ExitStack() as opened:
            if file_format == "gptcache":
                source = opened.enter_context(_gptcache(file, settings, model, tenant, system))
            elif model or tenant or system:
                raise UserError("--model, --tenant and --system: expected with --format gptcache only")
            else:
                source = opened.enter_context(_lockgate(file))
            bar = opened.enter_context(_progress(source.total, "importing"))
            imported = asyncio.run(
                import_entries(
                    settings, source, ttl_s=ttl_s, embed=embed, dry_run=dry_run, advance=bar.update
                )
            )
    except (StoreError, EmbedderError, TransferError, ConfigError) as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"{error.filename or file}: {error.strerror}") from None
    if as_json:
        import msgspec

        click.echo(json.dumps({"dry_run": dry_run, **msgspec.to_builtins(imported)}))
    else:
        click.echo(_summary(imported, settings, dry_run))


def _settings(config_path: Path | None) -> Settings:
    from gateway.cli import UserError, chosen_config
    from gateway.config import load
    from gateway.config_problems import ConfigError

    try:
        settings = load(chosen_config(config_path))
    except ConfigError as error:
        raise UserError(str(error)) from None
    if settings.cache.store != "sqlite":
        raise UserError(f'cache.store = "{settings.cache.store}": expected "sqlite", a cache in a file')
    return settings


def _progress(length: int, label: str) -> Any:
    return click.progressbar(
        length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty(), update_min_steps=50
    )


@contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    """A new file that only its owner can read, which replaces the one at `path` once it is whole."""
    from gateway.cli import UserError

    if path == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: expected the name of a file, or -")
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def _lockgate(path: Path) -> Iterator[Source]:
    from gateway.cache_transfer import LockgateFile

    if path == STANDARD:
        yield LockgateFile(sys.stdin.buffer, "stdin")
        return
    with path.open("rb") as stream:
        yield LockgateFile(stream, str(path))


@contextmanager
def _gptcache(
    path: Path, settings: Settings, model: str | None, tenant: str | None, system: str | None
) -> Iterator[Source]:
    from gateway.cli import UserError
    from gateway.gptcache_file import GptcacheFile

    if path == STANDARD:
        raise UserError("-: expected the SQLite file of GPTCache; it cannot come through a pipe")
    if not model:
        raise UserError("--model: expected the model that the clients of GPTCache ask for")
    source = GptcacheFile(
        path,
        model=model,
        tenant=tenant or _only_tenant(settings),
        system=system,
        ttl_s=settings.cache.ttl_s,
    )
    try:
        yield source
    finally:
        source.close()


def _only_tenant(settings: Settings) -> str:
    from gateway.auth import ANONYMOUS_TENANT, OPEN_TENANT
    from gateway.cli import UserError

    auth = settings.auth
    if auth.mode == "open":
        return OPEN_TENANT
    if settings.cache.share == "everyone":
        return ANONYMOUS_TENANT
    if auth.mode == "keys":
        known = ", ".join(sorted({key.tenant or name for name, key in auth.keys.items()}))
        raise UserError(f"--tenant: expected whose clients are to find the answers: one of {known}")
    raise UserError(
        "--tenant: expected whose clients are to find the answers: as `lockgate stats --by tenant` shows it, "
        f"or {ANONYMOUS_TENANT} for clients without a key"
    )


def _summary(imported: Imported, settings: Settings, dry_run: bool) -> str:
    lines = [f"{'would import' if dry_run else 'imported'} {imported.imported:,} entries"]
    for count, what in (
        (imported.replaced, "in place of an older answer"),
        (imported.embedded, "embedded anew"),
        (imported.exact_only, "served by exact match only"),
        (imported.kept, "kept as they were: there is an answer as new"),
        (imported.evicted, "left the cache to make room (cache.max_entries, cache.max_bytes)"),
    ):
        if count:
            lines.append(f"  {count:,} {what}")
    lines += [f"  {count:,} left out: {reason}" for reason, count in sorted(imported.left.items())]
    if imported.unreachable:
        lines.append(
            f"warning: no client finds {imported.unreachable:,} of them: none is of their tenant here "
            f'(auth.mode = "{settings.auth.mode}"); docs/moving-a-cache.md says what to do'
        )
    return "\n".join(lines)
