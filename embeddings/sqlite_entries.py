"""The entries of the SQLite file, as the transactions of its writer change them."""

from __future__ import annotations

import math
import sqlite3
import struct

import orjson

from embeddings.capacity import Capacity
from embeddings.entry_record import EntryRecord, to_tags
from embeddings.protocols import StoreSize
from embeddings.sqlite_filters import ADD_LABEL, DROP_LABEL, labels
from embeddings.sqlite_migrations import COLUMNS

_PUT = (
    f"INSERT INTO entries ({COLUMNS}, last_used_at, density, priority)"
    f" VALUES ({', '.join('?' * (len(EntryRecord._fields) + 3))}) RETURNING id"
)
_LEFT = "RETURNING id, stored_bytes, tenant, api, model, answered_by, tags"
_DELETE_KEY = f"DELETE FROM entries WHERE exact_key = ? {_LEFT}"
_DELETE_ID = f"DELETE FROM entries WHERE id = ? {_LEFT}"
_EXPIRED = "SELECT id FROM entries WHERE expires_at <= ? LIMIT ?"
_BY_PRIORITY = "SELECT id, priority, stored_bytes FROM entries ORDER BY priority, id"
_TOUCH = (
    "UPDATE entries SET last_used_at = max(last_used_at, ?1), hits = hits + ?2,"
    " priority = priority_by(density, hits + ?2) WHERE id = ?3"
)
_JUDGED = (
    "UPDATE entries SET judged_right = judged_right + ?1, judged_wrong = judged_wrong + 1 - ?1 WHERE id = ?2"
)
_VECTOR_BYTES = "SELECT coalesce(length(vector), 0) FROM entries WHERE id = ?"
_WITHDRAW = "UPDATE entries SET vector = NULL, space = NULL, stored_bytes = stored_bytes - ?1 WHERE id = ?2"
_SIZE = "SELECT count(*), coalesce(sum(stored_bytes), 0) FROM entries"
_CLOCK = "SELECT value FROM meta WHERE name = 'clock'"
_SET_CLOCK = "INSERT OR REPLACE INTO meta VALUES ('clock', ?)"
_CLOCK_FORMAT = "<d"


class SqliteEntries:
    """What a write does, in the transaction that its caller has begun. Call `reload` after one that was
    rolled back. Every method raises sqlite3.Error."""

    def __init__(self, connection: sqlite3.Connection, capacity: Capacity) -> None:
        self._connection = connection
        self._capacity = capacity
        connection.create_function("priority_by", 2, self._priority)
        self.reload()

    def reload(self) -> None:
        self._entries, self._stored_bytes = self._connection.execute(_SIZE).fetchone()
        clock = self._connection.execute(_CLOCK).fetchone()
        self._clock = _to_clock(clock[0]) if clock else 0.0

    def size(self) -> StoreSize:
        return StoreSize(entries=self._entries, stored_bytes=self._stored_bytes)

    def put(self, record: EntryRecord) -> tuple[int, list[int]]:
        """The new id, and those that left for it."""
        gone = self._delete(_DELETE_KEY, record.exact_key)
        gone += self._make_room(record)
        density = self._capacity.density_of(record)
        row = (*record, record.created_at, density, self._priority(density, 0))
        [(new_id,)] = self._connection.execute(_PUT, row).fetchall()
        of_entry = labels(record.tenant, record.api, record.model, record.answered_by, to_tags(record.tags))
        self._connection.executemany(ADD_LABEL, [(label, new_id) for label in of_entry])
        self._entries += 1
        self._stored_bytes += record.stored_bytes
        return int(new_id), gone

    def touch(self, entry_id: int, last_used_at: float, hits: int) -> None:
        self._connection.execute(_TOUCH, (last_used_at, hits, entry_id))

    def judged(self, entry_id: int, *, right: bool) -> bool:
        return self._connection.execute(_JUDGED, (int(right), entry_id)).rowcount == 1

    def withdraw(self, entry_id: int) -> bool:
        row = self._connection.execute(_VECTOR_BYTES, (entry_id,)).fetchone()
        if row is None:
            return False
        self._connection.execute(_WITHDRAW, (row[0], entry_id))
        self._stored_bytes -= row[0]
        return True

    def remove(self, ids: list[int]) -> list[int]:
        return [gone for entry_id in ids for gone in self._delete(_DELETE_ID, entry_id)]

    def expire(self, now: float, limit: int) -> list[int]:
        return self.remove([row[0] for row in self._connection.execute(_EXPIRED, (now, limit)).fetchall()])

    def _priority(self, density: float, hits: int) -> float:
        return self._capacity.eviction.priority(self._clock, density, hits)

    def _make_room(self, record: EntryRecord) -> list[int]:
        entries, stored_bytes = self._entries + 1, self._stored_bytes + record.stored_bytes
        if not self._capacity.is_exceeded(entries, stored_bytes):
            return []
        # what had expired when this answer was made has expired now
        gone = self.expire(record.created_at, self._entries)
        entries, stored_bytes = self._entries + 1, self._stored_bytes + record.stored_bytes
        victims: list[int] = []
        cursor = self._connection.execute(_BY_PRIORITY)
        while self._capacity.is_exceeded(entries, stored_bytes) and (row := cursor.fetchone()) is not None:
            victims.append(row[0])
            self._clock = max(self._clock, row[1])
            entries, stored_bytes = entries - 1, stored_bytes - row[2]
        cursor.close()
        if victims:
            self._connection.execute(_SET_CLOCK, (struct.pack(_CLOCK_FORMAT, self._clock),))
        return gone + self.remove(victims)

    def _delete(self, sql: str, argument: object) -> list[int]:
        rows = self._connection.execute(sql, (argument,)).fetchall()
        for entry_id, stored_bytes, tenant, api, model, answered_by, stored_tags in rows:
            try:
                tags = to_tags(stored_tags)
            except orjson.JSONDecodeError:  # damaged, but it can leave: a label of no entry does no harm
                tags = ()
            of_entry = labels(tenant, api, model, answered_by, tags)
            self._connection.executemany(DROP_LABEL, [(label, entry_id) for label in of_entry])
            self._stored_bytes -= stored_bytes
        self._entries -= len(rows)
        return [row[0] for row in rows]


def _to_clock(stored: bytes) -> float:
    """A damaged one is 0: the next eviction sets it right."""
    try:
        (clock,) = struct.unpack(_CLOCK_FORMAT, stored)
    except struct.error:
        return 0.0
    return float(clock) if math.isfinite(clock) else 0.0
