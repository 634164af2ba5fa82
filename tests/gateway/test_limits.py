"""Limits of keys: who is let in, what a refusal says, and what the headers say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestError
from gateway.limits import Admission, Limits, SpentUsd, duration, nothing_spent
from gateway.settings import AuthKey

SECOND_NS = 1_000_000_000
MARCH_30 = datetime(2026, 3, 30, 12, tzinfo=UTC).timestamp()


class Clocks:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.now_ns = 77 * SECOND_NS
        self.now_s = MARCH_30

    def move(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND_NS)
        self.now_s += seconds


def limited(
    *,
    requests: int | None = None,
    tokens: int | None = None,
    usd: float | None = None,
    digit: str = "a",
) -> AuthKey:
    return AuthKey(
        sha256=digit * 64, requests_per_minute=requests, tokens_per_minute=tokens, budget_usd_per_month=usd
    )


def limits_of(clocks: Clocks, spent_usd: SpentUsd = nothing_spent, **keys: AuthKey) -> Limits:
    return Limits(keys, spent_usd=spent_usd, monotonic_ns=lambda: clocks.now_ns, wall_s=lambda: clocks.now_s)


def refused(limits: Limits, key: str, tokens: int) -> RequestError:
    with pytest.raises(RequestError) as caught:
        limits.admit(key, tokens)
    return caught.value


def shown(admission: Admission) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in admission.headers()}


def test_a_key_without_limits_is_let_in_and_told_nothing() -> None:
    limits = limits_of(Clocks(), web=limited())
    for _ in range(1000):
        admission = limits.admit("web", 10**9)
    assert admission.headers() == []
    assert admission.reserved_tokens == 10**9


def test_a_key_that_is_gone_has_no_limits() -> None:
    limits = limits_of(Clocks())
    assert limits.admit("gone", 5).headers() == []
    limits.settle("gone", 5, 7, 1.0)


def test_requests_beyond_the_limit_wait_for_their_turn() -> None:
    clocks = Clocks()
    limits = limits_of(clocks, web=limited(requests=3))
    for _ in range(3):
        limits.admit("web", 0)
    error = refused(limits, "web", 0)
    assert (error.status, error.kind, error.code) == (
        429,
        "rate_limit_exceeded",
        "requests_per_minute_exceeded",
    )
    assert str(error) == "Key web has used its 3 requests per minute. Try again in 20s."
    assert error.headers == {
        "x-ratelimit-limit-requests": "3",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m0s",
        "retry-after": "20",
    }
    clocks.move(19.9)
    assert refused(limits, "web", 0).headers["retry-after"] == "1"
    clocks.move(0.1)
    limits.admit("web", 0)


def test_a_refused_request_takes_nothing() -> None:
    clocks = Clocks()
    limits = limits_of(clocks, web=limited(requests=60, tokens=600))
    limits.admit("web", 600)
    for _ in range(100):
        refused(limits, "web", 10)
    clocks.move(1)
    assert shown(limits.admit("web", 10))["x-ratelimit-remaining-requests"] == "59"


def test_retry_after_tells_of_the_limit_that_holds_longest() -> None:
    limits = limits_of(Clocks(), web=limited(requests=1, tokens=60))
    limits.admit("web", 60)
    limits.settle("web", 60, 120, 0.0)
    error = refused(limits, "web", 60)
    assert (error.code, error.headers["retry-after"]) == ("tokens_per_minute_exceeded", "120")
    assert refused(limits, "web", 0).code == "requests_per_minute_exceeded"


def test_headers_of_a_success_are_openais() -> None:
    clocks = Clocks()
    limits = limits_of(clocks, web=limited(requests=600, tokens=60_000))
    limits.admit("web", 100)
    clocks.move(0.05)
    assert shown(limits.admit("web", 100)) == {
        "x-ratelimit-limit-requests": "600",
        "x-ratelimit-remaining-requests": "598",
        "x-ratelimit-reset-requests": "150ms",
        "x-ratelimit-limit-tokens": "60000",
        "x-ratelimit-remaining-tokens": "59850",
        "x-ratelimit-reset-tokens": "150ms",
    }


def test_headers_tell_only_of_limits_that_there_are() -> None:
    limits = limits_of(Clocks(), web=limited(tokens=10), batch=limited(usd=2.0))
    assert {name.rsplit("-", 1)[-1] for name in shown(limits.admit("web", 1))} == {"tokens"}
    assert shown(limits.admit("batch", 1)) == {"x-lockgate-budget-remaining-usd": "2.000000"}


def test_an_answer_from_the_cache_gives_its_tokens_back_and_counts_as_a_request() -> None:
    limits = limits_of(Clocks(), web=limited(requests=10, tokens=1000, usd=1.0))
    admission = limits.admit("web", 900)
    limits.settle("web", admission.reserved_tokens, 0, 0.0)
    told = shown(limits.admit("web", 0))
    assert told["x-ratelimit-remaining-tokens"] == "1000"
    assert told["x-ratelimit-remaining-requests"] == "8"
    assert told["x-lockgate-budget-remaining-usd"] == "1.000000"


def test_what_a_request_used_beyond_its_estimate_delays_the_next() -> None:
    clocks = Clocks()
    limits = limits_of(clocks, web=limited(tokens=600))
    limits.settle("web", limits.admit("web", 100).reserved_tokens, 900, 0.0)
    error = refused(limits, "web", 100)
    assert (error.code, error.headers["retry-after"]) == ("tokens_per_minute_exceeded", "40")
    assert error.headers["x-ratelimit-remaining-tokens"] == "0"
    clocks.move(40)
    limits.admit("web", 100)


def test_a_request_larger_than_the_whole_minute_is_told_so_and_not_to_wait() -> None:
    limits = limits_of(Clocks(), web=limited(requests=5, tokens=1000))
    error = refused(limits, "web", 1001)
    assert (error.status, error.kind, error.code) == (413, "invalid_request_error", "request_too_large")
    assert "1001" in str(error)
    assert "1000" in str(error)
    assert "retry-after" not in error.headers
    assert shown(limits.admit("web", 1000))["x-ratelimit-remaining-requests"] == "4"


def test_a_used_up_budget_is_refused_until_the_month_ends() -> None:
    clocks = Clocks()
    limits = limits_of(clocks, web=limited(usd=2.5))
    limits.settle("web", limits.admit("web", 0).reserved_tokens, 10, 2.0)
    assert shown(limits.admit("web", 0))["x-lockgate-budget-remaining-usd"] == "0.500000"
    limits.settle("web", 0, 10, 0.75)
    error = refused(limits, "web", 0)
    assert (error.status, error.kind, error.code) == (429, "insufficient_quota", "budget_exceeded")
    assert str(error) == "Key web has used up its budget of $2.5 for 2026-03 (UTC)."
    assert error.headers == {
        "x-lockgate-budget-remaining-usd": "0.000000",
        "x-should-retry": "false",
        "retry-after": str(36 * 3600),
    }
    clocks.move(36 * 3600)
    assert shown(limits.admit("web", 0))["x-lockgate-budget-remaining-usd"] == "2.500000"


def test_a_budget_goes_on_from_what_was_spent_before_the_start() -> None:
    asked = []

    def spent_usd(key: str, month: str) -> float:
        asked.append((key, month))
        return 3.0

    limits = limits_of(Clocks(), spent_usd, web=limited(usd=3.0), batch=limited(usd=4.0), free=limited())
    assert asked == [("web", "2026-03"), ("batch", "2026-03")]
    assert refused(limits, "web", 0).code == "budget_exceeded"
    assert shown(limits.admit("batch", 0))["x-lockgate-budget-remaining-usd"] == "1.000000"


def test_keys_do_not_use_each_others_limits() -> None:
    limits = limits_of(
        Clocks(), web=limited(requests=1, tokens=5, usd=1), batch=limited(requests=1, tokens=5)
    )
    limits.settle("web", limits.admit("web", 5).reserved_tokens, 5, 9.0)
    refused(limits, "web", 5)
    limits.admit("batch", 5)


def test_an_update_keeps_what_was_used_of_limits_that_stay() -> None:
    clocks = Clocks()
    limits = limits_of(clocks, web=limited(requests=2, tokens=100, usd=1.0), gone=limited(requests=1))
    limits.settle("web", limits.admit("web", 60).reserved_tokens, 60, 0.25)
    limits.update({"web": limited(requests=5, tokens=100, usd=1.0), "new": limited(requests=7)})
    assert shown(limits.admit("web", 0)) == {
        "x-ratelimit-limit-requests": "5",
        "x-ratelimit-remaining-requests": "4",
        "x-ratelimit-reset-requests": "12s",
        "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-tokens": "40",
        "x-ratelimit-reset-tokens": "36s",
        "x-lockgate-budget-remaining-usd": "0.750000",
    }
    assert shown(limits.admit("new", 0))["x-ratelimit-remaining-requests"] == "6"
    assert limits.admit("gone", 0).headers() == []


def test_an_update_of_the_budget_keeps_what_was_spent() -> None:
    limits = limits_of(Clocks(), web=limited(usd=1.0))
    limits.settle("web", 0, 0, 0.75)
    limits.update({"web": limited(usd=0.5)})
    assert refused(limits, "web", 0).code == "budget_exceeded"
    limits.update({"web": limited(usd=2.0)})
    assert shown(limits.admit("web", 0))["x-lockgate-budget-remaining-usd"] == "1.250000"


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (1, "1ms"),
        (6_000_000, "6ms"),
        (999_000_000, "999ms"),
        (999_000_001, "1s"),
        (61_500_000_000, "1m2s"),
        (360 * SECOND_NS, "6m0s"),
        (3_605 * SECOND_NS, "1h0m5s"),
        (86_400 * SECOND_NS, "24h0m0s"),
    ],
)
def test_durations_are_in_openais_form_and_rounded_up(nanoseconds: int, text: str) -> None:
    assert duration(nanoseconds) == text


@given(st.lists(st.tuples(st.floats(0, 40), st.integers(0, 80)), max_size=40))
def test_who_waits_for_retry_after_is_let_in(asked: list[tuple[float, int]]) -> None:
    clocks = Clocks()
    limits = limits_of(clocks, web=limited(requests=7, tokens=80))
    for pause_s, tokens in asked:
        clocks.move(pause_s)
        try:
            limits.admit("web", tokens)
        except RequestError as error:
            wait_s = int(error.headers["retry-after"])
            assert 1 <= wait_s <= 60
            clocks.move(wait_s)
            limits.admit("web", tokens)
