"""Cache policy `static`: one similarity threshold for every question, and a guard against contrasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policies.contrast import contrast, indistinct
from policies.types import Candidate, Identity, Verdict


class StaticPolicy:
    """Serves the nearest entry whose cosine similarity reaches `min_similarity` in [-1, 1] and whose question
    shows no contrast to the one asked.

    The scale depends on the embedder: unrelated questions score about .1 with MiniLM, about .8 with E5.
    """

    def __init__(self, min_similarity: float) -> None:
        if not -1.0 <= min_similarity <= 1.0:
            raise ValueError(f"min_similarity {min_similarity}: expected a cosine in [-1, 1]")
        self.min_similarity = min_similarity

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
        if max_error_rate is not None:
            return Verdict(candidate=None, reason="policy static cannot keep an error rate")
        if not candidates:
            return Verdict(candidate=None, reason="nothing cached is comparable")
        refused = ""
        for candidate in candidates:
            compared = f"similarity {candidate.similarity:.3f}"
            if candidate.similarity < self.min_similarity:
                refused = refused or f"{compared} is below {self.min_similarity:.3f}"
                break
            difference = indistinct(identity.text or "", candidate) or contrast(
                identity.text or "", candidate.text
            )
            if not difference:
                return Verdict(candidate=candidate, reason=f"{compared} reaches {self.min_similarity:.3f}")
            refused = refused or f"{compared}, but {difference}"
        return Verdict(candidate=None, reason=refused)

    def undecided(self, identity: Identity, candidates: Sequence[Candidate]) -> Mapping[int, tuple[str, str]]:
        return {}
