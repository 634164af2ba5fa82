"""Cache policy `exact`: nothing is served by similarity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policies.types import Candidate, Identity, Verdict


class ExactPolicy:
    """Only the exact look-up, which comes before any policy, may serve."""

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
        return Verdict(candidate=None, reason="policy exact serves equal requests only")

    def undecided(self, identity: Identity, candidates: Sequence[Candidate]) -> Mapping[int, tuple[str, str]]:
        return {}
