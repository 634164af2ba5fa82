"""Reading the file of a store that may be open elsewhere."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from embeddings.protocols import EVERY_ENTRY, EntryFilter, StoreError
from embeddings.sqlite_migrations import APPLICATION_ID, SCHEMA_VERSION
from embeddings.sqlite_reader import ROWS_AT_ONCE, SqliteReader
from embeddings.sqlite_store import SqliteStore
from tests.entries import SPACE, exact_key, make_entry

NOW = 1001.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(path, 10_000)
    yield store
    await store.aclose()


def names(reader: SqliteReader, which: EntryFilter = EVERY_ENTRY, now: float = NOW) -> list[str | None]:
    return [entry.text for entry, _ in reader.entries(which, now)]


async def test_an_open_store_is_read_as_it_is_at_one_moment(store: SqliteStore, path: Path) -> None:
    await store.put(make_entry("first"))
    with closing(SqliteReader.open(path)) as reader:
        await store.put(make_entry("second"))
        await store.remove([1])
        assert names(reader) == ["first"]
        assert reader.count(EVERY_ENTRY, NOW) == (1, 0)
        assert reader.find(exact_key("second"), NOW) is None
        assert reader.secret() == await store.secret()
    with closing(SqliteReader.open(path)) as reader:
        assert names(reader) == ["second"]


async def test_entries_come_whole(store: SqliteStore, path: Path) -> None:
    await store.put(make_entry("a question", tags=("t",), model="small"))
    kept = await store.get(1, NOW)
    with closing(SqliteReader.open(path)) as reader:
        [(entry, withdrawn)] = reader.entries(EVERY_ENTRY, NOW)
        found = reader.find(exact_key("a question"), NOW)
        assert reader.newest_space() == SPACE
    assert not withdrawn
    for read in (entry, found):
        assert kept is not None
        assert read is not None
        assert read.vector is not None
        assert np.array_equal(read.vector, kept.vector)  # type: ignore[arg-type]
        for name in ("id", "exact_key", "partition", "tenant", "api", "model", "tags", "text", "space"):
            assert getattr(read, name) == getattr(kept, name)
        assert (read.answer, read.request, read.expires_at) == (kept.answer, kept.request, kept.expires_at)


async def test_more_entries_than_are_read_at_once_come_in_order(store: SqliteStore, path: Path) -> None:
    many = [f"q{n}" for n in range(2 * ROWS_AT_ONCE + 1)]
    for n, name in enumerate(many):  # those that end first were stored last
        await store.put(make_entry(name, ttl_s=10_000 - n))
    with closing(SqliteReader.open(path)) as reader:
        assert names(reader) == many


async def test_what_has_expired_or_does_not_fit_is_left_out(store: SqliteStore, path: Path) -> None:
    await store.put(make_entry("old", ttl_s=0.5))
    await store.put(make_entry("bob's", tenant="bob", tags=("t",)))
    await store.put(make_entry("alice's", tenant="alice", tags=("t", "u"), model="small"))
    with closing(SqliteReader.open(path)) as reader:
        assert names(reader) == ["bob's", "alice's"]
        for which, expected in (
            (EntryFilter(tenant="bob"), ["bob's"]),
            (EntryFilter(tag="t"), ["bob's", "alice's"]),
            (EntryFilter(tag="u", tenant="bob"), []),
            (EntryFilter(model="small"), ["alice's"]),
            (EntryFilter(text="ALICE"), ["alice's"]),
        ):
            assert names(reader, which) == expected
            assert reader.count(which, NOW) == (len(expected), 0)


async def test_an_entry_that_was_wrong_for_a_similar_question_is_marked(
    store: SqliteStore, path: Path
) -> None:
    for name in ("withdrawn", "judged right", "never had a vector"):
        await store.put(make_entry(name, semantic=name != "never had a vector"))
    await store.judged(1, right=False)
    await store.withdraw(1)
    await store.judged(2, right=True)
    with closing(SqliteReader.open(path)) as reader:
        assert [withdrawn for _, withdrawn in reader.entries(EVERY_ENTRY, NOW)] == [True, False, False]


async def test_entries_whose_request_is_not_known_are_counted_apart(store: SqliteStore, path: Path) -> None:
    await store.put(make_entry("known"))
    await store.put(make_entry("of an older version"))
    await store.aclose()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE entries SET request = x'' WHERE id = 2")
    with closing(SqliteReader.open(path)) as reader:
        assert names(reader) == ["known"]
        assert reader.count(EVERY_ENTRY, NOW) == (1, 1)


async def test_what_lies_in_the_write_ahead_log_alone_is_read(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    await store.put(make_entry("not yet in the file itself"))
    left = tmp_path / "left"
    left.mkdir()
    for suffix in ("", "-wal"):  # as a killed gateway leaves them
        shutil.copy(f"{path}{suffix}", left / f"cache.db{suffix}")
    with closing(SqliteReader.open(left / "cache.db")) as reader:
        assert names(reader) == ["not yet in the file itself"]


async def test_an_empty_cache(store: SqliteStore, path: Path) -> None:
    with closing(SqliteReader.open(path)) as reader:
        assert names(reader) == []
        assert reader.count(EVERY_ENTRY, NOW) == (0, 0)
        assert reader.newest_space() is None


def test_a_file_that_is_not_there_is_not_made(path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no cache file .*set cache\.path"):
        SqliteReader.open(path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("pragmas", "message"),
    [
        ({"application_id": 7, "user_version": SCHEMA_VERSION}, "is not a cache file"),
        ({"application_id": APPLICATION_ID, "user_version": SCHEMA_VERSION + 1}, "upgrade lockgate"),
        (
            {"application_id": APPLICATION_ID, "user_version": SCHEMA_VERSION - 1},
            "start `lockgate serve` once",
        ),
    ],
)
def test_other_files_are_refused(path: Path, pragmas: dict[str, int], message: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for name, value in pragmas.items():
            connection.execute(f"PRAGMA {name} = {value}")
    with pytest.raises(StoreError, match=message):
        SqliteReader.open(path)


def test_what_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="damaged or not a database"):
        SqliteReader.open(path)


async def test_reading_does_not_write(store: SqliteStore, path: Path) -> None:
    await store.put(make_entry())
    with (
        closing(SqliteReader.open(path)) as reader,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        reader._connection.execute("DELETE FROM entries")
