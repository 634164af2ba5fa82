"""Two conversations compared: features that see what differs, and a verifier that says what spoke."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from policies.conversation import Conversation, as_text
from policies.conversation_features import (
    CONVERSATION_FEATURES,
    CONVERSATION_FEATURES_VERSION,
    conversation_features,
)
from policies.conversation_verifier import ConversationVerifier, ConversationWeights, Logistic
from policies.protocols import Verifier
from policies.tree_verifier import VerifierWeightsError
from tests.policies.test_conversation import talk

BASE = talk(
    "What does Plus cost?",
    "12 euros per user.",
    "We are 8 people.",
    "Plus would suit you.",
    "how much is that?",
)
CHATTER = talk(
    "Hello, nice weather.",
    "Indeed! How can I help?",
    "What does Plus cost?",
    "12 euros per user.",
    "We are 8 people.",
    "Plus would suit you.",
    "how much is that?",
)
DETAIL = talk(
    "What does Plus cost?",
    "12 euros per user.",
    "We are 18 people.",
    "Plus would suit you.",
    "how much is that?",
)
OFFER = talk(
    "What does Plus cost?",
    "12 euros per user.",
    "We are 8 people.",
    "Basic is enough for you.",
    "how much is that?",
)
LAST = talk(
    "What does Plus cost?",
    "12 euros per user.",
    "We are 8 people.",
    "Plus would suit you.",
    "when can we start?",
)


def weights(**by_name: float) -> ConversationWeights:
    plain = tuple(by_name.get(name, 0.0) for name in CONVERSATION_FEATURES)
    return ConversationWeights(
        features_version=CONVERSATION_FEATURES_VERSION,
        plain=Logistic(weights=plain, bias=by_name.get("bias", 0.0)),
        scored=Logistic(weights=(*plain, 10.0), bias=by_name.get("bias", 0.0)),
        encoder="e",
        identity="1",
    )


@dataclass(frozen=True)
class Row:
    """Features by name."""

    values: dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]


def row(a: Conversation, b: Conversation) -> Row:
    return Row(dict(zip(CONVERSATION_FEATURES, conversation_features(a, b), strict=True)))


def test_features_are_symmetric_and_within_bounds() -> None:
    for other in (BASE, CHATTER, DETAIL, OFFER, LAST):
        features = conversation_features(BASE, other)
        assert features == conversation_features(other, BASE)
        assert len(features) == len(CONVERSATION_FEATURES)
        assert all(0 <= value <= 1 for value in features)


def test_equal_conversations_agree_in_everything() -> None:
    same = row(BASE, BASE)
    assert all(same[name] == (0.0 if name.endswith("apart") else 1.0) for name in CONVERSATION_FEATURES)


def test_chatter_is_contained_and_details_are_not() -> None:
    assert row(BASE, CHATTER)["words_contained"] == 1.0
    assert row(BASE, CHATTER)["numbers_apart"] == 0.0
    assert row(BASE, DETAIL)["numbers_apart"] > 0
    assert row(BASE, OFFER)["offer_contained"] < 1
    assert row(BASE, LAST)["last_equal"] == 0.0


def test_where_the_last_message_stands_alone_the_turns_before_do_not_count() -> None:
    last = "Which payment methods do you accept?"
    a = talk("Where do you have parking?", "Behind our house.", last)
    b = talk("I moved to Bristol in May.", "Welcome!", last)
    assert row(a, b)["leans"] == 0.0
    assert row(a, b)["words_contained"] == 1.0


def test_the_probability_the_reasons_and_the_pair_score() -> None:
    verifier: Verifier = ConversationVerifier(weights(numbers_apart=-8.0, bias=2.0), "space")
    texts = [as_text(turns) or "" for turns in (BASE, CHATTER, DETAIL)]
    agree, differ = (verifier.verify(texts[0], other, 0.9) for other in texts[1:])
    assert agree.probability == pytest.approx(0.881, abs=0.001)
    assert agree.open
    assert differ.probability < agree.probability
    assert differ.spoke == ("the numbers before differ",)
    read = verifier.verify(texts[0], texts[2], 0.9, pair_score=4.0)
    assert read.stage == "cross-encoder"
    assert read.probability > differ.probability
    assert read.spoke[-1] == "read together +4.0"
    assert verifier.read_together(texts[0]).startswith("how much is that? | Plus would suit you.")
    assert verifier.identity == "space/1"


def test_weights_of_other_features_are_refused() -> None:
    with pytest.raises(VerifierWeightsError, match="train them again"):
        ConversationVerifier(msgspec.structs.replace(weights(), features_version=-1), "space")
    short = msgspec.structs.replace(weights(), plain=Logistic(weights=(1.0,), bias=0.0))
    with pytest.raises(VerifierWeightsError, match="do not fit"):
        ConversationVerifier(short, "space")
