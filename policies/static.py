"""Cache policy `static`: one similarity threshold for every question."""

from __future__ import annotations

from collections.abc import Sequence

from policies.types import Candidate, Identity, Verdict


class StaticPolicy:
    """Serves the nearest entry when its cosine similarity reaches `min_similarity` in [-1, 1].

    The scale depends on the embedder: unrelated questions score about .1 with MiniLM, about .8 with E5.
    """

    def __init__(self, min_similarity: float) -> None:
        if not -1.0 <= min_similarity <= 1.0:
            raise ValueError(f"min_similarity {min_similarity}: expected a cosine in [-1, 1]")
        self.min_similarity = min_similarity

    def judge(self, identity: Identity, candidates: Sequence[Candidate], now: float) -> Verdict:
        if not candidates:
            return Verdict(candidate=None, reason="nothing cached is comparable")
        nearest = candidates[0]
        compared = f"similarity {nearest.similarity:.3f}"
        if nearest.similarity >= self.min_similarity:
            return Verdict(candidate=nearest, reason=f"{compared} reaches {self.min_similarity:.3f}")
        return Verdict(candidate=None, reason=f"{compared} is below {self.min_similarity:.3f}")
