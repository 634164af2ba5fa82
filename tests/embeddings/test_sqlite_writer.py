from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from embeddings import sqlite_entries, sqlite_writer
from embeddings.capacity import Capacity
from embeddings.protocols import StoreError
from embeddings.sqlite_schema import connect
from embeddings.sqlite_store import SqliteStore
from tests.entries import exact_key, make_entry

NOW = 1001.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "cache.db", 100_000)
    yield store
    await store.aclose()


class Blocker:
    """Holds the file's write lock, as a backup program might."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        self._connection.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


async def test_waiting_writes_share_a_transaction(store: SqliteStore, tmp_path: Path) -> None:
    commits: list[str] = []
    store._writer._connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    await asyncio.gather(*(store.put(make_entry(f"q{n}")) for n in range(300)))
    assert 1 <= len(commits) <= 30
    assert (await store.size()).entries == 300


async def test_a_failed_transaction_fails_each_of_its_writes(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_id, _ = await store.put(make_entry("kept"))
    connection = store._writer._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 5}")  # as a full disk
    puts = [store.put(make_entry(f"q{n}", content="x" * 50_000)) for n in range(20)]
    results = await asyncio.gather(*puts, store.remove([kept_id]), return_exceptions=True)
    failures = [result for result in results if isinstance(result, StoreError)]
    assert len(failures) >= 20
    assert len({id(failure) for failure in failures}) == len(failures)
    assert all("full" in str(failure) for failure in failures)
    assert (await store.size()).entries == len(results) - len(failures) + (results[-1] in failures)

    connection.execute("PRAGMA max_page_count = 1000000")
    await store.put(make_entry("after"))
    assert await store.find(exact_key("after"), NOW) is not None
    assert (await store.find(exact_key("kept"), NOW) is not None) == (results[-1] in failures)


async def test_an_unforeseen_error_reaches_the_waiter(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_entries, "_PUT", "SELECT 1, 2 WHERE 0")
        with pytest.raises(StoreError, match="cannot"):
            await store.put(make_entry())
    await store.put(make_entry())
    assert (await store.size()).entries == 1


async def test_a_file_locked_by_another_program(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store._writer._connection.execute("PRAGMA busy_timeout = 20")
    await store.put(make_entry("before"))
    blocker = Blocker(tmp_path / "cache.db")
    with pytest.raises(StoreError, match="locked"):
        await store.put(make_entry("during"))
    assert await store.find(exact_key("before"), NOW) is not None
    blocker.release()
    await store.put(make_entry("after"))


async def test_backlog_is_bounded(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "MAX_WAITING", 5)
    blocker = Blocker(tmp_path / "cache.db")
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(store.put(make_entry(f"q{n}"))) for n in range(20)]
    await asyncio.sleep(0)
    refused = [task for task in tasks if task.done()]
    assert 10 <= len(refused) <= 15  # the thread may have taken up to five before it was held up
    blocker.release()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(result, StoreError) and "keep up" in str(result) for result in results) == len(
        refused
    )
    assert (await store.size()).entries == 20 - len(refused)


async def test_a_cancelled_write_leaves_the_others_alone(store: SqliteStore, tmp_path: Path) -> None:
    blocker = Blocker(tmp_path / "cache.db")
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(store.put(make_entry(f"q{n}"))) for n in range(10)]
    await asyncio.sleep(0)
    tasks[5].cancel()
    await asyncio.sleep(0)
    blocker.release()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[5], asyncio.CancelledError)
    for n in (0, 4, 6, 9):
        assert await store.find(exact_key(f"q{n}"), NOW) is not None


async def test_closing_writes_what_waits(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "cache.db", 1000)
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(store.put(make_entry(f"q{n}"))) for n in range(700)]
    await asyncio.sleep(0)
    await store.aclose()
    await asyncio.gather(*tasks)
    store = SqliteStore.open(tmp_path / "cache.db", 1000)
    assert (await store.size()).entries == 700
    await store.aclose()


def hits(path: Path) -> dict[int, tuple[int, float]]:
    connection = connect(path)
    rows = connection.execute("SELECT id, hits, last_used_at FROM entries").fetchall()
    connection.close()
    return {entry_id: (count, last_used_at) for entry_id, count, last_used_at in rows}


async def test_notes_of_use_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 10)
    a, _ = await store.put(make_entry("a", created_at=1000.0))
    b, _ = await store.put(make_entry("b", created_at=1001.0))
    for now in (1005.0, 1007.0, 1006.0):
        store.touch(a, now)
    await store.remove([])  # any write takes the notes along
    assert hits(path) == {a: (3, 1007.0), b: (0, 1001.0)}
    store.touch(a, 900.0)
    await store.aclose()
    assert hits(path) == {a: (4, 1007.0), b: (0, 1001.0)}


async def test_many_notes_of_use_are_written_without_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "MAX_TOUCHED", 3)
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 10)
    ids = [(await store.put(make_entry(name)))[0] for name in "abcd"]
    written = asyncio.Event()
    loop = asyncio.get_running_loop()

    def trace(sql: str) -> None:
        if sql == "COMMIT":
            loop.call_soon_threadsafe(written.set)

    store._writer._connection.set_trace_callback(trace)
    for entry_id in ids:
        store.touch(entry_id, 1002.0)
    async with asyncio.timeout(30):
        await written.wait()
    await store.remove([])
    assert [count for count, _ in hits(path).values()] == [1, 1, 1, 1]
    await store.aclose()


async def test_lost_notes_of_use_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore.open(tmp_path / "cache.db", 10)
    new_id, _ = await store.put(make_entry())
    store.touch(new_id, NOW)
    monkeypatch.setattr(sqlite_entries, "_TOUCH", "UPDATE nowhere SET x = ?, y = ? WHERE id = ?")
    await store.aclose()
    assert "notes of use were lost" in caplog.text


def test_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        sqlite_writer.SqliteWriter(tmp_path / "none.db", Capacity(10))
