"""Opening the cache file: who may, and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from embeddings.protocols import StoreError
from embeddings.sqlite_migrations import APPLICATION_ID, SCHEMA_VERSION
from embeddings.sqlite_schema import FileLock, connect
from embeddings.sqlite_store import SqliteStore
from tests.entries import exact_key, make_entry

NOBODY = 65534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: mode(file) for file in folder.iterdir()}


def open_error(path: Path) -> str:
    """One line, and the same when tried again: a failed opening leaves no lock behind."""
    messages = set()
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            SqliteStore.open(path, 10)
        messages.add(str(caught.value))
    (message,) = messages
    assert "\n" not in message
    assert str(path) in message
    return message


async def test_file_and_folder_are_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "cache.db"
    previous = os.umask(0)
    try:
        store = SqliteStore.open(path, 10)
        await store.put(make_entry())
        assert mode(path.parent) == 0o700
        files = modes(path.parent)
    finally:
        os.umask(previous)
    assert set(files) == {"cache.db", "cache.db-wal", "cache.db-shm", "cache.db.lock"}
    assert set(files.values()) == {0o600}
    await store.aclose()


async def test_an_open_file_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 10)
    await store.put(make_entry())
    await store.aclose()
    path.chmod(0o644)
    store = SqliteStore.open(path, 10)
    await store.put(make_entry("another"))
    assert set(modes(tmp_path).values()) == {0o600}
    await store.aclose()


def test_file_is_in_wal_mode_and_names_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 10)
    connection = connect(path)
    pragmas = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "user_version", "application_id")
    }
    connection.close()
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 1,
        "user_version": SCHEMA_VERSION,
        "application_id": APPLICATION_ID,
    }
    store._close()


@pytest.mark.parametrize(
    "content", [b"not a database, " * 1000, b"SQLite format 3\x00" + b"\xff" * 5000, b"x"]
)
def test_not_a_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cache.db"
    path.write_bytes(content)
    message = open_error(path)
    assert "damaged or not a database" in message
    assert "move it away" in message
    assert path.read_bytes() == content


async def test_damage_is_reported_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 1000)
    for n in range(200):
        await store.put(make_entry(f"q{n}", content="x" * 2000))
    await store.aclose()
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    message = open_error(path)
    assert "damaged" in message
    assert path.read_bytes() == content


async def test_damage_met_while_reading(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 10)
    new_id, _ = await store.put(make_entry("q"))
    connection = connect(path)
    connection.execute("UPDATE entries SET body = x'7b'")
    with pytest.raises(StoreError, match=f"entry {new_id} is damaged"):
        await store.find(exact_key("q"), 1001.0)
    connection.execute("UPDATE entries SET body = x'7b7d', vector = x'000000'")
    with pytest.raises(StoreError, match="vector is damaged"):
        await store.find(exact_key("q"), 1001.0)
    connection.execute("UPDATE entries SET vector = x'00000000'")
    assert [batch async for batch in store.vectors("fake-16", 1001.0)] == []
    connection.execute("DELETE FROM meta")
    connection.close()
    with pytest.raises(StoreError, match="secret"):
        await store.secret()
    await store.aclose()


def test_newer_schema(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    SqliteStore.open(path, 10)._close()
    connection = connect(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    content = path.read_bytes()
    message = open_error(path)
    assert "schema version 7" in message
    assert f"up to {SCHEMA_VERSION}" in message
    assert "upgrade lockgate, or set cache.path" in message
    assert path.read_bytes() == content


def test_another_programs_database(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    content = path.read_bytes()
    assert "another program's database" in open_error(path)
    assert path.read_bytes() == content


def test_half_made_file_is_finished(tmp_path: Path) -> None:
    """A kill between the switch to WAL and the schema leaves a database without tables."""
    path = tmp_path / "cache.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    SqliteStore.open(path, 10)._close()


def test_path_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert "directory" in open_error(tmp_path / "folder").lower()


def test_path_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot open" in open_error(tmp_path / "file" / "cache.db")


@pytest.fixture
def unprivileged_folder() -> Iterator[Path]:
    """A folder of an unprivileged user, whom the test is for the time: root may write anything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid() != 0:
            yield folder
            return
        folder.chmod(0o755)
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            os.seteuid(0)


def test_read_only_file(unprivileged_folder: Path) -> None:
    path = unprivileged_folder / "cache.db"
    SqliteStore.open(path, 10)._close()
    path.chmod(0o400)
    content = path.read_bytes()
    assert "Permission denied" in open_error(path)
    assert path.read_bytes() == content


def test_read_only_folder(unprivileged_folder: Path) -> None:
    unprivileged_folder.chmod(0o500)
    try:
        assert "Permission denied" in open_error(unprivileged_folder / "cache.db")
        assert "Permission denied" in open_error(unprivileged_folder / "new" / "cache.db")
    finally:
        unprivileged_folder.chmod(0o700)


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    SqliteStore.open("~/cache.db", 10)._close()
    assert (tmp_path / "cache.db").exists()


def test_odd_characters_in_the_path(tmp_path: Path) -> None:
    path = tmp_path / "100% #1?mode=ro 캐시" / "cache.db"
    SqliteStore.open(path, 10)._close()
    assert path.exists()


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 10)
    (tmp_path / "link.db").symlink_to(path)
    assert "in use by another lockgate" in open_error(path)
    with pytest.raises(StoreError, match="in use"):
        SqliteStore.open(tmp_path / "link.db", 10)
    store._close()
    SqliteStore.open(path, 10)._close()


HOLDER = """
import sys
from embeddings.sqlite_store import SqliteStore
try:
    store = SqliteStore.open(sys.argv[1], 10)
except Exception as error:
    print(type(error).__name__, error, flush=True)
    sys.exit(3)
print("open", flush=True)
sys.stdin.read()
"""


def run_holder(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HOLDER, str(path)]
    return subprocess.run(command, capture_output=True, text=True, input="", check=False)


async def test_second_process_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore.open(path, 10)
    await store.put(make_entry("q"))
    second = await asyncio.to_thread(run_holder, path)
    assert second.returncode == 3
    assert second.stdout.startswith("StoreError")
    assert "in use by another lockgate: stop it, or set cache.path" in second.stdout
    await store.put(make_entry("q2"))
    assert await store.find(exact_key("q"), 1001.0) is not None
    await store.aclose()


def test_a_killed_holder_leaves_the_file_free(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        assert "in use" in open_error(path)
        holder.kill()
        holder.wait()
        SqliteStore.open(path, 10)._close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # since 3.12
def test_a_forked_child_does_not_hold_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    lock = FileLock(path)
    alive, end = os.pipe()
    ready, forked = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        os.close(end)
        os.write(forked, b"!")
        os.read(alive, 1)  # until the parent closes its end
        os._exit(0)
    os.close(alive)
    os.read(ready, 1)
    try:
        lock.release()
        FileLock(path).release()
    finally:
        for descriptor in (end, ready, forked):
            os.close(descriptor)
        os.waitpid(child, 0)
