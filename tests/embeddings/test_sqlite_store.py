"""What only the file store promises: to be there again after a restart and after a kill."""

from __future__ import annotations

import random
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from embeddings import sqlite_store
from embeddings.faiss_index import FaissIndex
from embeddings.protocols import EVERY_ENTRY, EntryFilter, StoreError, StoreSize
from embeddings.sqlite_schema import connect
from embeddings.sqlite_store import SqliteStore
from tests.entries import DIMENSION, PARTITION, SPACE, exact_key, make_entry, unit_vector

NOW = 1001.0


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 1000)
    secret = await store.secret()
    ids = [(await store.put(make_entry(f"q{n}")))[0] for n in range(50)]
    await store.remove(ids[-1:])
    before = [await store.get(i, NOW) for i in ids]
    await store.aclose()

    store = SqliteStore.open(path, 1000)
    assert await store.secret() == secret
    assert (await store.size()).entries == 49
    for entry_id, entry in zip(ids[:-1], before, strict=False):
        again = await store.get(entry_id, NOW)
        assert entry is not None
        assert again is not None
        assert again.answer == entry.answer
        assert again.vector is not None
        assert np.array_equal(again.vector, entry.vector)  # type: ignore[arg-type]
    new_id, _ = await store.put(make_entry("new"))
    assert new_id > ids[-1]
    await store.aclose()


async def test_secrets_differ_between_files(tmp_path: Path) -> None:
    stores = [SqliteStore.open(tmp_path / name, 10) for name in ("a.db", "b.db")]
    assert await stores[0].secret() != await stores[1].secret()
    for store in stores:
        await store.aclose()


async def test_a_smaller_limit_is_kept_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 100)
    ids = [(await store.put(make_entry(f"q{n + 10}", created_at=1000.0 + n)))[0] for n in range(20)]
    store.touch(ids[0], 1100.0)
    await store.aclose()
    store = SqliteStore.open(path, 5)
    _, gone = await store.put(make_entry("new", created_at=1200.0))
    assert set(gone.tolist()) == set(ids[1:-3])
    assert (await store.size()).entries == 5
    assert await store.get(ids[0], 1201.0) is not None
    await store.aclose()


async def test_space_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 20)
    sizes = []
    for round_ in range(3):
        for n in range(100):
            await store.put(make_entry(f"{round_} {n}", created_at=1000.0 + n, content="x" * 5000))
        store._writer._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (pages,) = store._read("PRAGMA page_count", {})[0]
        sizes.append(pages)
    assert sizes[2] <= sizes[0] * 1.2
    await store.aclose()


async def test_an_error_of_sqlite_is_a_store_error(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 10)
    store._reader.close()  # type: ignore[union-attr]
    with pytest.raises(StoreError, match="cannot use the cache file"):
        await store.find(exact_key("q"), NOW)
    await store.aclose()


CRASHING = """
import asyncio, sys
from embeddings.sqlite_store import SqliteStore
from tests.entries import make_entry

async def put_forever(store, worker, start):
    n = start
    while True:
        name = f"{worker}-{n}"
        await store.put(make_entry(name, content="x" * (n * 37 % 6000)))
        print(name, flush=True)
        if n % 5 == 0:
            await store.put(make_entry(f"again-{worker}", content=name))
            print(f"again-{worker}", name, flush=True)
        n += 1

async def main():
    store = SqliteStore.open(sys.argv[1], 1_000_000)
    await asyncio.gather(*(put_forever(store, worker, int(sys.argv[2])) for worker in range(16)))

asyncio.run(main())
"""


