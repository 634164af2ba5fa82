"""The cache file when the machine fails it: kills, power cuts, a full disk, damage. Nothing is served but
what was stored, and what cannot be used is refused with a way out."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from embeddings.protocols import EVERY_ENTRY, Entry, StoreError
from embeddings.sqlite_store import SqliteStore
from tests.entries import exact_key, make_entry

ROOT = Path(__file__).parents[2]
NOW = 1001.0
BURST = 16
SECTOR = 512  # the least that a disk loses


def entry_of(name: str) -> Entry:
    """All of an entry follows from its name: what is mixed of two is found out."""
    length = int.from_bytes(exact_key(name)[:2], "little") % 6000
    return make_entry(name, content=f"{name} {'x' * length}", tags=(name, "every"), cost_usd=length / 1e6)


def check(entry: Entry) -> None:
    assert entry.text is not None
    expected = entry_of(entry.text)
    assert entry.vector is not None
    assert expected.vector is not None
    assert float(entry.vector @ expected.vector) > 0.999
    assert dataclasses.replace(entry, vector=None) == dataclasses.replace(expected, id=entry.id, vector=None)


def check_file(path: Path) -> None:
    """Sound, and no table knows of an entry that another does not."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    entries = connection.execute("SELECT id, tags FROM entries").fetchall()
    labelled = connection.execute("SELECT entry_id, count(*) FROM labels GROUP BY entry_id").fetchall()
    connection.close()
    # the tenant, the API, two models and the two tags
    assert dict(labelled) == {entry_id: 6 for entry_id, _ in entries}


WRITER = """
import asyncio, sys
from embeddings.sqlite_store import SqliteStore
from tests.e2e.test_store_faults import BURST, entry_of

async def put(store, name):
    new_id, gone = await store.put(entry_of(name))
    store.touch(new_id, 1000.0)
    print(new_id, name, *gone.tolist(), flush=True)

async def main():
    path, max_entries, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    store = SqliteStore.open(path, max_entries)
    burst = first
    while True:
        # one in four replaces what an earlier burst stored
        names = [f"{burst - 3 if n % 4 == 0 else burst}-{n}" for n in range(BURST)]
        await asyncio.gather(*(put(store, name) for name in names))
        burst += 1

asyncio.run(main())
"""


def write_until_killed(path: Path, max_entries: int, first: int, writes: int) -> list[list[str]]:
    """Every acknowledgement of a process that is killed once it has given so many."""
    command = [sys.executable, "-c", WRITER, str(path), str(max_entries), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(writes)]
        child.kill()
        lines += child.stdout.readlines()
    assert all(lines[:writes])
    return [line.split() for line in lines if line.endswith("\n")]


def writes_so_far(path: Path) -> int:
    """Of all committed puts: ids have no gaps."""
    connection = sqlite3.connect(path)
    (last_id,) = connection.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()
    connection.close()
    return int(last_id)


