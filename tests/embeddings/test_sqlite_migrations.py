"""Cache files of older versions are brought to the newest schema, or left as they were."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import orjson
import pytest

from embeddings import sqlite_migrations
from embeddings.capacity import Capacity
from embeddings.entry_record import to_record
from embeddings.protocols import EVERY_ENTRY, EntryFilter, StoreError
from embeddings.sqlite_migrations import SCHEMA, SCHEMA_VERSION
from embeddings.sqlite_schema import connect
from embeddings.sqlite_store import SqliteStore
from tests.entries import SPACE, exact_key, make_entry

NOW = 1001.0
SCHEMA_1 = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    exact_key BLOB NOT NULL UNIQUE,
    partition BLOB NOT NULL,
    tenant TEXT NOT NULL,
    space TEXT,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    last_used_at REAL NOT NULL,
    hits INTEGER NOT NULL DEFAULT 0,
    model TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    vector BLOB,
    text TEXT,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX entries_by_expiry ON entries (expires_at);
CREATE INDEX entries_by_use ON entries (last_used_at);
PRAGMA application_id = {0x4C6B4774};
PRAGMA user_version = 1;
"""
COLUMNS_1 = (
    "exact_key, partition, tenant, space, created_at, expires_at, model, prompt_tokens, completion_tokens,"
    " cost_usd, vector, text, body"
)
SECRET = os.urandom(32)


def make_version_1(path: Path, names: list[str]) -> None:
    """As version 1 wrote it: entry n was served n times; the last one written has left."""
    path.touch()
    connection = connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(SCHEMA_1)
    connection.execute("INSERT INTO meta VALUES ('secret', ?)", (SECRET,))
    marks = ", ".join("?" * 15)
    for n, name in enumerate([*names, "left"]):
        record = to_record(make_entry(name))
        row = [getattr(record, "answered_by" if c == "model" else c) for c in COLUMNS_1.split(", ")]
        connection.execute(
            f"INSERT INTO entries ({COLUMNS_1}, last_used_at, hits) VALUES ({marks})", (*row, 1000.5, n)
        )
    connection.execute("DELETE FROM entries WHERE exact_key = ?", (exact_key("left"),))
    connection.close()


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = connect(path)
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


def logical(path: Path) -> list[str]:
    """All that the database holds, in SQL."""
    connection = connect(path)
    dump = list(connection.iterdump())
    connection.close()
    return [*dump, *(str(rows(path, f"PRAGMA {name}")) for name in ("user_version", "application_id"))]


