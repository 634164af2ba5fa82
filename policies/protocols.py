"""Plug-points of the decisions. Structural: an implementation need not import these names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from policies.types import Candidate, Identity, Query, Verdict, Verification


class CachePolicy(Protocol):
    """Says whether one of the nearest entries may answer the question."""

    def judge(
        self, identity: Identity, candidates: Sequence[Candidate], now: float, *, in_flight: bool = False
    ) -> Verdict:
        """`candidates` are ordered by similarity, highest first, all from the identity's partition and
        unexpired. `now` is in Unix seconds. Called once for each request that may be answered by similarity,
        without candidates too; `in_flight`: a second look of the same request, at answers that are still
        being made, whose ids name no entries."""
        ...


class Verifier(Protocol):
    """Says how likely it is that one answer serves two questions. Calibrated for one embedding space."""

    @property
    def space(self) -> str:
        """The embedding space of the similarities that its probabilities were calibrated on."""
        ...

    def verify(self, asked: str, cached: str, similarity: float) -> Verification:
        """`similarity` is the cosine of the two texts' vectors in `space`."""
        ...


class RoutingPolicy(Protocol):
    """Scores a question. The threshold is applied outside, so it can be calibrated."""

    def score(self, query: Query) -> float:
        """Expected gain of the large model over the small one, mapped to [0, 1]; .5 is no gain."""
        ...
