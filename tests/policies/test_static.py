"""The static policy, and the exact one beside it."""

from __future__ import annotations

import pytest

from policies.exact import ExactPolicy
from policies.static import StaticPolicy
from policies.types import Candidate, Identity

IDENTITY = Identity(exact_key=b"k", partition=b"p", text="asked")


def candidate(similarity: float, entry_id: int = 1, text: str = "cached") -> Candidate:
    return Candidate(entry_id=entry_id, similarity=similarity, text=text, created_at=0.0)


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


def test_a_contrast_is_refused_however_near_and_the_next_entry_is_looked_at() -> None:
    asked = Identity(exact_key=b"k", partition=b"p", text="turn dark mode on")
    off = candidate(0.99, 1, "turn dark mode off")
    verdict = StaticPolicy(0.9).judge(asked, [off], now=0.0)
    assert verdict.candidate is None
    assert verdict.reason == "similarity 0.990, but they name opposites"
    on = candidate(0.95, 2, "please turn dark mode on")
    assert StaticPolicy(0.9).judge(asked, [off, on], now=0.0).candidate == on
    far = candidate(0.85, 3, "dark mode on")
    assert StaticPolicy(0.9).judge(asked, [off, far], now=0.0).reason.endswith("they name opposites")


def test_nothing_near() -> None:
    assert StaticPolicy(0.9).judge(IDENTITY, [], now=0.0).candidate is None


def test_no_cosine_no_policy() -> None:
    with pytest.raises(ValueError, match="cosine"):
        StaticPolicy(1.5)


def test_exact_never_serves_by_similarity() -> None:
    assert ExactPolicy().judge(IDENTITY, [candidate(1.0)], now=0.0).candidate is None
