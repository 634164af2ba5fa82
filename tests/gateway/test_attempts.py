"""Retries, fallbacks, hedges and breakers of one request."""

from __future__ import annotations

import asyncio

import pytest

from backends.errors import (
    ApiMissing,
    BackendError,
    BackendResting,
    EngineUnavailable,
    InvalidCall,
    Overloaded,
    UpstreamCut,
    UpstreamInvalid,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.attempts import BACKOFF_BASE_S, BACKOFF_MAX_S, Candidate, Progress, Resilience
from gateway.errors import RequestError
from policies.breaker import CircuitBreaker
from tests.gateway.attempt_cases import Scripted, Trial, refused


def backend(*outcomes: BackendError | str, name: str = "a", broken: BackendError | None = None) -> Scripted:
    return Scripted(name=name, outcomes=list(outcomes), broken=broken)


def fragile() -> CircuitBreaker:
    """Opens at the first failure and stays open."""
    return CircuitBreaker(min_attempts=1, cooldown_s=1000.0)


def probing() -> CircuitBreaker:
    """Opens at the first failure and lets a probe in at once."""
    return CircuitBreaker(min_attempts=1, cooldown_s=1e-9)


async def test_an_answer_at_once_is_one_attempt() -> None:
    trial = Trial(backend("ok"))
    assert await trial.run() == b"12"
    assert trial.outcomes == ["a ok"]
    assert trial.progress.answering is not None
    assert trial.progress.answering.model == "m-a"
    assert trial.progress.headers == {"x-from": "a"}
    assert trial.progress.requests == 1


@pytest.mark.parametrize(
    "error",
    [
        UpstreamUnreachable("nobody"),
        UpstreamCut("broke off"),
        refused(408),
        refused(502),
        refused(503),
        refused(504),
        refused(529),
        refused(429, "0"),
    ],
)
async def test_what_may_pass_is_tried_again(error: BackendError) -> None:
    trial = Trial(backend(error, "ok"))
    assert await trial.run() == b"12"
    assert len(trial.outcomes) == 2
    assert len(trial.slept) == 1


@pytest.mark.parametrize(
    "error",
    [
        refused(400),
        refused(401),
        refused(404),
        refused(500),
        refused(429),
        UpstreamTimeout("late"),
        UpstreamInvalid("html"),
        Overloaded("full", retry_after_s=1.0),
        EngineUnavailable("restarting"),
    ],
)
async def test_what_will_not_pass_is_not_tried_again(error: BackendError) -> None:
    trial = Trial(backend(error, "ok"))
    with pytest.raises(type(error)) as caught:
        await trial.run()
    assert caught.value is error
    assert (trial.backends[0].asked, trial.slept) == (1, [])


async def test_retries_end_with_the_last_error() -> None:
    last = refused(504)
    trial = Trial(backend(UpstreamUnreachable("nobody"), refused(503), last))
    with pytest.raises(UpstreamRejected) as caught:
        await trial.run()
    assert caught.value is last
    assert trial.outcomes == ["a unreachable", "a 503", "a 504"]


async def test_without_retries_there_is_one_attempt() -> None:
    trial = Trial(backend(refused(503)), retries=0)
    with pytest.raises(UpstreamRejected):
        await trial.run()
    assert trial.backends[0].asked == 1


async def test_after_the_first_part_nothing_is_tried_again() -> None:
    trial = Trial(backend("cut", broken=UpstreamCut("broke off")), backend("ok", name="b"))
    answer = trial.attempts.stream(trial.candidates, trial.progress)
    assert (await anext(answer)).data == b"1"
    with pytest.raises(UpstreamCut):
        await anext(answer)
    assert [one.asked for one in trial.backends] == [1, 0]


async def test_pauses_are_jitter_below_a_bound_that_doubles() -> None:
    bounds: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        bounds.append((low, high))
        return high / 2

    trial = Trial(backend(refused(503)), retries=6, uniform=uniform)
    with pytest.raises(UpstreamRejected):
        await trial.run()
    assert bounds[:6] == [(0.0, min(BACKOFF_MAX_S, BACKOFF_BASE_S * 2**n)) for n in range(6)]
    assert trial.slept == [high / 2 for _, high in bounds[:6]]


async def test_not_before_the_server_says() -> None:
    trial = Trial(backend(refused(429, "3.5"), "ok"), uniform=lambda low, high: low)
    await trial.run()
    assert trial.slept == [3.5]


@pytest.mark.parametrize("far", ["60", "Wed, 21 Oct 2065 07:28:00 GMT", "soon"])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_says_much_later_is_given_up_at_once(far: str, status: int) -> None:
    trial = Trial(backend(refused(status, far), "ok"), backend("ok", name="b"))
    assert await trial.run() == b"12"
    assert trial.outcomes == [f"a {status}", "b ok"]
    assert trial.slept == []


async def test_no_pause_reaches_beyond_the_deadline() -> None:
    trial = Trial(backend(refused(503, "2")), total_s=1.0)
    with pytest.raises(UpstreamRejected):
        await trial.run()
    assert (trial.backends[0].asked, trial.slept) == (1, [])


async def test_the_deadline_is_one_for_all_attempts() -> None:
    trial = Trial(backend(refused(503)), backend("ok", name="b"), retries=3)
    await trial.run()
    deadlines = {at for one in trial.backends for at in one.deadlines}
    assert len(deadlines) == 1


async def test_past_the_deadline_no_other_model_is_asked() -> None:
    trial = Trial(backend(UpstreamTimeout("late")), backend("ok", name="b"), total_s=0.0, breaker=fragile)
    with pytest.raises(UpstreamTimeout):
        await trial.run()
    assert trial.backends[1].asked == 0


@pytest.mark.parametrize(
    "error",
    [
        UpstreamUnreachable("nobody"),
        UpstreamTimeout("late"),
        UpstreamInvalid("html"),
        Overloaded("full", retry_after_s=1.0),
        EngineUnavailable("restarting"),
        refused(429),
        refused(500),
        refused(503),
    ],
)
async def test_another_model_answers_for_one_that_fails(error: BackendError) -> None:
    trial = Trial(backend(error), backend("ok", name="b"), retries=0)
    assert await trial.run() == b"12"
    assert [one.asked for one in trial.backends] == [1, 1]
    assert trial.progress.answering is not None
    assert trial.progress.answering.backend.name == "b"


@pytest.mark.parametrize("error", [refused(400), refused(401), refused(422)])
async def test_the_fault_of_a_request_is_no_reason_to_ask_another_model(error: BackendError) -> None:
    trial = Trial(backend(error), backend("ok", name="b"))
    with pytest.raises(UpstreamRejected):
        await trial.run()
    assert trial.backends[1].asked == 0


async def test_retries_leave_each_fallback_its_turn() -> None:
    trial = Trial(
        backend(refused(503)), backend(refused(503), name="b"), backend(refused(503), name="c"), retries=3
    )
    with pytest.raises(UpstreamRejected):
        await trial.run()
    assert [one.asked for one in trial.backends] == [2, 1, 1]


async def test_more_fallbacks_than_retries_are_all_asked() -> None:
    trial = Trial(*(backend(refused(503), name=name) for name in "abcd"), retries=0)
    with pytest.raises(UpstreamRejected):
        await trial.run()
    assert [one.asked for one in trial.backends] == [1, 1, 1, 1]


async def test_an_api_that_is_missing_is_asked_for_in_another_form_at_once() -> None:
    trial = Trial(backend(ApiMissing("no responses"), "ok"))
    assert await trial.run() == b"12"
    assert trial.outcomes == ["a no-such-api", "a ok"]
    assert trial.slept == [0.0]


async def test_an_answer_without_a_part_is_invalid() -> None:
    trial = Trial(backend("empty"), backend("ok", name="b"))
    assert await trial.run() == b"12"
    assert trial.outcomes == ["a empty", "b ok"]


async def test_a_fallback_that_cannot_serve_the_request_leaves_the_error_as_it_was() -> None:
    """A request that the fallback's API cannot express is no fault of the client: its own model can."""

    def refuse(*_: object) -> None:
        raise RequestError("logprobs: cannot be asked of messages")

    error = refused(503)
    for cannot in (refuse, _invalid):
        trial = Trial(backend(error), backend("ok", name="b"), retries=0)
        first, second = trial.candidates
        other = Candidate(model="m-b", backend=second.backend, open=cannot)  # type: ignore[arg-type]
        with pytest.raises(UpstreamRejected) as caught:
            async for _ in trial.attempts.stream([first, other], trial.progress):
                pass
        assert caught.value is error
        assert trial.progress.requests == 1


def _invalid(*_: object) -> None:
    raise InvalidCall("cannot answer this API", param="model")


async def test_a_request_that_its_own_model_cannot_serve_is_refused() -> None:
    trial = Trial(backend("ok"), backend("ok", name="b"), breaker=probing)
    first, second = trial.candidates
    cannot = Candidate(model="m-a", backend=first.backend, open=_invalid)  # type: ignore[arg-type]
    with pytest.raises(InvalidCall):
        async for _ in trial.attempts.stream([cannot, second], trial.progress):
            pass
    assert trial.backends[1].asked == 0


# The breaker.


async def test_a_backend_that_fails_too_often_rests_and_is_not_asked() -> None:
    trial = Trial(backend(refused(500), "ok"), breaker=fragile)
    with pytest.raises(UpstreamRejected):
        await trial.run()
    with pytest.raises(BackendResting) as caught:
        await trial.run()
    assert trial.backends[0].asked == 1
    assert trial.outcomes == ["a resting"]
    assert trial.progress.requests == 0
    assert 0.0 < caught.value.retry_after_s <= 1000.0


async def test_while_a_backend_rests_another_answers_at_once() -> None:
    trial = Trial(backend(refused(500)), backend("ok", name="b"), breaker=fragile)
    await trial.run()
    assert await trial.run() == b"12"
    assert trial.outcomes == ["a resting", "b ok"]
    assert trial.slept == []


@pytest.mark.parametrize(
    "error", [refused(400), refused(401), refused(429), Overloaded("full", retry_after_s=1.0)]
)
async def test_refusals_of_a_request_do_not_count_against_a_backend(error: BackendError) -> None:
    trial = Trial(backend(error), breaker=fragile)
    for _ in range(3):
        with pytest.raises(type(error)):
            await trial.run()
    assert trial.backends[0].asked == 3


@pytest.mark.parametrize("error", [UpstreamTimeout("late"), UpstreamInvalid("html"), refused(500), "empty"])
async def test_failures_count_against_a_backend(error: BackendError | str) -> None:
    trial = Trial(backend(error), breaker=fragile)
    for _ in range(3):
        with pytest.raises(BackendError):
            await trial.run()
    assert trial.backends[0].asked == 1


async def test_an_answer_that_breaks_off_counts_against_a_backend() -> None:
    trial = Trial(backend("cut", broken=UpstreamCut("broke off")), breaker=fragile)
    with pytest.raises(UpstreamCut):
        await trial.run()
    with pytest.raises(BackendResting):
        await trial.run()


async def test_a_probe_that_succeeds_ends_the_rest() -> None:
    trial = Trial(backend(refused(500), "ok"), breaker=probing)
    with pytest.raises(UpstreamRejected):
        await trial.run()
    assert trial.breakers["a"].state(asyncio.get_running_loop().time()) == "half-open"
    assert await trial.run() == b"12"
    assert trial.breakers["a"].state(asyncio.get_running_loop().time()) == "closed"


async def test_one_probe_at_a_time() -> None:
    trial = Trial(backend(refused(500), "hang", "ok"), breaker=probing)
    with pytest.raises(UpstreamRejected):
        await trial.run()
    probe = asyncio.ensure_future(trial.run())
    await trial.backends[0].hanging.wait()
    with pytest.raises(BackendResting):
        await trial.run()
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    assert await trial.run() == b"12", "a probe that was cancelled leaves its place"


async def test_a_client_that_leaves_in_mid_answer_says_nothing_bad_of_the_backend() -> None:
    trial = Trial(backend("ok"), breaker=fragile)
    answer = trial.attempts.stream(trial.candidates, trial.progress)
    await anext(answer)
    await answer.aclose()
    assert trial.backends[0].cancelled == 1
    assert await trial.run() == b"12"


async def test_a_request_that_cannot_be_sent_leaves_the_place_of_a_probe() -> None:
    trial = Trial(backend(refused(500), "ok"), breaker=probing)
    with pytest.raises(UpstreamRejected):
        await trial.run()
    (candidate,) = trial.candidates
    cannot = Candidate(model="m-a", backend=candidate.backend, open=_invalid)  # type: ignore[arg-type]
    with pytest.raises(InvalidCall):
        async for _ in trial.attempts.stream([cannot], Progress()):
            pass
    assert trial.breakers["a"].state(asyncio.get_running_loop().time()) == "half-open", "nothing was proved"
    assert await trial.run() == b"12"


# Hedging.


async def test_hedging_is_off_by_default() -> None:
    assert Resilience().hedge_after_s is None


async def test_a_hedge_answers_for_a_slow_first_attempt_which_is_cancelled() -> None:
    trial = Trial(backend("hang"), backend("ok", name="b"), hedge_after_s=0.001)
    assert await trial.run() == b"12"
    assert trial.backends[0].cancelled == 1
    assert trial.outcomes == ["a cancelled", "b ok"]


async def test_a_hedge_without_a_fallback_asks_the_same_model_again() -> None:
    trial = Trial(backend("hang", "ok"), hedge_after_s=0.001)
    assert await trial.run() == b"12"
    assert (trial.backends[0].asked, trial.backends[0].cancelled) == (2, 1)


async def test_a_first_attempt_in_time_is_not_hedged() -> None:
    trial = Trial(backend("ok"), backend("ok", name="b"), hedge_after_s=30.0)
    assert await trial.run() == b"12"
    assert trial.backends[1].asked == 0


async def test_a_first_attempt_that_fails_in_time_is_not_waited_for() -> None:
    trial = Trial(backend(refused(500)), backend("ok", name="b"), hedge_after_s=30.0)
    assert await trial.run() == b"12"
    assert trial.outcomes == ["a 500", "b ok"]


async def test_a_hedge_that_fails_leaves_the_first_attempt_running() -> None:
    slow, failing = backend("hang"), backend(refused(503), name="b")
    trial = Trial(slow, failing, hedge_after_s=0.001)
    running = asyncio.ensure_future(trial.run())
    await slow.hanging.wait()
    while failing.asked == 0:  # noqa: ASYNC110 - the script has no event for it
        await asyncio.sleep(0)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert slow.cancelled == 1


async def test_a_budget_of_one_is_not_hedged() -> None:
    trial = Trial(backend("ok"), retries=0, hedge_after_s=0.0)
    assert await trial.run() == b"12"
    assert trial.backends[0].asked == 1


async def test_two_that_begin_at_once_leave_one_and_free_its_breaker() -> None:
    """The one that is not taken had proved its backend well: a probe's place is free again."""
    gate = asyncio.Event()

    class Gated(Scripted):
        async def _chunks(self, report):  # type: ignore[no-untyped-def]
            async for chunk in Scripted._chunks(self, report):
                await gate.wait()
                yield chunk

    a, b = Gated(name="a", outcomes=["ok"]), Gated(name="b", outcomes=["ok"])
    trial = Trial(a, b, hedge_after_s=0.001, breaker=probing)
    for breaker in trial.breakers.values():
        breaker.record(asyncio.get_running_loop().time(), failed=True)
    running = asyncio.ensure_future(trial.run())
    while b.asked == 0:  # noqa: ASYNC110 - the script has no event for it
        await asyncio.sleep(0)
    gate.set()
    assert await running == b"12"
    now = asyncio.get_running_loop().time()
    assert [one.wait_s(now) for one in trial.breakers.values()] == [0.0, 0.0]


async def test_a_client_that_leaves_cancels_both_attempts() -> None:
    a, b = backend("hang"), backend("hang", name="b")
    trial = Trial(a, b, hedge_after_s=0.001)
    running = asyncio.ensure_future(trial.run())
    await a.hanging.wait()
    await b.hanging.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (a.cancelled, b.cancelled) == (1, 1)
    assert sorted(trial.outcomes) == ["a cancelled", "b cancelled"]


async def test_a_hedge_counts_in_the_budget() -> None:
    trial = Trial(backend(refused(503)), backend(refused(503), name="b"), retries=2, hedge_after_s=0.0)
    with pytest.raises(UpstreamRejected):
        await trial.run()
    assert sum(one.asked for one in trial.backends) <= 3


@pytest.mark.parametrize(
    "error",
    [
        UpstreamUnreachable("broke off"),
        UpstreamCut("cut"),
        UpstreamTimeout("late"),
        UpstreamInvalid("odd"),
        refused(500),
        refused(502),
        refused(504),
    ],
)
async def test_what_changes_the_upstream_is_asked_once_when_it_may_have_arrived(error: BackendError) -> None:
    trial = Trial(backend(error, "ok"), backend("ok", name="b"), retries=3)
    with pytest.raises(type(error)):
        await trial.run(repeatable=False)
    assert trial.progress.requests == 1


@pytest.mark.parametrize("error", [UpstreamUnreachable("refused", sent=False), refused(503), refused(529)])
async def test_what_changes_the_upstream_is_asked_again_when_it_cannot_have(error: BackendError) -> None:
    trial = Trial(backend(error, "ok"), retries=3)
    assert await trial.run(repeatable=False) == b"12"


async def test_what_changes_the_upstream_is_never_hedged() -> None:
    first, second = backend("ok"), backend("ok", name="b")
    trial = Trial(first, second, hedge_after_s=0.0)
    await trial.run(repeatable=False)
    assert (first.asked, second.asked) == (1, 0)
