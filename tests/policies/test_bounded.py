"""The bounded policy, decision by decision."""

from __future__ import annotations

from random import Random
from typing import Literal

import msgspec
import pytest

from policies.bounded import MAX_RISK, SPENT, BoundedPolicy, PolicyState
from policies.calibration_curve import STEPS, Counts
from policies.contrast import SAME_VECTOR
from policies.risk_budget import STRETCH
from policies.types import Candidate, Observation
from tests.policies.bounded_streams import IDENTITY, NOW, FakeVerifier, candidate

EXACT = Counts(
    wrong=tuple(1000 * 2 ** -((k + 0.5) / 2) for k in range(STEPS)),
    right=tuple(1000 * (1 - 2 ** -((k + 0.5) / 2)) for k in range(STEPS)),
)
"""Of a verifier that is right about itself, as far as a thousand outcomes in each step can tell."""
SURE, MIDDLING, DOUBTFUL, HOPELESS = 0.9999, 0.96, 0.9, 0.3
"""Their risks at first: below .005, about .07, about .17, above .7."""


def policy(
    max_error_rate: float = 0.01, *, explore_share: float = 0.0, quiet: int = 0, seed: int = 0
) -> BoundedPolicy:
    """After `quiet` requests with nothing near, whose allowance is in the account."""
    one = BoundedPolicy(
        FakeVerifier(),
        max_error_rate=max_error_rate,
        random=Random(seed).random,
        counts=EXACT,
        explore_share=explore_share,
    )
    for _ in range(quiet):
        one.judge(IDENTITY, [], NOW)
    return one


def seen(
    probability: float,
    right: bool,
    source: Literal["feedback", "verification", "exploration"] = "verification",
    entry_id: int = 1,
) -> Observation:
    return Observation(entry_id=entry_id, probability=probability, right=right, source=source)


def test_a_new_entry_is_served_at_its_first_question() -> None:
    verdict = policy().judge(IDENTITY, [candidate(SURE, 7)], NOW)
    assert verdict.candidate is not None
    assert verdict.candidate.entry_id == 7
    assert verdict.risk is not None
    assert verdict.confidence == 1 - verdict.risk > 0.995


def test_the_reason_says_risk_probability_limit_and_what_spoke() -> None:
    verdict = policy().judge(IDENTITY, [candidate(SURE)], NOW)
    assert verdict.reason == f"risk {verdict.risk:.4f} (verifier 1.000) is within 0.0086; fake words"
    refused = policy().judge(IDENTITY, [candidate(DOUBTFUL)], NOW)
    assert (
        refused.reason
        == f"risk {refused.risk:.4f} (verifier 0.900) is above 0.0086, the greatest now; fake words"
    )
    assert (verdict.reason + refused.reason).isascii()


def test_it_begins_strict_and_serves_riskier_answers_when_requests_have_paid_for_them() -> None:
    assert policy().judge(IDENTITY, [candidate(MIDDLING)], NOW).candidate is None
    assert policy(quiet=1000).judge(IDENTITY, [candidate(MIDDLING)], NOW).candidate is not None


def test_what_is_served_is_paid_for() -> None:
    one = policy(quiet=1000)
    served = [one.judge(IDENTITY, [candidate(MIDDLING)], NOW) for _ in range(200)]
    risks = [verdict.risk for verdict in served if verdict.candidate is not None and verdict.risk is not None]
    assert 20 < len(risks) < 150
    assert sum(risks) <= SPENT * 0.01 * (STRETCH + 200)


def test_an_empty_account_says_so() -> None:
    verdict = policy().judge(IDENTITY, [candidate(SURE)], NOW, max_error_rate=0.0016)
    assert verdict.candidate is None
    assert (
        f"risk {verdict.risk:.4f} (verifier 1.000) is more than the error budget's 0.0014" in verdict.reason
    )


def test_the_candidate_of_least_risk_is_served_not_the_nearest() -> None:
    one = policy(quiet=1000)
    near = candidate(MIDDLING, 1)
    for _ in range(2):
        one.learn(seen(MIDDLING, right=False, source="feedback"))
    verdict = one.judge(IDENTITY, [near, candidate(0.955, 2)], NOW)
    assert verdict.candidate is not None
    assert verdict.candidate.entry_id == 2


def test_it_looks_no_further_than_a_candidate_whose_request_pays_for_it() -> None:
    class CountingFakeVerifier(FakeVerifier):
        calls = 0

        def verify(self, asked, cached, similarity, pair_score=None):  # type: ignore[no-untyped-def]
            self.calls += 1
            return super().verify(asked, cached, similarity)

    verifier = CountingFakeVerifier()
    one = BoundedPolicy(verifier, max_error_rate=0.01, random=Random(0).random, counts=EXACT)
    one.judge(IDENTITY, [candidate(SURE, 1), candidate(SURE, 2)], NOW)
    assert verifier.calls == 1
    one.judge(IDENTITY, [candidate(HOPELESS, 1), candidate(SURE, 2), candidate(SURE, 3)], NOW)
    assert verifier.calls == 3


