from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from embeddings.id_table import PAGE, IdTable

IDS = st.integers(0, 3 * PAGE) | st.integers(2**40, 2**40 + 5)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.lists(IDS, max_size=30, unique=True)), max_size=20))
def test_agrees_with_a_dict(steps: list[tuple[bool, list[int]]]) -> None:
    table = IdTable()
    oracle: dict[int, tuple[int, int]] = {}
    for step, (is_added, ids) in enumerate(steps):
        if is_added:
            table.set_all(np.array(ids, dtype=np.int64), step, np.arange(len(ids), dtype=np.int64))
            oracle.update({entry_id: (step, row) for row, entry_id in enumerate(ids)})
        else:
            for entry_id in set(ids) & set(oracle):
                table.remove(entry_id)
                del oracle[entry_id]
        assert len(table) == len(oracle)
        assert sorted(table.ids().tolist()) == sorted(oracle)
        slots, rows = table.find_all(np.array(ids, dtype=np.int64))
        expected = [oracle.get(entry_id, (-1, -1)) for entry_id in ids]
        assert list(zip(slots.tolist(), rows.tolist(), strict=True)) == expected
        assert [table.find(entry_id) for entry_id in ids] == expected


def test_a_page_goes_with_its_last_id() -> None:
    table = IdTable()
    ids = np.arange(10 * PAGE, dtype=np.int64)
    table.set_all(ids, 0, ids)
    assert len(table._pages) == 10
    for entry_id in range(9 * PAGE):
        table.remove(entry_id)
    assert list(table._pages) == [9]
    assert table.find(9 * PAGE) == (0, 9 * PAGE)