async def test_entries_of_version_1_are_served(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    names = [f"q{n}" for n in range(20)]
    make_version_1(path, names)
    store = SqliteStore.open(path, 1000)
    assert await store.secret() == SECRET
    for n, name in enumerate(names):
        found = await store.find(exact_key(name), NOW)
        expected = make_entry(name)
        assert found is not None
        assert (found.id, found.text, found.space, found.tenant) == (n + 1, name, SPACE, "tenant")
        assert found.answer == expected.answer
        assert (found.api, found.model, found.tags, found.request) == ("chat", "", (), b"")
        seen = await store.inspect(n + 1, NOW)
        assert seen is not None
        assert (seen[1].hits, seen[1].last_used_at) == (n, 1000.5)
    assert (await store.vector_ids(SPACE, NOW)).tolist() == list(range(1, 21))
    for which in (
        EntryFilter(tenant="tenant"),
        EntryFilter(model="upstream-model"),
        EntryFilter(api="chat"),
        EntryFilter(text="Q"),
        EVERY_ENTRY,
    ):
        assert len(await store.matching(which, NOW)) == 20
    new_id, gone = await store.put(make_entry("q3"))
    assert new_id == 22  # 21 has left: an id is never used again
    assert gone.tolist() == [4]
    await store.aclose()


async def test_entries_of_version_1_are_weighed_as_if_stored_now(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    make_version_1(path, ["a", "b", "c"])
    new = SqliteStore.open(tmp_path / "new.db", 1000)
    for n, name in enumerate("abc"):
        entry_id, _ = await new.put(entry := make_entry(name))
        for _ in range(n):
            new.touch(entry_id, 1000.5)
    await new.aclose()
    SqliteStore.open(path, 1000)._close()
    old, new_rows = (
        rows(file, "SELECT stored_bytes, density, priority, hits FROM entries")
        for file in (path, tmp_path / "new.db")
    )
    size = to_record(entry).stored_bytes
    assert [row[0] + len(entry.request) for row in old] == [size] * 3  # version 1 kept no request
    assert [row[3] for row in old] == [0, 1, 2] == [row[3] for row in new_rows]
    for (_, old_density, old_priority, hits), (_, density, _, _) in zip(old, new_rows, strict=True):
        assert old_density == pytest.approx(density, rel=0.01)
        assert old_priority == old_density * (1 + hits)


@pytest.mark.parametrize(
    ("body", "api"),
    [
        ({"object": "chat.completion"}, "chat"),
        ({"object": "text_completion"}, "completions"),
        ({"object": "response"}, "responses"),
        ({"type": "message"}, "messages"),
        ({"object": "list"}, "embeddings"),
        ({}, "chat"),
        ({"object": ["list"]}, "chat"),
        ([], "chat"),
    ],
)
async def test_the_api_is_told_from_the_answers_form(tmp_path: Path, body: object, api: str) -> None:
    path = tmp_path / "cache.db"
    make_version_1(path, ["q"])
    connection = connect(path)
    connection.execute("UPDATE entries SET body = ?", (orjson.dumps(body),))
    connection.close()
    store = SqliteStore.open(path, 1000)
    [(entry, _)] = await store.listed(EVERY_ENTRY, NOW)
    assert entry.api == api
    await store.aclose()


async def test_a_damaged_entry_does_not_stop_the_others(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    make_version_1(path, ["good", "bad"])
    connection = connect(path)
    connection.execute("UPDATE entries SET body = x'7b' WHERE id = 2")
    connection.close()
    store = SqliteStore.open(path, 1000)
    assert await store.find(exact_key("good"), NOW) is not None
    with pytest.raises(StoreError, match="entry 2 is damaged"):
        await store.get(2, NOW)
    await store.aclose()


def test_a_migrated_file_has_the_schema_of_a_new_one(tmp_path: Path) -> None:
    make_version_1(tmp_path / "old.db", ["q"])
    schemas = []
    for name in ("old.db", "new.db"):
        SqliteStore.open(tmp_path / name, 10)._close()
        schemas.append(
            rows(tmp_path / name, "SELECT name, sql FROM sqlite_master WHERE sql NOTNULL ORDER BY name")
        )
        assert rows(tmp_path / name, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
        assert rows(tmp_path / name, "PRAGMA integrity_check") == [("ok",)]
    assert schemas[0] == schemas[1]


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    make_version_1(path, ["a", "b"])
    SqliteStore.open(path, 10)._close()
    once = logical(path)
    SqliteStore.open(path, 10)._close()
    assert logical(path) == once


@pytest.mark.parametrize("broken", range(1, SCHEMA.count("CREATE") + 1))
def test_a_migration_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    path = tmp_path / "cache.db"
    make_version_1(path, ["a", "b"])
    before = logical(path)
    statements = SCHEMA.split("CREATE")
    statements[broken] = " NONSENSE" + statements[broken]
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_migrations, "SCHEMA", "CREATE".join(statements))
        with pytest.raises(StoreError, match="cannot use the cache file"):
            SqliteStore.open(path, 10)
    assert logical(path) == before
    SqliteStore.open(path, 10)._close()
    assert logical(path) != before


def test_a_full_disk_stops_a_migration(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    make_version_1(path, [f"q{n}" for n in range(200)])
    before = logical(path)
    connection = connect(path)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 3}")
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        sqlite_migrations.migrate(connection, 1, Capacity(10))
    connection.close()
    assert logical(path) == before