def test_what_is_wrong_too_often_is_never_served_though_it_was_paid_for() -> None:
    verdict = policy(max_error_rate=0.1, quiet=5000).judge(IDENTITY, [candidate(0.6)], NOW)
    assert verdict.candidate is None
    assert f"is above {MAX_RISK:.4f}" in verdict.reason


def test_vectors_that_tell_nothing_apart_are_no_evidence() -> None:
    same = Candidate(entry_id=1, similarity=SAME_VECTOR, text="another text", created_at=NOW)
    verdict = policy(quiet=1000).judge(IDENTITY, [same], NOW)
    assert verdict.candidate is None
    assert verdict.reason == "similarity 1.000, but the embedder does not tell these texts apart"
    assert verdict.considered is None


def test_a_guarded_candidate_does_not_hide_the_next() -> None:
    same = Candidate(entry_id=1, similarity=SAME_VECTOR, text="another text", created_at=NOW)
    assert policy().judge(IDENTITY, [same, candidate(SURE, 2)], NOW).candidate is not None


@pytest.mark.parametrize("filler", ["word ", "a-b "])
def test_long_texts_that_differ_in_a_fact_are_not_compared(filler: str) -> None:
    asked = msgspec.structs.replace(IDENTITY, text="Send it weekly. " + filler * 60)
    verdict = policy().judge(asked, [candidate(SURE, text="Send it monthly. " + filler * 60)], NOW)
    assert verdict.candidate is None
    assert verdict.reason.endswith("they are long and differ in more than function words")
    equal = candidate(SURE, text="Do send it weekly. " + filler * 60)
    assert policy().judge(asked, [equal], NOW).candidate is not None


def test_nothing_near() -> None:
    verdict = policy().judge(IDENTITY, [], NOW)
    assert (verdict.candidate, verdict.reason) == (None, "nothing cached is comparable")
    assert verdict.confidence is None


def test_a_client_may_tighten_the_bound_and_not_loosen_it() -> None:
    one = policy(quiet=1000)
    tight = one.judge(IDENTITY, [candidate(MIDDLING)], NOW, max_error_rate=0.005)
    assert tight.candidate is None
    assert "is above 0.0050, the greatest for this request" in tight.reason
    assert one.judge(IDENTITY, [candidate(SURE)], NOW, max_error_rate=0.005).candidate is not None
    assert one.judge(IDENTITY, [candidate(SURE)], NOW, max_error_rate=0.0).candidate is None
    loose = [one.judge(IDENTITY, [candidate(p)], NOW, max_error_rate=0.9) for p in (MIDDLING, HOPELESS)]
    assert loose[0].candidate is not None
    assert loose[1].candidate is None


def test_a_tight_request_is_searched_for_a_candidate_that_suffices() -> None:
    one = policy(quiet=1000)
    near = [candidate(0.9985, 1), candidate(SURE, 2)]
    assert one.judge(IDENTITY, near, NOW).considered == near[0]
    assert one.judge(IDENTITY, near, NOW, max_error_rate=0.003).candidate == near[1]


def test_a_tight_request_pays_for_no_other() -> None:
    one = policy()
    for _ in range(1000):
        one.judge(IDENTITY, [], NOW, max_error_rate=0.0)
    assert one.judge(IDENTITY, [candidate(MIDDLING)], NOW).candidate is None


def test_a_second_look_of_the_same_request_pays_nothing_in() -> None:
    one = policy()
    for _ in range(1000):
        one.judge(IDENTITY, [candidate(HOPELESS)], NOW, in_flight=True)
    assert one.judge(IDENTITY, [candidate(MIDDLING)], NOW).candidate is None


def test_answers_in_flight_are_no_entries() -> None:
    one = policy(quiet=1000, explore_share=1.0)
    one.learn(seen(MIDDLING, right=False, source="feedback"))
    joined = one.judge(IDENTITY, [candidate(MIDDLING, 1)], NOW, in_flight=True)
    assert joined.candidate is not None
    assert not joined.compare


def test_a_share_of_the_undecided_is_explored() -> None:
    one = policy(quiet=1000, explore_share=1.0)
    verdict = one.judge(IDENTITY, [candidate(MIDDLING, 3)], NOW)
    assert verdict.candidate is None
    assert verdict.explored
    assert verdict.compare
    assert verdict.considered is not None
    assert verdict.considered.entry_id == 3
    assert "explored" in verdict.reason
    assert not verdict.keeps(right=True)
    assert verdict.keeps(right=False)
    sure = one.judge(IDENTITY, [candidate(SURE)], NOW)
    assert sure.candidate is not None
    only = one.judge(IDENTITY, [candidate(MIDDLING)], NOW, may_explore=False)
    assert only.candidate is not None


def test_exploring_costs_no_error() -> None:
    one = policy(quiet=100, explore_share=1.0)
    balances = [one.judge(IDENTITY, [candidate(MIDDLING)], NOW).candidate for _ in range(3000)]
    assert balances == [None] * 3000
    assert one.judge(IDENTITY, [candidate(MIDDLING)], NOW, may_explore=False).candidate is not None


