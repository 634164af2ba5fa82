"""What each key may use: requests and tokens a minute, USD a month."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import msgspec

from gateway.errors import RequestError
from gateway.settings import AuthKey
from policies.monthly_budget import MonthlyBudget, month_of
from policies.token_bucket import TokenBucket

_NS_PER_S = 1_000_000_000

SpentUsd = Callable[[str, str], float]
"""(a key's name, a month in UTC as "2026-03") -> what the key has spent in it so far, in USD."""


def nothing_spent(key: str, month: str) -> float:
    """For when nobody keeps books."""
    return 0.0


class Standing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a key stands with one limit. The bucket is full again `reset_ns` after."""

    limit: int
    remaining: int
    reset_ns: int


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was let in. `reserved_tokens` is what to hand back to `Limits.settle`."""

    reserved_tokens: int
    requests: Standing | None = None
    tokens: Standing | None = None
    budget_remaining_usd: float | None = None

    def headers(self) -> list[tuple[bytes, bytes]]:
        """OpenAI's headers (https://platform.openai.com/docs/guides/rate-limits), as the key stood when the
        request was let in, and `x-lockgate-budget-remaining-usd`, without the request's own cost. Of limits
        that the key has not there are none."""
        found = []
        for name, standing in ((b"requests", self.requests), (b"tokens", self.tokens)):
            if standing is not None:
                found += [
                    (b"x-ratelimit-limit-" + name, b"%d" % standing.limit),
                    (b"x-ratelimit-remaining-" + name, b"%d" % standing.remaining),
                    (b"x-ratelimit-reset-" + name, duration(standing.reset_ns).encode()),
                ]
        if self.budget_remaining_usd is not None:
            found.append((b"x-lockgate-budget-remaining-usd", b"%.6f" % self.budget_remaining_usd))
        return found


class _Key:
    """The limits of one key and where it stands with them."""

    __slots__ = ("budget", "name", "requests", "tokens")

    def __init__(
        self,
        name: str,
        requests: TokenBucket | None,
        tokens: TokenBucket | None,
        budget: MonthlyBudget | None,
    ) -> None:
        self.name = name
        self.requests = requests
        self.tokens = tokens
        self.budget = budget

    def admission(self, reserved_tokens: int, now_ns: int, now_s: float) -> Admission:
        return Admission(
            reserved_tokens=reserved_tokens,
            requests=_standing(self.requests, now_ns),
            tokens=_standing(self.tokens, now_ns),
            budget_remaining_usd=self.budget.remaining_usd(now_s) if self.budget else None,
        )


class Limits:
    """Held in memory, for one process: buckets are full after a start, budgets go on from `spent_usd`.

    Not thread-safe: for the event loop. Each admitted request must be settled once, however it ended.
    What is under way when a budget runs out is still answered, so a key may overspend by that much.
    """

    def __init__(
        self,
        keys: Mapping[str, AuthKey],
        *,
        spent_usd: SpentUsd = nothing_spent,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._spent_usd = spent_usd
        self._monotonic_ns = monotonic_ns
        self._wall_s = wall_s
        self._keys: dict[str, _Key] = {}
        self.update(keys)

    def update(self, keys: Mapping[str, AuthKey]) -> None:
        """Takes other keys and limits over. Where a limit stays as it was, what was used of it stays too.
        Reads what the keys have spent, so it may block."""
        now_ns, now_s = self._monotonic_ns(), self._wall_s()
        self._keys = {name: self._key(name, key, now_ns, now_s) for name, key in keys.items()}

    def admit(self, key: str, estimated_tokens: int) -> Admission:
        """Lets a request in and reserves its tokens, or raises RequestError and takes nothing: 429 with
        `retry-after` beyond a limit, 413 when the key's whole minute would not do. A key that is not known
        has no limits."""
        state = self._keys.get(key)
        if state is None:
            return Admission(reserved_tokens=estimated_tokens)
        now_ns, now_s = self._monotonic_ns(), self._wall_s()
        wait_for_tokens_ns = state.tokens.wait_ns(estimated_tokens, now_ns) if state.tokens else 0
        if wait_for_tokens_ns is None:
            raise _too_large(state, estimated_tokens)
        if state.budget and not state.budget.remaining_usd(now_s):
            raise _over_budget(state, state.budget, state.admission(0, now_ns, now_s), now_s)
        wait_for_request_ns = (state.requests.wait_ns(1, now_ns) if state.requests else 0) or 0
        if wait_for_tokens_ns or wait_for_request_ns:
            told = state.admission(0, now_ns, now_s)
            if wait_for_request_ns >= wait_for_tokens_ns:
                raise _too_many(state, "requests", told.requests, wait_for_request_ns, told)
            raise _too_many(state, "tokens", told.tokens, wait_for_tokens_ns, told)
        if state.requests:
            state.requests.take(1, now_ns)
        if state.tokens:
            state.tokens.take(estimated_tokens, now_ns)
        return state.admission(estimated_tokens, now_ns, now_s)

    def settle(self, key: str, reserved: int, actual_tokens: int, cost_usd: float) -> None:
        """Corrects the reservation to what the request used: nothing, of either, for an answer from the
        cache or none at all. The request itself has counted."""
        state = self._keys.get(key)
        if state is None:
            return
        if state.tokens:
            state.tokens.settle(reserved, actual_tokens, self._monotonic_ns())
        if state.budget and cost_usd:
            state.budget.spend(cost_usd, self._wall_s())

    def _key(self, name: str, key: AuthKey, now_ns: int, now_s: float) -> _Key:
        before = self._keys.get(name)
        budget = None
        if key.budget_usd_per_month is not None:
            budget = before.budget if before else None
            if budget is None:
                spent_usd = self._spent_usd(name, month_of(now_s))
                budget = MonthlyBudget(limit_usd=key.budget_usd_per_month, spent_usd=spent_usd, now_s=now_s)
            budget.limit_usd = key.budget_usd_per_month
        return _Key(
            name,
            _bucket(before.requests if before else None, key.requests_per_minute, now_ns),
            _bucket(before.tokens if before else None, key.tokens_per_minute, now_ns),
            budget,
        )


def duration(nanoseconds: int) -> str:
    """As in OpenAI's headers: "0s", "6ms", "12s", "1m2s", "1h0m5s". Rounded up."""
    if nanoseconds <= 0:
        return "0s"
    milliseconds = -(-nanoseconds // 1_000_000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, seconds = divmod(-(-milliseconds // 1000), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def _bucket(before: TokenBucket | None, per_minute: int | None, now_ns: int) -> TokenBucket | None:
    if per_minute is None:
        return None
    if before and before.per_minute == per_minute:
        return before
    return TokenBucket(per_minute=per_minute, now_ns=now_ns)


def _standing(bucket: TokenBucket | None, now_ns: int) -> Standing | None:
    if bucket is None:
        return None
    return Standing(
        limit=bucket.per_minute, remaining=bucket.remaining(now_ns), reset_ns=bucket.full_in_ns(now_ns)
    )


def _too_many(key: _Key, what: str, standing: Standing | None, wait_ns: int, told: Admission) -> RequestError:
    limit = standing.limit if standing else 0
    return RequestError(
        f"Key {key.name} has used its {limit} {what} per minute. Try again in {duration(wait_ns)}.",
        status=429,
        kind="rate_limit_exceeded",
        code=f"{what}_per_minute_exceeded",
        headers=_headers(told, wait_ns / _NS_PER_S),
    )


def _too_large(key: _Key, estimated_tokens: int) -> RequestError:
    limit = key.tokens.per_minute if key.tokens else 0
    return RequestError(
        f"The request needs about {estimated_tokens} tokens; key {key.name} may use {limit} per minute. "
        "Ask for less (max_tokens counts), or in parts.",
        status=413,
        code="request_too_large",
    )


def _over_budget(key: _Key, budget: MonthlyBudget, told: Admission, now_s: float) -> RequestError:
    headers = _headers(told, budget.ends_in_s(now_s))
    return RequestError(
        f"Key {key.name} has used up its budget of ${budget.limit_usd:g} for {month_of(now_s)} (UTC).",
        status=429,
        kind="insufficient_quota",
        code="budget_exceeded",
        # The OpenAI and Anthropic clients would try twice again at once otherwise.
        headers=headers | {"x-should-retry": "false"},
    )


def _headers(told: Admission, wait_s: float) -> dict[str, str]:
    shown = {name.decode(): value.decode() for name, value in told.headers()}
    return shown | {"retry-after": str(max(1, math.ceil(wait_s)))}
