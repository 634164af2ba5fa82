"""The static policy, and the exact one beside it."""

from __future__ import annotations

import pytest

from policies.exact import ExactPolicy
from policies.static import StaticPolicy
from policies.types import Candidate, Identity

IDENTITY = Identity(exact_key=b"k", partition=b"p", text="asked")


def candidate(similarity: float, entry_id: int = 1) -> Candidate:
    return Candidate(entry_id=entry_id, similarity=similarity, text="cached", created_at=0.0)


def test_serves_the_nearest_that_reaches_the_threshold() -> None:
    verdict = StaticPolicy(0.9).judge(IDENTITY, [candidate(0.95, 7), candidate(0.91, 8)], now=0.0)
    assert verdict.candidate is not None
    assert verdict.candidate.entry_id == 7
    assert verdict.reason == "similarity 0.950 reaches 0.900"


def test_a_similarity_equal_to_the_threshold_reaches_it() -> None:
    assert StaticPolicy(0.9).judge(IDENTITY, [candidate(0.9)], now=0.0).candidate is not None


def test_below_the_threshold_nothing_is_served() -> None:
    verdict = StaticPolicy(0.9).judge(IDENTITY, [candidate(0.8999)], now=0.0)
    assert verdict.candidate is None
    assert "below 0.900" in verdict.reason


def test_a_threshold_of_zero_is_a_threshold() -> None:
    assert StaticPolicy(0.0).judge(IDENTITY, [candidate(-0.1)], now=0.0).candidate is None
    assert StaticPolicy(0.0).judge(IDENTITY, [candidate(0.1)], now=0.0).candidate is not None


def test_nothing_near() -> None:
    assert StaticPolicy(0.9).judge(IDENTITY, [], now=0.0).candidate is None


def test_no_cosine_no_policy() -> None:
    with pytest.raises(ValueError, match="cosine"):
        StaticPolicy(1.5)


def test_exact_never_serves_by_similarity() -> None:
    assert ExactPolicy().judge(IDENTITY, [candidate(1.0)], now=0.0).candidate is None