def test_what_is_refused_is_worth_comparing_unless_it_is_hopeless() -> None:
    refused = policy().judge(IDENTITY, [candidate(DOUBTFUL)], NOW)
    assert (refused.candidate, refused.explored, refused.compare) == (None, False, True)
    assert refused.keeps(right=True)
    assert not policy().judge(IDENTITY, [candidate(HOPELESS)], NOW).compare
    some = policy(explore_share=0.1)
    compared = sum(some.judge(IDENTITY, [candidate(HOPELESS)], NOW).compare for _ in range(1000))
    assert 70 < compared < 130


def test_a_wrong_answer_bars_its_entry_there_and_below() -> None:
    one = policy(quiet=1000)
    one.learn(seen(MIDDLING, right=False, source="feedback"))
    assert one.judge(IDENTITY, [candidate(MIDDLING, 1)], NOW).risk > 0.2  # type: ignore[operator]
    assert one.judge(IDENTITY, [candidate(MIDDLING, 2)], NOW).candidate is not None
    one.forget([1])
    assert one.judge(IDENTITY, [candidate(MIDDLING, 1)], NOW).candidate is not None


def risk_of(one: BoundedPolicy, probability: float, entry_id: int = 99) -> float:
    risk = one.judge(IDENTITY, [candidate(probability, entry_id)], NOW).risk
    assert risk is not None
    return risk


def test_feedback_teaches_of_its_entry_only() -> None:
    one = policy()
    before = risk_of(one, MIDDLING)
    for entry_id in range(50):
        one.learn(seen(MIDDLING, right=False, source="feedback", entry_id=entry_id))
    assert risk_of(one, MIDDLING) == before
    assert one.notice() == ""


@pytest.mark.parametrize("source", ["verification", "exploration"])
def test_comparisons_teach_of_all_entries(source: Literal["verification", "exploration"]) -> None:
    one = policy()
    before = risk_of(one, MIDDLING)
    for entry_id in range(10):
        one.learn(seen(MIDDLING, right=False, source=source, entry_id=entry_id))
    assert risk_of(one, MIDDLING) > 1.5 * before
    assert "every risk counts" in one.notice()


def test_it_recovers_when_outcomes_agree_again() -> None:
    one = policy()
    before = risk_of(one, MIDDLING)
    for entry_id in range(10):
        one.learn(seen(MIDDLING, right=False, entry_id=entry_id))
    for entry_id in range(2000):
        one.learn(seen(MIDDLING, right=True, entry_id=100 + entry_id))
    assert one.notice() == ""
    assert risk_of(one, MIDDLING, 9999) < before


def test_what_was_learnt_outlives_a_restart() -> None:
    before = policy()
    for entry_id in range(10):
        before.learn(seen(MIDDLING, right=False, entry_id=entry_id))
    stored = msgspec.json.encode(before.state())
    after = policy()
    after.restore(msgspec.json.decode(stored, type=PolicyState))
    assert after.notice() == before.notice() != ""
    assert risk_of(after, SURE) == risk_of(before, SURE)
    assert risk_of(after, MIDDLING, 3) == risk_of(before, MIDDLING, 3)


def test_what_was_learnt_of_another_verifier_is_refused() -> None:
    state = msgspec.structs.replace(policy().state(), verifier="other")
    with pytest.raises(ValueError, match="'other', not 'fake weights'"):
        policy().restore(state)


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_a_rate_that_is_no_share(rate: float) -> None:
    with pytest.raises(ValueError, match="max_error_rate"):
        policy(max_error_rate=rate)


def test_no_error_allowed_is_nothing_served() -> None:
    one = policy(max_error_rate=0.0, quiet=1000)
    assert one.judge(IDENTITY, [candidate(SURE)], NOW).candidate is None


def test_a_verifier_that_says_nonsense_serves_nothing() -> None:
    class FakeNonsense(FakeVerifier):
        def verify(self, asked, cached, similarity, pair_score=None):  # type: ignore[no-untyped-def]
            return msgspec.structs.replace(
                super().verify(asked, cached, similarity), probability=float("nan")
            )

    one = BoundedPolicy(FakeNonsense(), max_error_rate=0.2, random=Random(0).random)
    for _ in range(500):
        assert one.judge(IDENTITY, [candidate(SURE)], NOW).candidate is None


def test_an_account_that_was_closed_goes_on_and_one_in_use_does_not() -> None:
    before = policy()
    for _ in range(100):
        before.judge(IDENTITY, [], NOW)
    assert before.state().balance == 0.0
    closed = before.state(closing=True)
    assert closed.balance == pytest.approx(100 * SPENT * before.max_error_rate)
    after = policy()
    after.restore(closed)
    assert after.state(closing=True).balance == pytest.approx(closed.balance)
    after.restore(msgspec.structs.replace(closed, balance=1e9))
    assert after.state(closing=True).balance <= 1000 * SPENT * before.max_error_rate + MAX_RISK


def test_what_is_explained_is_what_a_fresh_policy_would_do() -> None:
    one = policy()
    told = one.explain(IDENTITY, candidate(SURE))
    assert told["risk"] == pytest.approx(risk_of(one, SURE))