async def test_kill_9_in_500_bursts(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    chance = random.Random(11)
    max_entries = 1000
    known: dict[int, str] = {}
    written = 0
    for life in range(25):
        acknowledged = write_until_killed(path, max_entries, life * 1000, chance.randrange(320, 352))
        check_file(path)
        known |= {int(new_id): name for new_id, name, *_ in acknowledged}
        for _, _, *gone in acknowledged:
            for entry_id in gone:
                known.pop(int(entry_id), None)
        unacknowledged = writes_so_far(path) - written - len(acknowledged)
        assert 0 <= unacknowledged <= BURST
        written += len(acknowledged) + unacknowledged

        store = SqliteStore.open(path, max_entries)
        present: dict[int, str] = {}
        for entry, _ in await store.listed(EVERY_ENTRY, NOW, limit=10_000):
            check(entry)
            present[entry.id] = entry.text or ""
        assert (await store.size()).entries == len(present) <= max_entries
        await store.aclose()
        # a write that was committed and not acknowledged replaced one or had one evicted, or both
        assert len(known.keys() - present.keys()) <= 2 * unacknowledged
        assert all(present[entry_id] == name for entry_id, name in known.items() if entry_id in present)
        known = present
    assert written >= 500 * BURST


FILES = ("cache.db", "cache.db-wal", "cache.db-shm")


async def states_while_written(folder: Path, copies: Path) -> tuple[list[dict[int, str]], list[Path]]:
    """Writes one entry a transaction, some of them replacing others or having them evicted. Returns what
    the store held after each, and copies of its files that another thread took in the meantime."""
    store = SqliteStore.open(folder / "cache.db", 30)
    for n in range(30):
        await store.put(entry_of(f"old-{n}"))
    await store.aclose()  # the WAL begins anew, and is not checkpointed before it has 1000 pages
    store = SqliteStore.open(folder / "cache.db", 30)
    states = [{entry.id: entry.text or "" for entry, _ in await store.listed(EVERY_ENTRY, NOW)}]

    async def write() -> None:
        for n in range(60):
            name = f"new-{n - n % 4 if n % 5 == 0 else n}"
            new_id, gone = await store.put(entry_of(name))
            state = {i: text for i, text in states[-1].items() if i not in gone.tolist()}
            states.append(state | {new_id: name})

    taken: list[Path] = []
    async with asyncio.TaskGroup() as group:
        task = group.create_task(write())
        while not task.done():
            taken.append(copies / str(len(taken)))
            await asyncio.to_thread(copy_files, folder, taken[-1])
    taken.append(copies / "last")
    copy_files(folder, taken[-1])
    await store.aclose()
    return states, taken


def copy_files(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for name in FILES:
        shutil.copy(source / name, target / name)


def truncate(tail: bytes, chance: random.Random) -> bytes:
    return b""


def zero(tail: bytes, chance: random.Random) -> bytes:
    return bytes(len(tail))


def garble(tail: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(len(tail))


def lose_a_sector(tail: bytes, chance: random.Random) -> bytes:
    """Written out of order: what follows is there."""
    return chance.randbytes(min(SECTOR, len(tail))) + tail[SECTOR:]


def flip_a_bit(tail: bytes, chance: random.Random) -> bytes:
    return bytes([tail[0] ^ 1 << chance.randrange(8)]) + tail[1:] if tail else tail


LOSSES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    truncate,
    zero,
    garble,
    lose_a_sector,
    flip_a_bit,
)


async def test_a_power_cut_loses_the_last_writes_and_no_more(tmp_path: Path) -> None:
    chance = random.Random(3)
    (tmp_path / "live").mkdir()
    states, taken = await states_while_written(tmp_path / "live", tmp_path / "copies")
    assert len(taken) > 3
    seen = set()
    for case in range(150):
        folder = tmp_path / f"case-{case}"
        copy_files(taken[-1] if case % 2 else chance.choice(taken), folder)
        wal = folder / "cache.db-wal"
        content = wal.read_bytes()
        offset = len(content) if case == 1 else chance.randrange(len(content) + 1)
        wal.write_bytes(content[:offset] + LOSSES[case % len(LOSSES)](content[offset:], chance))
        if case % 3 == 0:
            (folder / "cache.db-shm").write_bytes(chance.randbytes(32768))
        store = SqliteStore.open(folder / "cache.db", 30)
        found = await store.listed(EVERY_ENTRY, NOW)
        for entry, _ in found:
            check(entry)
        seen.add(states.index({entry.id: entry.text or "" for entry, _ in found}))
        await store.put(entry_of("after"))
        await store.aclose()
        check_file(folder / "cache.db")
        shutil.rmtree(folder)
    assert len(seen) > 20  # many lengths of history, not the whole or nothing
    assert max(seen) == len(states) - 1


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from embeddings.protocols import EVERY_ENTRY, StoreError
from embeddings.sqlite_store import SqliteStore
from tests.e2e.test_store_faults import NOW, check, entry_of

def limit(size):  # of every file; Python ignores SIGXFSZ, so that a write beyond it fails (EFBIG)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    path = Path(sys.argv[1])
    store = SqliteStore.open(path, 10_000)
    stored = [(await store.put(entry_of(f"q{n}")))[0] for n in range(100)]
    limit(Path(f"{path}-wal").stat().st_size + 20_000)
    refused = 0
    for n in range(100, 200):
        try:
            stored.append((await store.put(entry_of(f"q{n}")))[0])
        except StoreError as error:
            refused += 1
            message = str(error)
    assert refused > 50, refused
    assert str(path) in message and "disk" in message, message
    assert len(stored) + refused == 200
    entries = await store.listed(EVERY_ENTRY, NOW, limit=1000)
    assert [entry.id for entry, _ in entries] == stored[::-1]
    for entry, _ in entries:
        check(entry)
    assert (await store.size()).entries == len(stored)
    limit(resource.RLIM_INFINITY)
    for n in range(100):
        stored.append((await store.put(entry_of(f"later{n}")))[0])
    assert (await store.matching(EVERY_ENTRY, NOW)).tolist() == stored
    await store.aclose()
    print(len(stored))

asyncio.run(main())
"""


async def test_a_full_disk_refuses_writes_and_serves_on(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    command = [sys.executable, "-c", FULL_DISK, str(path)]
    child = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, cwd=ROOT)
    assert child.returncode == 0, child.stderr
    check_file(path)
    store = SqliteStore.open(path, 10_000)
    assert (await store.size()).entries == int(child.stdout)
    await store.aclose()


def test_a_full_disk_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    command = [
        sys.executable,
        "-c",
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "from embeddings.sqlite_store import SqliteStore\n"
        "try: SqliteStore.open(sys.argv[1], 10)\n"
        "except Exception as error: print(type(error).__name__, error)\n",
        str(path),
    ]
    child = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert child.stdout.startswith(f"StoreError cannot use the cache file {path}")
    SqliteStore.open(path, 10)._close()


async def make_sound_file(path: Path) -> None:
    store = SqliteStore.open(path, 1000)
    await asyncio.gather(*(store.put(entry_of(f"q{n}")) for n in range(300)))
    await store.aclose()


WAY_OUT = "move it away with its -wal and -shm files to start with an empty cache, or set cache.path"


@pytest.mark.parametrize("seed", range(4))
async def test_a_damaged_head_or_a_lost_half_is_refused_or_found_out(tmp_path: Path, seed: int) -> None:
    """Refused at the opening when SQLite needs what is damaged to open; the file stays as it was."""
    path = tmp_path / "cache.db"
    await make_sound_file(path)
    sound = path.read_bytes()
    chance = random.Random(seed)
    for damaged in (
        chance.randbytes(100) + sound[100:],
        sound[:16] + chance.randbytes(84) + sound[100:],
        sound[:100] + chance.randbytes(4096 - 100) + sound[4096:],
        sound[: len(sound) // 2],
        sound[: len(sound) // 2 + chance.randrange(4096)],
        sound[:4096],
    ):
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match=WAY_OUT):
            SqliteStore.open(path, 1000)
        assert path.read_bytes() == damaged


@pytest.mark.parametrize("fill", [bytes, os.urandom, lambda size: b"\xff" * size])
async def test_damage_in_the_middle_serves_nothing_wrong(
    tmp_path: Path, fill: Callable[[int], bytes]
) -> None:
    """What is damaged is found out when it is read: looking through gigabytes at every start would take
    minutes. The entries beside it are served, and the damaged file can be opened again."""
    path = tmp_path / "cache.db"
    await make_sound_file(path)
    sound = path.read_bytes()
    chance = random.Random(5)
    served = 0
    refused: list[str] = []
    failed: list[str] = []
    for _ in range(25):
        damaged = bytearray(sound)
        for _ in range(4):
            offset = chance.randrange(4096 // SECTOR, len(sound) // SECTOR) * SECTOR
            damaged[offset : offset + SECTOR] = fill(SECTOR)
        path.write_bytes(damaged)
        try:
            store = SqliteStore.open(path, 1000)
        except StoreError as error:
            refused.append(str(error))
            continue
        for n in range(300):
            try:
                entry = await store.find(exact_key(f"q{n}"), NOW)
            except StoreError as error:
                failed.append(str(error))
            else:
                if entry is not None and entry.exact_key == exact_key(f"q{n}"):
                    served += 1
                    assert entry.answer == entry_of(f"q{n}").answer
        await store.aclose()
    assert served > 1000
    assert failed
    assert all("damaged" in message for message in failed)
    assert len(refused) < 25
    assert all(WAY_OUT in message for message in refused)
