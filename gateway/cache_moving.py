"""An import into the configured store: which parts it needs, opened and closed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

from embeddings.capacity import Capacity
from embeddings.engine_thread import EngineThread
from embeddings.protocols import Entry
from embeddings.sqlite_reader import SqliteReader
from embeddings.sqlite_schema import FileLock, prepare
from gateway import parts
from gateway.cache_import import Find, Imported, Importer, Put, reachable_tenants
from gateway.cache_transfer import Header, Incoming, Left, key_check
from gateway.chosen_policy import chosen_policy
from gateway.rekeying import Rekeying
from gateway.settings import Cache as CacheSettings
from gateway.settings import Settings


class Source(Protocol):
    """Where entries come from. `header` is None when it knows no tenants of its own."""

    @property
    def header(self) -> Header | None: ...

    @property
    def total(self) -> int: ...

    def entries(self) -> Iterator[Incoming | Left]:
        """Raises TransferError."""
        ...


async def import_entries(
    settings: Settings,
    source: Source,
    *,
    ttl_s: float | None,
    embed: bool,
    dry_run: bool,
    advance: Callable[[int], object],
) -> Imported:
    """Raises StoreError, EmbedderError, ConfigError or TransferError."""
    path = _path_of(settings.cache)
    header = source.header
    given = None if header is None or header.secret is None else bytes.fromhex(header.secret)
    rules = parts.sharing_rules(settings.cache)
    async with AsyncExitStack() as opened:
        put: Put | None = None
        if not dry_run:
            if given is not None and not path.exists():
                _make(path, settings.cache, given)
            store = parts.sqlite(settings.cache)
            opened.push_async_callback(store.aclose)
            find: Find = store.find
            put, secret = store.put, await store.secret()
        elif path.exists():
            reader = SqliteReader.open(path)
            opened.callback(reader.close)
            find, secret = _found_by(reader), reader.secret()
        else:
            find, secret = _nothing, given or os.urandom(32)
        engine = None
        if parts.semantic(settings):
            engine = EngineThread(parts.embedder(settings))
            opened.callback(engine.close)
        same_secret = header is None or header.key_check == key_check(secret)
        importer = Importer(
            rekeying=Rekeying(
                dialects=parts.dialects(),
                rules=rules,
                secret=secret,
                conversations=_compares_conversations(settings, engine),
            ),
            find=find,
            put=put,
            engine=engine,
            embed=embed,
            is_reachable=reachable_tenants(settings.auth, same_secret=same_secret),
            ttl_s=ttl_s,
        )
        return await importer.run(source.entries(), advance)


def _compares_conversations(settings: Settings, engine: EngineThread | None) -> bool:
    """Whether the gateway will look for conversations by their turns. Raises ConfigError."""
    if engine is None or not parts.uses_shipped_verifier(settings):
        return False
    return chosen_policy(settings, engine.space).compares_conversations


def _path_of(settings: CacheSettings) -> Path:
    return Path(settings.path).expanduser().resolve()


def _make(path: Path, settings: CacheSettings, secret: bytes) -> None:
    """A new file with a secret that is known elsewhere."""
    lock = FileLock(path)
    try:
        prepare(path, Capacity(settings.max_entries, settings.max_bytes), secret=secret)
    finally:
        lock.release()


def _found_by(reader: SqliteReader) -> Find:
    async def find(exact_key: bytes, now: float) -> Entry | None:
        return reader.find(exact_key, now)

    return find


async def _nothing(exact_key: bytes, now: float) -> Entry | None:
    return None
