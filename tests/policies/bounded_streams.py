"""Streams of questions whose truth is known, a verifier that says what it is told, a caller of the policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from policies.bounded import BoundedPolicy
from policies.calibration_curve import Counts, count
from policies.types import Candidate, Identity, Observation, Verdict, Verification

IDENTITY = Identity(exact_key=b"k", partition=b"p", text="asked")
NOW = 1_800_000_000.0


class FakeVerifier:
    """Reads its probability from the similarity s: 1 − (1 − s)²."""

    space = "fake"
    identity = "fake weights"

    def read_together(self, text: str) -> str:
        return text

    def verify(
        self, asked: str, cached: str, similarity: float, pair_score: float | None = None
    ) -> Verification:
        return Verification(probability=1 - (1 - similarity) ** 2, spoke=("fake words",))


def candidate(probability: float, entry_id: int = 1, text: str = "cached") -> Candidate:
    """One of which `FakeVerifier` says `probability`."""
    return Candidate(entry_id=entry_id, similarity=1 - math.sqrt(1 - probability), text=text, created_at=NOW)


class Asked(NamedTuple):
    """A request: its nearest entry (None: nothing is near), what the verifier says of it, and the truth."""

    entry_id: int | None
    probability: float
    right: bool


def doubts(random: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
    """Half of what is near is another question, half is more or less surely the same."""
    sure = random.beta(0.5, 6.0, size)
    other = random.beta(4.0, 1.0, size)
    return np.clip(np.where(random.random(size) < 0.5, sure, other), 1e-6, 0.999)


def stream(random: np.random.Generator, size: int, *, worse: float = 1.0, entries: int = 2000) -> list[Asked]:
    """60 % of the requests have something near. It is wrong `worse` times as often as the verifier says."""
    near = random.random(size) < 0.6
    doubt = doubts(random, size)
    wrong = random.random(size) < np.minimum(1.0, worse * doubt)
    ids = np.minimum(random.zipf(1.3, size), entries)
    return [
        Asked(int(entry) if is_near else None, 1 - float(d), not w)
        for is_near, entry, d, w in zip(near, ids, doubt, wrong, strict=True)
    ]


def shipped_counts(random: np.random.Generator, size: int = 20_000) -> Counts:
    """Of a verifier that is right about itself."""
    doubt = doubts(random, size)
    return count(zip((1 - doubt).tolist(), (random.random(size) >= doubt).tolist(), strict=True))


class Judges(Protocol):
    """What a stream is given to."""

    def judge(self, identity: Identity, candidates: Sequence[Candidate], now: float) -> Verdict: ...

    def learn(self, observation: Observation) -> None: ...


class Served(NamedTuple):
    """For each request in order: whether it was served, and whether wrongly."""

    hits: npt.NDArray[np.bool_]
    wrong: npt.NDArray[np.bool_]

    @property
    def hit_rate(self) -> float:
        return float(self.hits.mean())

    @property
    def error_rate(self) -> float:
        """Over all requests."""
        return float(self.wrong.mean())


def run(
    policy: Judges | BoundedPolicy,
    requests: Sequence[Asked],
    random: np.random.Generator,
    *,
    verify_share: float = 0.02,
    compares: bool = False,
) -> Served:
    """Verifies so many of the answers served, and compares what was explored; with `compares` everything that
    the policy would like to be compared."""
    hits, wrong = np.zeros(len(requests), bool), np.zeros(len(requests), bool)
    verified = random.random(len(requests)) < verify_share
    for at, (entry_id, probability, right) in enumerate(requests):
        near = [] if entry_id is None else [candidate(probability, entry_id)]
        verdict = policy.judge(IDENTITY, near, NOW)
        hits[at] = verdict.candidate is not None
        wrong[at] = hits[at] and not right
        if entry_id is None or verdict.probability is None:
            continue
        said = verdict.probability
        if hits[at] and verified[at]:
            policy.learn(Observation(entry_id=entry_id, probability=said, right=right, source="verification"))
        elif verdict.explored or (compares and verdict.compare):
            policy.learn(Observation(entry_id=entry_id, probability=said, right=right, source="exploration"))
    return Served(hits, wrong)
