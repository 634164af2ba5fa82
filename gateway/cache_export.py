"""A cache as the lines of a file: the header, then every entry that fits, as they are at one moment."""

from __future__ import annotations

from collections.abc import Iterator

from embeddings.protocols import EntryFilter
from embeddings.sqlite_reader import SqliteReader
from gateway.cache_transfer import Header, key_check, line_of_entry, line_of_header


def export_lines(
    store: SqliteReader, which: EntryFilter, now: float, *, with_secret: bool
) -> Iterator[bytes]:
    """Each with its line break. Raises StoreError."""
    secret = store.secret()
    entries, _ = store.count(which, now)
    yield line_of_header(
        Header(
            lockgate_cache=1,
            exported_at=now,
            entries=entries,
            space=store.newest_space(),
            key_check=key_check(secret),
            secret=secret.hex() if with_secret else None,
        )
    )
    for entry, withdrawn in store.entries(which, now):
        yield line_of_entry(entry, exact_only=withdrawn)
