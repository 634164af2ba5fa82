from __future__ import annotations

import numpy as np
import pytest

from embeddings.slab_rows import DECODED_AT_ONCE, STEP, SlabRows, decoded


def int_ids(*ids: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(ids, dtype=np.int64)


def test_decodes_every_finite_number() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = np.resize(every[np.isfinite(every)], (2 * DECODED_AT_ONCE + 3, 256))
    assert decoded(finite).tobytes() == finite.astype(np.float32).tobytes()


def test_holes_are_filled_first() -> None:
    slab = SlabRows(2)
    vectors = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert slab.append(int_ids(5, 6, 7, 8), vectors).tolist() == [0, 1, 2, 3]
    slab.remove(1)
    slab.remove(2)
    assert len(slab) == 2
    assert sorted(slab.append(int_ids(9, 10, 11), vectors[:3]).tolist()) == [1, 2, 4]
    assert sorted(slab.ids_of(np.arange(5)).tolist()) == [5, 8, 9, 10, 11]
    assert slab.ids_of(int_ids(5, 10**6)).tolist() == [-1, -1]


@pytest.mark.parametrize("kept", ["every third", "first", "last", "none"])
def test_shrinks_to_what_is_left(kept: str) -> None:
    count = 4 * STEP
    slab = SlabRows(4)
    ids = np.arange(count, dtype=np.int64) + 100
    vectors = np.random.default_rng(1).standard_normal((count, 4)).astype(np.float16)
    slab.append(ids, vectors)
    stays = {
        "every third": ids % 3 == 0,
        "first": ids < 1100,
        "last": ids >= count - 900,
        "none": ids < 0,
    }[kept]
    for row in np.flatnonzero(~stays).tolist():
        slab.remove(row)
    assert slab.sparse()
    for _ in range(count):
        if not slab.sparse():
            break
        moved = slab.shrink(1000)
        assert len(moved) <= 1000
        assert (slab.ids_of(moved) >= 0).all()
    left = slab.ids_of(np.arange(slab.end, dtype=np.int64))
    assert sorted(left[left >= 0].tolist()) == ids[stays].tolist()
    there = np.flatnonzero(left >= 0)
    assert (slab.halves(there) == vectors[left[there] - 100]).all()
    assert len(slab._ids) < count  # memory was given back
    assert (slab.ids_of(np.arange(slab.end, count + 10)) == -1).all()


def test_exact_search_leaves_holes_out() -> None:
    slab = SlabRows(2)
    slab.append(int_ids(1, 2, 3), np.array([[1, 0], [0, 1], [0.6, 0.8]], dtype=np.float16))
    slab.remove(1)
    cosines, ids = slab.search(np.array([0, 1], dtype=np.float32), 5)
    assert ids.tolist() == [3, 1]
    assert cosines == pytest.approx([0.8, 0], abs=1e-3)
