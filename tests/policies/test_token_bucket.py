"""The token bucket: never more than its rate, and nothing lost or won by settling."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from policies.token_bucket import TokenBucket

MINUTE_NS = 60_000_000_000
START_NS = 5_000_000_000_000

rates = st.integers(1, 100_000)
steps = st.lists(st.tuples(st.integers(0, 2 * MINUTE_NS), st.integers(0, 500)), max_size=40)


def bucket(per_minute: int) -> TokenBucket:
    return TokenBucket(per_minute=per_minute, now_ns=START_NS)


def test_a_bucket_starts_full_and_refills_evenly() -> None:
    one = bucket(60)
    assert one.remaining(START_NS) == 60
    one.take(60, START_NS)
    assert one.remaining(START_NS) == 0
    assert one.remaining(START_NS + 999_999_999) == 0
    assert one.remaining(START_NS + 1_000_000_000) == 1
    assert one.remaining(START_NS + MINUTE_NS // 2) == 30
    assert one.remaining(START_NS + 10 * MINUTE_NS) == 60


def test_the_wait_is_until_the_tokens_are_there_to_the_nanosecond() -> None:
    one = bucket(7)
    one.take(7, START_NS)
    wait_ns = one.wait_ns(1, START_NS)
    assert wait_ns == -(-MINUTE_NS // 7)
    assert one.wait_ns(1, START_NS + wait_ns - 1) == 1
    assert one.wait_ns(1, START_NS + wait_ns) == 0


def test_more_than_the_bucket_holds_never_comes() -> None:
    assert bucket(10).wait_ns(11, START_NS) is None
    assert bucket(10).wait_ns(10, START_NS) == 0


def test_what_was_used_beyond_the_reservation_is_owed() -> None:
    one = bucket(60)
    one.take(10, START_NS)
    one.settle(10, 90, START_NS)
    assert one.remaining(START_NS) == 0
    assert one.wait_ns(0, START_NS) == MINUTE_NS // 2
    assert one.full_in_ns(START_NS) == MINUTE_NS // 2 + MINUTE_NS
    assert one.remaining(START_NS + MINUTE_NS) == 30


def test_what_comes_back_to_a_bucket_that_is_full_again_is_too_late() -> None:
    one = bucket(60)
    one.take(60, START_NS)
    one.settle(60, 0, START_NS + MINUTE_NS)
    assert one.remaining(START_NS + MINUTE_NS) == 60


def test_a_clock_that_steps_back_gives_and_takes_nothing() -> None:
    one = bucket(60)
    one.take(30, START_NS)
    assert one.remaining(START_NS - MINUTE_NS) == 30
    assert one.remaining(START_NS) == 30
    assert one.remaining(START_NS + MINUTE_NS // 2) == 60


@given(rates, steps)
def test_no_window_lets_more_in_than_the_rate_beyond_the_burst(
    per_minute: int, asked: list[tuple[int, int]]
) -> None:
    one, now_ns = bucket(per_minute), START_NS
    let_in: list[tuple[int, int]] = []
    for pause_ns, tokens in asked:
        now_ns += pause_ns
        if one.wait_ns(tokens, now_ns) == 0:
            one.take(tokens, now_ns)
            let_in.append((now_ns, tokens))
    for first, (begin_ns, _) in enumerate(let_in):
        sum_tokens = 0
        for end_ns, tokens in let_in[first:]:
            sum_tokens += tokens
            assert sum_tokens * MINUTE_NS <= per_minute * (MINUTE_NS + end_ns - begin_ns)


@given(rates, steps)
def test_who_waits_as_long_as_told_is_let_in_and_not_a_nanosecond_too_late(
    per_minute: int, asked: list[tuple[int, int]]
) -> None:
    one, now_ns = bucket(per_minute), START_NS
    for pause_ns, tokens in asked:
        now_ns += pause_ns
        wait_ns = one.wait_ns(tokens, now_ns)
        if wait_ns is None:
            assert tokens > per_minute
            continue
        if wait_ns:
            assert one.wait_ns(tokens, now_ns + wait_ns - 1) == 1
        now_ns += wait_ns
        assert one.wait_ns(tokens, now_ns) == 0
        one.take(tokens, now_ns)


@given(
    rates,
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 1000)), max_size=30),
    st.randoms(use_true_random=False),
)
def test_at_one_instant_any_order_of_reserving_and_settling_leaves_what_was_used(
    per_minute: int, requests: list[tuple[int, int]], random: Random
) -> None:
    one, under_way = bucket(per_minute), []
    for reserved, used in requests:
        one.take(reserved, START_NS)
        under_way.append((reserved, used))
        while under_way and random.random() < 0.5:
            one.settle(*under_way.pop(random.randrange(len(under_way))), START_NS)
    random.shuffle(under_way)
    for reserved, used in under_way:
        one.settle(reserved, used, START_NS)
    plain = bucket(per_minute)
    plain.take(sum(used for _, used in requests), START_NS)
    assert one.full_in_ns(START_NS) == plain.full_in_ns(START_NS)


@st.composite
def traffic(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """(pause in ns, reserved, used at most that, how many requests later it settles)."""
    found = []
    for _ in range(draw(st.integers(0, 30))):
        reserved = draw(st.integers(0, 500))
        used = draw(st.integers(0, reserved))
        found.append((draw(st.integers(0, MINUTE_NS)), reserved, used, draw(st.integers(0, 5))))
    return found


@given(rates, traffic())
def test_over_a_whole_run_what_was_used_keeps_to_the_rate_and_reservations_cost_nothing(
    per_minute: int, asked: list[tuple[int, int, int, int]]
) -> None:
    """Beside a bucket from which only what was used is taken, when it is let in."""
    one, knowing, now_ns = bucket(per_minute), bucket(per_minute), START_NS
    under_way: list[tuple[int, int, int]] = []
    sum_used = 0
    for turn, (pause_ns, reserved, used, lasts) in enumerate(asked):
        now_ns += pause_ns
        for item in [item for item in under_way if item[0] <= turn]:
            under_way.remove(item)
            one.settle(item[1], item[2], now_ns)
        if one.wait_ns(reserved, now_ns) == 0:
            one.take(reserved, now_ns)
            knowing.take(used, now_ns)
            under_way.append((turn + lasts, reserved, used))
            sum_used += used
    for _, reserved, used in under_way:
        one.settle(reserved, used, now_ns)
    assert sum_used * MINUTE_NS <= per_minute * (MINUTE_NS + now_ns - START_NS)
    assert one.full_in_ns(now_ns) <= knowing.full_in_ns(now_ns)
