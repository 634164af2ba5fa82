"""Time that goes on whatever is done to the machine's clock."""

from __future__ import annotations

import time

from gateway.clock import SteadyClock


def test_setting_the_machines_clock_moves_nothing() -> None:
    wall, elapsed = 1000.0, 50.0
    clock = SteadyClock(lambda: wall, lambda: elapsed)
    assert clock() == 1000.0
    elapsed += 7.5
    wall -= 86_400.0
    assert clock() == 1007.5


def test_it_begins_at_the_time_of_day() -> None:
    before = time.time()
    assert before - 1 <= SteadyClock()() <= time.time() + 1