def kill_while_it_writes(path: Path, first: int, lines: int) -> list[str]:
    """Run the child until it has acknowledged so many writes, kill it, return all it acknowledged."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", CRASHING, str(path), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as child:
        assert child.stdout is not None
        acknowledged = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        acknowledged += child.stdout.readlines()
    return [line.removesuffix("\n") for line in acknowledged if line.endswith("\n")]


async def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    rng = random.Random(7)
    kept: set[str] = set()
    latest: dict[str, int] = {}
    for round_ in range(4):
        for line in kill_while_it_writes(path, round_ * 100_000, rng.randrange(1, 1500)):
            name, _, content = line.partition(" ")
            kept.add(name)
            if content:
                latest[name] = int(content.split("-")[1])
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
        store = SqliteStore.open(path, 1_000_000)
        for name in kept:
            entry = await store.find(exact_key(name), NOW)
            assert entry is not None, f"{name} was acknowledged and is lost"
            if name in latest:
                content = entry.answer.body["choices"][0]["message"]["content"]
                assert int(content.split("-")[1]) >= latest[name]
        await store.aclose()
    assert len(kept) > 100

    store = SqliteStore.open(path, 1_000_000)
    index = FaissIndex(DIMENSION)
    async for ids, vectors, partitions in store.vectors(SPACE, NOW):
        index.add(ids, vectors, partitions)
    assert len(index) == (await store.size()).entries >= len(kept)
    name = next(name for name in kept if not name.startswith("again"))
    similarity, found = index.search(unit_vector(name).reshape(1, -1), 1, PARTITION)
    assert similarity[0, 0] > 0.999
    entry = await store.get(int(found[0, 0]), NOW)
    assert entry is not None
    assert entry.text == name
    await store.aclose()


async def test_many_leave_in_several_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "REMOVE_BATCH", 7)
    store = SqliteStore.open(tmp_path / "cache.db", 1000)
    commits: list[str] = []
    store._writer._connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    for times in (1, 2):
        ids = [(await store.put(make_entry(f"q{n}", ttl_s=10.0)))[0] for n in range(21 * times)]
        commits.clear()
        gone = await (store.remove(ids) if times == 1 else store.expire(1010.0))
        assert gone.tolist() == ids
        assert len(commits) >= 3 * times
        assert await store.size() == StoreSize(entries=0, stored_bytes=0)
    await store.aclose()


async def test_the_clock_of_eviction_survives_a_restart(tmp_path: Path) -> None:
    """Else what is stored after a restart stands below all that was stored before, and leaves first."""
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 3)
    for n in range(50):
        await store.put(make_entry(f"q{n:02}"))
    await store.aclose()
    store = SqliteStore.open(path, 3)
    new = [(await store.put(make_entry(f"n{n:02}")))[0] for n in range(3)]
    assert (await store.matching(EVERY_ENTRY, NOW)).tolist() == new
    await store.aclose()


@pytest.mark.parametrize("damage", [b"", b"\x00" * 7, struct.pack("<d", float("nan"))])
async def test_a_damaged_clock_is_set_right_by_the_next_eviction(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 3)
    for n in range(50):
        await store.put(make_entry(f"q{n:02}"))
    await store.aclose()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'clock'", (damage,))
    connection.close()
    store = SqliteStore.open(path, 3)
    new = [(await store.put(make_entry(f"n{n:02}")))[0] for n in range(4)]
    assert set(new[1:]) <= set((await store.matching(EVERY_ENTRY, NOW)).tolist())
    await store.aclose()


async def test_an_entry_whose_tags_are_damaged_can_leave(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 1)
    bad, _ = await store.put(make_entry("bad", tags=("x",)))
    connection = connect(path)
    connection.execute("UPDATE entries SET tags = '{'")
    connection.close()
    with pytest.raises(StoreError, match=f"entry {bad} is damaged"):
        await store.get(bad, NOW)
    good, gone = await store.put(make_entry("good", tags=("x",)))
    assert gone.tolist() == [bad]
    assert (await store.matching(EntryFilter(tag="x"), NOW)).tolist() == [good]
    await store.aclose()


async def test_notes_that_cannot_be_written_do_not_keep_from_reading(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 10)
    new_id, _ = await store.put(make_entry())
    store._writer._connection.execute("PRAGMA busy_timeout = 20")
    blocker = connect(path)
    blocker.execute("BEGIN IMMEDIATE")
    store.touch(new_id, NOW)
    found = await store.inspect(new_id, NOW)
    assert found is not None
    assert found[1].hits == 0
    blocker.execute("ROLLBACK")
    blocker.close()
    await store.aclose()


async def test_one_damaged_vector_does_not_keep_the_others_from_the_index(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore.open(tmp_path / "cache.db", 100)
    ids = [(await store.put(make_entry(name)))[0] for name in "abc"]
    await store.aclose()
    with sqlite3.connect(tmp_path / "cache.db") as connection:
        connection.execute("UPDATE entries SET vector = zeroblob(32) WHERE id = ?", (ids[1],))
    connection.close()
    store = SqliteStore.open(tmp_path / "cache.db", 100)
    found = [i async for batch, _, _ in store.vectors(SPACE, 1001.0) for i in batch.tolist()]
    assert found == [ids[0], ids[2]]
    assert "1 vectors are damaged" in caplog.text
    await store.aclose()
