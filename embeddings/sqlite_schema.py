"""The SQLite file of the answer store: how it is opened, and who may open it."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
import weakref
from pathlib import Path
from typing import ClassVar

from embeddings.capacity import Capacity
from embeddings.protocols import StoreError
from embeddings.sqlite_migrations import APPLICATION_ID, SCHEMA_VERSION, migrate

HEADER = b"SQLite format 3\x00"  # https://www.sqlite.org/fileformat.html, section 1.3
WRITE_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 0.05  # reads run on the event loop; in WAL mode only another program could hold them up


def prepare(path: Path, capacity: Capacity, *, secret: bytes | None = None) -> None:
    """Make the file when it is missing, check it when it is there, bring it to our schema. A file that is
    made now gets `secret`, or one of its own.

    The caller holds the file's `FileLock`. Raises StoreError, leaving a file that is not ours as it was.
    """
    try:
        _restrict(path)
        connection = connect(path)
    except OSError as error:
        raise StoreError(f"cannot open the cache file {path}: {_reason(error)}") from error
    except sqlite3.Error as error:
        raise unusable(path, error) from error
    try:
        _check(path, connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        version = _pragma(connection, "user_version")
        if version < SCHEMA_VERSION:
            migrate(connection, version, capacity)
        if version == 0 and secret is not None:
            connection.execute("UPDATE meta SET value = ? WHERE name = 'secret'", (secret,))
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise unusable(path, error) from error
    finally:
        connection.close()


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode that any thread may use, one at a time. Raises sqlite3.Error."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=READ_TIMEOUT_S if read_only else WRITE_TIMEOUT_S,
    )
    try:
        # NORMAL: in WAL mode a killed process loses nothing that was committed; a power cut may lose the
        # last commits and never damages the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        if read_only:  # not mode=ro, which cannot make the -shm file that WAL mode needs
            connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def unusable(path: Path, error: sqlite3.Error) -> StoreError:
    """What to tell the user of an error that SQLite reports about this file."""
    code = (
        getattr(error, "sqlite_errorcode", 0) & 0xFF
    )  # without the extension; Python's own errors have none
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return _damaged(path, str(error))
    if str(error).startswith("Could not decode"):  # and goes on with the text, which is nobody's business
        return _damaged(path, "a text that is not UTF-8")
    return StoreError(f"cannot use the cache file {path}: {error}")


def _damaged(path: Path, what: str) -> StoreError:
    return StoreError(
        f"the cache file {path} is damaged or not a database ({what}): move it away with its -wal and -shm "
        "files to start with an empty cache, or set cache.path to another file"
    )


def _check(path: Path, connection: sqlite3.Connection) -> None:
    version = _pragma(connection, "user_version")
    owner = _pragma(connection, "application_id")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if owner != APPLICATION_ID and (owner or version or tables):
        raise StoreError(
            f"the cache file {path} is another program's database: set cache.path to another file"
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"the cache file {path} has schema version {version}, this lockgate knows up to "
            f"{SCHEMA_VERSION}: upgrade lockgate, or set cache.path to another file"
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _restrict(path: Path) -> None:
    """Make the file readable by its owner only, before anything is in it. SQLite gives -wal and -shm the
    mode of the file itself."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        header = os.read(descriptor, len(HEADER))
        if header and header != HEADER:  # SQLite takes a file shorter than a page for an empty database
            raise _damaged(path, "it does not begin as SQLite files do")
    finally:
        os.close(descriptor)
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        if name.exists() and stat.S_IMODE(name.stat().st_mode) & 0o077:
            name.chmod(0o600)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


class FileLock:
    """Keeps a second process away from one cache file. The kernel releases it however the process ends."""

    _held: ClassVar[weakref.WeakSet[FileLock]] = weakref.WeakSet()

    def __init__(self, path: Path) -> None:
        """`path` is the cache file's; the lock lies beside it. Raises StoreError."""
        lock_path = Path(f"{path}.lock")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor: int | None = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"cannot open the cache file {path}: {_reason(error)} ({lock_path})") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise StoreError(
                    f"the cache file {path} is in use by another lockgate: stop it, or set cache.path to "
                    "another file"
                ) from error
            raise StoreError(f"cannot lock the cache file {path}: {_reason(error)}") from error
        FileLock._held.add(self)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @classmethod
    def _drop_in_child(cls) -> None:
        """A forked child shares the lock: without this it would keep the file when its parent is killed."""
        for lock in list(cls._held):
            lock.release()


os.register_at_fork(after_in_child=FileLock._drop_in_child)
