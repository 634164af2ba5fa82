from __future__ import annotations

import dataclasses

import pytest

from embeddings.capacity import MAX_BYTES, Capacity
from embeddings.entry_record import to_record
from embeddings.protocols import StoreError
from tests.entries import make_entry


@pytest.mark.parametrize("limits", [(0, 1), (1, 0), (-1, 1)])
def test_limits_are_at_least_one(limits: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"max_(entries|bytes) must be at least 1"):
        Capacity(*limits)


def test_either_limit_can_be_exceeded() -> None:
    capacity = Capacity(10, 1000)
    assert [capacity.is_exceeded(*held) for held in ((10, 1000), (11, 0), (0, 1001))] == [False, True, True]


def test_an_entry_must_fit_alone() -> None:
    record = to_record(make_entry())
    Capacity(1, record.stored_bytes).check(record)
    with pytest.raises(StoreError, match=r"it alone takes \d+ bytes, the cache may hold \d+"):
        Capacity(1, record.stored_bytes - 1).check(record)


def test_room_is_the_share_of_both_limits() -> None:
    capacity = Capacity(100, 1_000_000)
    # a cost of 2 dollars for a tenth of the bytes and one entry of a hundred
    assert capacity.density(2.0, 0, 0, 100_000) == pytest.approx(2.0 / 0.11)


def test_density_of_a_record_is_of_what_it_cost_and_takes() -> None:
    capacity = Capacity(100, MAX_BYTES)
    record = to_record(make_entry(cost_usd=0.5))
    assert capacity.density_of(record) == capacity.density(0.5, 3, 4, record.stored_bytes)
    longer = to_record(dataclasses.replace(make_entry(cost_usd=0.5), request=b"x" * 1_000_000))
    assert capacity.density_of(longer) < capacity.density_of(record)
