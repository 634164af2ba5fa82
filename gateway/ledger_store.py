"""The ledger's SQLite file. Several processes may share one: they only ever add."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from embeddings.sqlite_schema import HEADER, connect
from gateway.ledger_rows import HITS, SUM_NAMES, Dimension, LedgerKey, LedgerRow, Sums

APPLICATION_ID = 0x4C6B474C  # "LkGL" in the file's header
SCHEMA_VERSION = 1
OPEN_TIMEOUT_S = 5.0
MAX_SUM = 2**63 - 1
_LOW_BITS = 20
_LOW_MASK = (1 << _LOW_BITS) - 1

_SCHEMA = f"""
CREATE TABLE spending (
    {" ".join(f"{name} TEXT NOT NULL," for name in LedgerKey._fields)}
    {" ".join(f"{name} INTEGER NOT NULL," for name in SUM_NAMES)}
    PRIMARY KEY ({", ".join(LedgerKey._fields)})
) STRICT, WITHOUT ROWID;
CREATE INDEX spending_by_key ON spending (key, day, cost_picousd);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""
# min: a sum that left 64 bits would turn into a REAL, which a STRICT table refuses for ever.
_ADD = (
    f"INSERT INTO spending VALUES ({', '.join('?' * (len(LedgerKey._fields) + len(SUM_NAMES)))})"
    f" ON CONFLICT DO UPDATE SET {', '.join(f'{n} = min({n} + excluded.{n}, {MAX_SUM})' for n in SUM_NAMES)}"
)
# SQLite refuses a sum() beyond 64 bits: the high and the low part of each number are summed apart.
_SUMS = ", ".join(f"sum({n} >> {_LOW_BITS}), sum({n} & {_LOW_MASK})" for n in SUM_NAMES)
_HITS = f"coalesce(sum(requests) FILTER (WHERE cache IN {HITS}), 0)"
_SPENT = (
    f"SELECT key, sum(cost_picousd >> {_LOW_BITS}), sum(cost_picousd & {_LOW_MASK}) FROM spending"
    " WHERE day BETWEEN ? AND ? {}GROUP BY key"
)


class LedgerError(Exception):
    """The ledger's file cannot be used; the message is one line that says what to do."""


