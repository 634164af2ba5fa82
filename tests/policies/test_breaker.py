"""The circuit breaker, on a clock that the test turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.breaker import CircuitBreaker


def fail(breaker: CircuitBreaker, times: int, at: float = 0.0) -> None:
    for _ in range(times):
        breaker.record(at, failed=True)


def test_it_opens_at_the_share_and_not_before_there_are_enough_attempts() -> None:
    breaker = CircuitBreaker(failure_share=0.5, min_attempts=4)
    fail(breaker, 3)
    assert breaker.wait_s(0.0) == 0.0
    fail(breaker, 1)
    assert breaker.wait_s(0.0) == 10.0
    assert breaker.state(0.0) == "open"


def test_successes_in_between_keep_it_closed() -> None:
    breaker = CircuitBreaker(failure_share=0.5, min_attempts=4)
    for _ in range(100):
        breaker.record(0.0, failed=False)
        breaker.record(0.0, failed=False)
        breaker.record(0.0, failed=True)
    assert breaker.state(0.0) == "closed"


def test_failures_of_long_ago_do_not_count() -> None:
    breaker = CircuitBreaker(min_attempts=4, window_s=30)
    fail(breaker, 3, at=0.0)
    fail(breaker, 3, at=31.0)
    assert breaker.state(31.0) == "closed"


def opened() -> CircuitBreaker:
    breaker = CircuitBreaker(min_attempts=2, cooldown_s=10)
    fail(breaker, 2)
    return breaker


def test_after_the_cooldown_one_attempt_may_probe() -> None:
    breaker = opened()
    assert breaker.wait_s(4.0) == 6.0
    assert breaker.wait_s(10.0) == 0.0
    assert breaker.wait_s(10.0) > 0.0


def test_a_good_probe_closes_it_and_a_bad_one_opens_it_again() -> None:
    breaker = opened()
    assert breaker.wait_s(10.0) == 0.0
    breaker.record(11.0, failed=True)
    assert breaker.wait_s(20.0) == 1.0
    assert breaker.wait_s(21.0) == 0.0
    breaker.record(22.0, failed=False)
    assert breaker.state(22.0) == "closed"
    fail(breaker, 1, at=22.0)
    assert breaker.state(22.0) == "closed"


def test_a_probe_given_up_makes_room_for_another() -> None:
    breaker = opened()
    assert breaker.wait_s(10.0) == 0.0
    breaker.abandon()
    assert breaker.wait_s(10.0) == 0.0


def test_an_attempt_begun_before_it_opened_does_not_close_it() -> None:
    breaker = opened()
    breaker.record(1.0, failed=False)
    assert breaker.state(1.0) == "open"


def test_a_share_of_zero_turns_it_off() -> None:
    breaker = CircuitBreaker(failure_share=0.0, min_attempts=1)
    fail(breaker, 1000)
    assert breaker.state(0.0) == "closed"


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=200))
def test_it_is_open_only_after_a_window_full_of_failures(steps: list[tuple[float, bool]]) -> None:
    breaker = CircuitBreaker(failure_share=0.5, min_attempts=5, window_s=10)
    now, seen = 0.0, []
    for gap, failed in steps:
        now += gap
        breaker.record(now, failed=failed)
        seen.append((now, failed))
        if breaker.state(now) == "open":
            recent = [bad for at, bad in seen if at >= now - 10]
            assert len(recent) >= 5
            assert sum(recent) * 2 >= len(recent)
            return
