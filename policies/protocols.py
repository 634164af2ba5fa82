"""Plug-points of the decisions. Structural: an implementation need not import these names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from policies.types import Candidate, Identity, Observation, Query, Verdict, Verification


class CachePolicy(Protocol):
    """Says whether one of the nearest entries may answer the question."""

    def judge(
        self,
        identity: Identity,
        candidates: Sequence[Candidate],
        now: float,
        *,
        max_error_rate: float | None = None,
        may_explore: bool = True,
        in_flight: bool = False,
    ) -> Verdict:
        """`candidates` are ordered by similarity, highest first, all from the identity's partition and
        unexpired. `now` is in Unix seconds. Called once for each request that may be answered by similarity,
        without candidates too; `in_flight`: a second look of the same request, at answers that are still
        being made, whose ids name no entries. `max_error_rate` is the client's own, smaller than the
        policy's; `may_explore` is false for a client that takes a cached answer only."""
        ...

    def undecided(self, identity: Identity, candidates: Sequence[Candidate]) -> Mapping[int, tuple[str, str]]:
        """Of the candidates, those that a `pair_score` would help to judge, few: by entry id the two texts to
        be read together, (asked, cached). Ask before `judge`."""
        ...


class LearningPolicy(CachePolicy, Protocol):
    """A cache policy that outcomes change."""

    def learn(self, observation: Observation) -> None: ...

    def forget(self, entry_ids: Iterable[int]) -> None:
        """Entries that are gone. What is not told is forgotten in time."""
        ...

    def notice(self) -> str:
        """Empty unless outcomes contradict what is promised; then what was seen and what is done."""
        ...


class Verifier(Protocol):
    """Says how likely it is that one answer serves two questions. Calibrated for one embedding space."""

    @property
    def space(self) -> str:
        """The embedding space of the similarities that its probabilities were calibrated on."""
        ...

    @property
    def identity(self) -> str:
        """Space and weights: what was learnt of its probabilities holds for these alone."""
        ...

    def read_together(self, text: str) -> str:
        """What of a text a cross-encoder is to read."""
        ...

    def verify(
        self, asked: str, cached: str, similarity: float, pair_score: float | None = None
    ) -> Verification:
        """`similarity` is the cosine of the two texts' vectors in `space`; `pair_score` as in Candidate."""
        ...


class RoutingPolicy(Protocol):
    """Scores a question. The threshold is applied outside, so it can be calibrated."""

    def score(self, query: Query) -> float:
        """Expected gain of the large model over the small one, mapped to [0, 1]; .5 is no gain."""
        ...
