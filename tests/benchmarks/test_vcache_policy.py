"""The peer's method that `cache_policies` compares with."""

from __future__ import annotations

import random

import pytest

from benchmarks.vcache_policy import LEAST_OBSERVATIONS, VCachePolicy, fitted
from policies.types import Candidate, Identity

SEEDED = [(0.0, False), (1.0, True)]
ASKED = Identity(exact_key=b"", partition=b"", text="q")


def near(similarity: float) -> Candidate:
    return Candidate(entry_id=1, similarity=similarity, text="q", created_at=0.0)


def test_the_threshold_lies_between_what_was_wrong_and_what_was_right() -> None:
    outcomes = [*SEEDED, *((0.7, False), (0.75, False), (0.9, True), (0.95, True))] * 3
    slope, threshold, spread = fitted(outcomes)
    assert 0.75 < threshold < 0.9
    assert slope > 10
    assert 0 < spread < 0.2


def test_more_outcomes_make_the_threshold_surer() -> None:
    few = [*SEEDED, (0.7, False), (0.8, True), (0.75, True), (0.78, False)]
    assert fitted(few * 20)[2] < fitted(few)[2]


def test_it_explores_until_it_knows_enough_of_an_entry_and_then_serves_the_better_the_oftener() -> None:
    policy = VCachePolicy(max_error_rate=0.05, random=random.Random(1).random)
    for _ in range(LEAST_OBSERVATIONS - len(SEEDED)):
        assert policy.judge(ASKED, [near(0.95)], 0.0).candidate is None
        assert policy.considered is not None
        policy.learn(1, 0.95, right=True)
    for similarity, right in [(0.6, False), (0.95, True)] * 40:
        policy.learn(1, similarity, right=right)

    def served(similarity: float) -> int:
        verdicts = (policy.judge(ASKED, [near(similarity)], 0.0) for _ in range(200))
        return sum(verdict.candidate is not None for verdict in verdicts)

    assert served(0.97) > 2 * served(0.7)
    assert served(0.97) > 100


@pytest.mark.parametrize("similarity", [-1.0, 0.0, 0.5, 1.0])
def test_without_an_allowance_nothing_is_served(similarity: float) -> None:
    policy = VCachePolicy(max_error_rate=0.0, random=random.Random(1).random)
    policy.judge(ASKED, [near(similarity)], 0.0)
    for _ in range(20):
        policy.learn(1, 0.9, right=True)
    assert all(policy.judge(ASKED, [near(similarity)], 0.0).candidate is None for _ in range(50))


def test_an_empty_cache_serves_nothing() -> None:
    policy = VCachePolicy(max_error_rate=0.05, random=random.Random(1).random)
    assert policy.judge(ASKED, [], 0.0).candidate is None
    assert policy.considered is None
