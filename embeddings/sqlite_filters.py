"""Which rows of the SQLite file are meant.

What an entry can be asked for by name (tag, tenant, model, API) is in one table of labels: any of them, and
any of them together, is found in the order of ids without reading other entries.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from embeddings.entry_record import CLOCK_TOLERANCE_S, contains
from embeddings.protocols import EntryFilter

ADD_LABEL = "INSERT INTO labels (label, entry_id) VALUES (?, ?)"
DROP_LABEL = "DELETE FROM labels WHERE label = ? AND entry_id = ?"

SERVED = f"expires_at > :now AND created_at <= :now + {CLOCK_TOLERANCE_S}"
"""`entry_record.is_served` in SQL."""


def labels(tenant: str, api: str, model: str, answered_by: str, tags: Iterable[str]) -> set[str]:
    return {
        f"tenant={tenant}",
        f"api={api}",
        f"model={model}",
        f"model={answered_by}",
        *(f"tag={tag}" for tag in tags),
    }


def register(connection: sqlite3.Connection) -> None:
    """Give the connection what the conditions of `selection` call."""
    connection.create_function("holds", 2, contains, deterministic=True)


class Selection(NamedTuple):
    """`rows`: the tables and conditions to select from. `id`: the column by which the rows come in order.
    `parameters`: of the conditions, but for `:now`."""

    rows: str
    id: str
    parameters: dict[str, object]


def selection(which: EntryFilter) -> Selection:
    # the most telling first: SQLite goes through the labels in this order (CROSS JOIN keeps it)
    named = (("tag", which.tag), ("tenant", which.tenant), ("model", which.model), ("api", which.api))
    wanted = [f"{name}={value}" for name, value in named if value is not None]
    parameters: dict[str, object] = {f"label{n}": label for n, label in enumerate(wanted)}
    tables = [*(f"labels AS label{n}" for n in range(len(wanted))), "entries"]
    ids = [*(f"label{n}.entry_id" for n in range(len(wanted))), "entries.id"]
    conditions = [f"label{n}.label = :label{n}" for n in range(len(wanted))]
    conditions += [f"{later} = {first}" for first, later in pairwise(ids)]
    conditions.append(SERVED)
    if which.text is not None:
        conditions.append("holds(text, :text)")
        parameters["text"] = which.text.casefold()
    rows = f"{' CROSS JOIN '.join(tables)} WHERE {' AND '.join(conditions)}"
    return Selection(rows, ids[0], parameters)