class LedgerStore:
    """Sums by key, in a file or in memory. For one thread at a time; every method may raise LedgerError."""

    def __init__(self, path: Path | None) -> None:
        """Opens or makes the file, readable by its owner only; None keeps it all in memory. A file that is
        newer than this program, or not a ledger, is left as it was."""
        self._path = None if path is None else Path(path).expanduser().resolve()
        try:
            self._connection = self._open()
        except OSError as error:
            raise LedgerError(
                f"cannot open the ledger file {self._path}: {error.strerror or error}; ledger.path names it"
            ) from error
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        self._seen_version = self._data_version()

    def add(self, sums: Iterable[tuple[LedgerKey, Sums]]) -> None:
        """Adds to the rows there are, in one transaction: all of it, or nothing and LedgerError."""
        rows = [(*key, *(min(value, MAX_SUM) for value in amounts.values())) for key, amounts in sums]
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_ADD, rows)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._unusable(error) from error

    def query(self, dimension: Dimension, since: str, until: str) -> Callable[[], list[LedgerRow]]:
        """A query of the rows as they are now, days from `since` to `until` (YYYY-MM-DD), both included. Run
        it once, on any thread: later writes neither wait for it nor are seen by it."""
        sql = f"SELECT {dimension}, {_HITS}, {_SUMS} FROM spending WHERE day BETWEEN ? AND ? GROUP BY 1"
        if self._path is None:
            rows = _rows(self._connection, sql, since, until)
            return lambda: rows
        try:
            snapshot = connect(self._path, read_only=True)
            try:
                snapshot.execute("BEGIN")
                snapshot.execute("SELECT 1 FROM spending LIMIT 1").fetchall()  # fixes what it sees
            except sqlite3.Error:
                snapshot.close()
                raise
        except sqlite3.Error as error:
            raise self._unusable(error) from error

        def run() -> list[LedgerRow]:
            try:
                return _rows(snapshot, sql, since, until)
            except sqlite3.Error as error:
                raise self._unusable(error) from error
            finally:
                snapshot.close()

        return run

    def spent_picousd(self, month: str, key: str | None = None) -> dict[str, int]:
        """By key, in a month (YYYY-MM); of one key only where one is named."""
        days = (f"{month}-01", f"{month}-31")
        if key is None:
            rows = self._read(_SPENT.format(""), *days)
        else:
            rows = self._read(_SPENT.format("AND key = ? "), *days, key)
        return {name: _joined(high, low) for name, high, low in rows}

    def keys(self, day: str) -> list[LedgerKey]:
        sql = f"SELECT {', '.join(LedgerKey._fields)} FROM spending WHERE day = ?"
        return [LedgerKey(*row) for row in self._read(sql, day)]

    def drop_before(self, day: str) -> None:
        try:
            self._connection.execute("DELETE FROM spending WHERE day < ?", (day,))
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def changed_elsewhere(self) -> bool:
        """Whether another process has written since this was last asked."""
        before, self._seen_version = self._seen_version, self._data_version()
        return before != self._seen_version

    def close(self) -> None:
        try:
            self._connection.close()
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        else:
            _make(self._path)
            connection = connect(self._path)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")  # one snapshot: another process may be making the file right now
        self._check(connection)
        connection.execute("COMMIT")
        if self._path is not None:
            _restrict(self._path)
        _use_wal(connection)
        connection.execute("BEGIN IMMEDIATE")
        if _pragma(connection, "user_version") == 0:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
        connection.execute("COMMIT")

    def _check(self, connection: sqlite3.Connection) -> None:
        version, owner = _pragma(connection, "user_version"), _pragma(connection, "application_id")
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if owner != APPLICATION_ID and (owner or version or tables):
            raise LedgerError(
                f"the ledger file {self._path} is another program's database: set ledger.path to another file"
            )
        if version > SCHEMA_VERSION:
            raise LedgerError(
                f"the ledger file {self._path} has schema version {version}, this lockgate knows up to "
                f"{SCHEMA_VERSION}: upgrade lockgate, or set ledger.path to another file"
            )

    def _read(self, sql: str, *arguments: str) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql, arguments).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _data_version(self) -> int:
        # https://www.sqlite.org/pragma.html#pragma_data_version
        try:
            return _pragma(self._connection, "data_version")
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _unusable(self, error: sqlite3.Error) -> LedgerError:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_NOTADB) & 0xFF
        if type(error) is sqlite3.DatabaseError and code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return LedgerError(
                f"the ledger file {self._path} is damaged or not a database ({error}): move it away with its "
                "-wal and -shm files to start anew, or set ledger.path to another file"
            )
        return LedgerError(f"cannot use the ledger file {self._path}: {error}")


def _rows(connection: sqlite3.Connection, sql: str, *days: str) -> list[LedgerRow]:
    return [
        LedgerRow(name=name, hits=hits, sums=Sums(*map(_joined, halves[::2], halves[1::2])))
        for name, hits, *halves in connection.execute(sql, days).fetchall()
    ]


def _joined(high: int, low: int) -> int:
    return (high << _LOW_BITS) + low


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _use_wal(connection: sqlite3.Connection) -> None:
    """SQLite does not wait for another process that is switching the same file over."""
    deadline = time.monotonic() + OPEN_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _make(path: Path) -> None:
    """Makes the file, for its owner only, before anything is in it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        header = os.read(descriptor, len(HEADER))
    finally:
        os.close(descriptor)
    if header and header != HEADER:  # SQLite takes a file shorter than a page for an empty database
        raise sqlite3.DatabaseError("it does not begin as SQLite files do")


def _restrict(path: Path) -> None:
    """A file that was made with a wider mode, or copied."""
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        if name.exists() and stat.S_IMODE(name.stat().st_mode) & 0o077:
            name.chmod(0o600)
