"""Whatever is asked for by name is found by an index, in the order of ids, without sorting."""

from __future__ import annotations

import itertools
import sqlite3

import pytest

from embeddings.protocols import EntryFilter
from embeddings.sqlite_filters import register, selection
from embeddings.sqlite_migrations import SCHEMA

VALUES = {"tag": "a", "tenant": "b", "model": "c", "api": "chat", "text": "d"}


@pytest.fixture
def connection() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    register(connection)
    return connection


@pytest.mark.parametrize(
    "names", [names for n in range(6) for names in itertools.combinations(VALUES, n)], ids="+".join
)
def test_the_plan_of_every_filter(connection: sqlite3.Connection, names: tuple[str, ...]) -> None:
    which = EntryFilter(**{name: VALUES[name] for name in names})  # type: ignore[arg-type]
    chosen = selection(which)
    sql = f"EXPLAIN QUERY PLAN SELECT {chosen.id}, body FROM {chosen.rows} AND {chosen.id} < :before"
    for order in ("", "DESC"):
        rows = connection.execute(
            f"{sql} ORDER BY {chosen.id} {order} LIMIT 50", chosen.parameters | {"now": 0.0, "before": 9}
        )
        steps = [row[3] for row in rows.fetchall()]
        assert not [step for step in steps if "TEMP B-TREE" in step]
        assert not [step for step in steps if step.startswith("SCAN")]
        labelled = [name for name in names if name != "text"]
        assert sum(step.startswith("SEARCH label") for step in steps) == len(labelled)
        if labelled:
            assert steps[0] == "SEARCH label0 USING PRIMARY KEY (label=? AND entry_id<?)"
            assert chosen.parameters["label0"] == f"{labelled[0]}={VALUES[labelled[0]]}"


def test_a_name_is_a_value_and_never_sql(connection: sqlite3.Connection) -> None:
    nasty = "'; DROP TABLE entries; --\x00%_"
    chosen = selection(EntryFilter(tag=nasty, tenant=nasty, model=nasty, text=nasty))
    assert nasty not in chosen.rows
    assert (
        connection.execute(
            f"SELECT {chosen.id} FROM {chosen.rows}", chosen.parameters | {"now": 0.0}
        ).fetchall()
        == []
    )
