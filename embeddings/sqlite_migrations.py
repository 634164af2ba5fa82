"""The tables of the answer store's file, and how files of older versions are brought to them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping

import orjson

from embeddings.capacity import Capacity
from embeddings.entry_record import ENTRY_OVERHEAD_BYTES, EntryRecord
from embeddings.sqlite_filters import ADD_LABEL, labels
from policies.types import Api

APPLICATION_ID = 0x4C6B4774  # "LkGt" in the file's header: another program's database is not ours to fill
SCHEMA_VERSION = 2

COLUMNS = ", ".join(EntryRecord._fields)

# AUTOINCREMENT, since plain row ids are used again after a delete. `vector`, `text`, `request` and `body`
# come last: SQLite reads a long row's overflow pages only as far as the columns asked for. `clock` and
# `priority` are `policies.eviction`'s. The indexes hold all that is asked of them: a sum, a list of ids or a
# choice of who leaves reads no row.
SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    exact_key BLOB NOT NULL UNIQUE,
    partition BLOB NOT NULL,
    tenant TEXT NOT NULL,
    api TEXT NOT NULL,
    model TEXT NOT NULL,
    answered_by TEXT NOT NULL,
    tags TEXT NOT NULL,
    space TEXT,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    stored_bytes INTEGER NOT NULL,
    last_used_at REAL NOT NULL,
    hits INTEGER NOT NULL DEFAULT 0,
    judged_right INTEGER NOT NULL DEFAULT 0,
    judged_wrong INTEGER NOT NULL DEFAULT 0,
    density REAL NOT NULL,
    priority REAL NOT NULL,
    vector BLOB,
    text TEXT,
    request BLOB NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX entries_by_expiry ON entries (expires_at);
CREATE INDEX entries_by_priority ON entries (priority, id, stored_bytes);
CREATE INDEX entries_by_space ON entries (space, expires_at, created_at) WHERE space IS NOT NULL;
CREATE TABLE labels (
    label TEXT NOT NULL,
    entry_id INTEGER NOT NULL,
    PRIMARY KEY (label, entry_id)
) STRICT, WITHOUT ROWID;
"""

# Version 1 knew neither the request nor what was asked for: its answers serve whoever has their key.
_FROM_VERSION_1 = """
INSERT INTO entries
SELECT id, exact_key, partition, tenant, api_of(body), '', model, '[]',
    iif(vector IS NULL, NULL, space), created_at, expires_at,
    prompt_tokens, completion_tokens, cost_usd, bytes, last_used_at, hits, 0, 0, density,
    priority(density, hits), vector, text, x'', body
FROM (
    SELECT *, density(cost_usd, prompt_tokens, completion_tokens, bytes) AS density
    FROM (
        SELECT *, :overhead + length(body) + coalesce(length(CAST(text AS BLOB)), 0)
            + coalesce(length(vector), 0) AS bytes
        FROM entries_1
    )
)
"""
_API_BY_FORM: Mapping[object, Api] = {
    "text_completion": "completions",
    "response": "responses",
    "message": "messages",
    "list": "embeddings",
}


def migrate(connection: sqlite3.Connection, version: int, capacity: Capacity) -> None:
    """Bring a file of this version (0: a new one) to `SCHEMA_VERSION`, within the caller's transaction: it
    happens as a whole or not at all. Raises sqlite3.Error."""
    if version == 0:
        _create(connection)
        connection.execute("INSERT INTO meta VALUES ('secret', ?)", (os.urandom(32),))
    elif version == 1:
        _from_version_1(connection, capacity)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _create(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA.split(";"):
        connection.execute(statement)


def _from_version_1(connection: sqlite3.Connection, capacity: Capacity) -> None:
    for index in ("entries_by_expiry", "entries_by_use"):
        connection.execute(f"DROP INDEX {index}")
    connection.execute("ALTER TABLE entries RENAME TO entries_1")
    connection.execute("ALTER TABLE meta RENAME TO meta_1")
    _create(connection)
    connection.execute("INSERT INTO meta SELECT name, value FROM meta_1")
    connection.create_function("api_of", 1, _api_of)
    connection.create_function("density", 4, capacity.density)
    connection.create_function(
        "priority", 2, lambda density, hits: capacity.eviction.priority(0.0, density, hits)
    )
    connection.execute(_FROM_VERSION_1, {"overhead": ENTRY_OVERHEAD_BYTES + len("[]")})
    rows = connection.execute("SELECT id, tenant, api, model, answered_by FROM entries")
    connection.executemany(
        ADD_LABEL,
        (
            (label, entry_id)
            for entry_id, tenant, api, model, answered_by in rows
            for label in labels(tenant, api, model, answered_by, ())
        ),
    )
    # ids are never used again, not even those of entries that left before
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'entries'")
    connection.execute("UPDATE sqlite_sequence SET name = 'entries' WHERE name = 'entries_1'")
    connection.execute("DROP TABLE entries_1")
    connection.execute("DROP TABLE meta_1")


def _api_of(body: bytes) -> Api:
    """The API whose form the answer has. Of one that is damaged any: whoever reads it is told."""
    try:
        answer = orjson.loads(body)
        return _API_BY_FORM.get(answer.get("object") or answer.get("type"), "chat")
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        return "chat"
