"""A verifier of two conversations: how likely it is that the next reply to one serves the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from policies.conversation import gist, parse
from policies.conversation_features import (
    CONVERSATION_FEATURES,
    CONVERSATION_FEATURES_VERSION,
    conversation_features,
)
from policies.tree_verifier import VerifierWeightsError
from policies.types import Verification

LEAST_OPEN: Final = 0.02
"""Below this probability the cross-encoder is not asked."""
_SPOKEN: Final = {
    "last_equal": "the last messages differ",
    "words_contained": "other things were said before",
    "offer_contained": "something else was offered",
    "numbers_contained": "the numbers before differ",
    "numbers_apart": "the numbers before differ",
    "recent_numbers_apart": "the latest numbers differ",
    "names_contained": "other names were said before",
    "names_apart": "other names were said before",
}
_LEAST_MOVE: Final = 0.3  # of the log-odds
_MOST_SPOKEN: Final = 3


class Logistic(msgspec.Struct, frozen=True, kw_only=True):
    """Log-odds = bias + weights · features. One weight for each of CONVERSATION_FEATURES; one more for a pair
    score, in tens of its log-odds, where it is for such."""

    weights: tuple[float, ...]
    bias: float

    def log_odds(self, features: Sequence[float]) -> float:
        return self.bias + sum(w * x for w, x in zip(self.weights, features, strict=True))


class ConversationWeights(msgspec.Struct, frozen=True, kw_only=True):
    """`plain` for features alone, `scored` for these and the score of the cross-encoder `encoder`.
    `identity`: of what file they came."""

    features_version: int
    plain: Logistic
    scored: Logistic
    encoder: str
    identity: str = ""


class ConversationVerifier:
    """Implements Verifier, of texts as `policies.conversation.as_text` makes them. Similarities are not
    looked at, so it is of any space; `space` says which is in use. Raises VerifierWeightsError."""

    def __init__(self, weights: ConversationWeights, space: str) -> None:
        columns = len(CONVERSATION_FEATURES)
        if weights.features_version != CONVERSATION_FEATURES_VERSION:
            raise VerifierWeightsError(
                f"the weights for conversations are for features of version {weights.features_version}, this "
                f"is version {CONVERSATION_FEATURES_VERSION}: train them again"
            )
        if (len(weights.plain.weights), len(weights.scored.weights)) != (columns, columns + 1):
            raise VerifierWeightsError("the weights for conversations do not fit their features")
        self.weights = weights
        self.space = space

    @property
    def identity(self) -> str:
        return f"{self.space}/{self.weights.identity}"

    def read_together(self, text: str) -> str:
        return gist(parse(text))

    def verify(
        self, asked: str, cached: str, similarity: float, pair_score: float | None = None
    ) -> Verification:
        features = conversation_features(parse(asked), parse(cached))
        if pair_score is None:
            probability = _sigmoid(self.weights.plain.log_odds(features))
            return Verification(
                probability=probability,
                spoke=_spoke(self.weights.plain, features),
                open=probability >= LEAST_OPEN,
            )
        features.append(pair_score / 10)
        return Verification(
            probability=_sigmoid(self.weights.scored.log_odds(features)),
            spoke=(*_spoke(self.weights.scored, features), f"read together {pair_score:+.1f}"),
            stage="cross-encoder",
        )


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, x))))


def _spoke(model: Logistic, features: Sequence[float]) -> tuple[str, ...]:
    """What two conversations are short of that agree in everything, the weightiest first."""
    said: dict[str, float] = {}
    for name, weight, value in zip(CONVERSATION_FEATURES, model.weights, features, strict=False):
        if words := _SPOKEN.get(name):
            moved = weight * value if name.endswith("apart") else weight * (value - 1)
            said[words] = min(said.get(words, 0.0), moved)
    ordered = sorted(said.items(), key=lambda one: one[1])
    return tuple(words for words, moved in ordered if moved < -_LEAST_MOVE)[:_MOST_SPOKEN]
