"""What the tests of the verifier's training share: questions, and an embedder of words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embeddings.protocols import Encoding
from gateway.verifier_data import Pair

_VERBS = ("cook", "plant", "wash", "paint", "repair", "store", "carry", "count", "sell", "freeze")
_THINGS = ("rice", "beans", "shirts", "walls", "boats", "apples", "stones", "coins", "books", "fish")


class FakeEmbedder:
    """The mean of a vector for each word, drawn from its hash: shared words make texts similar."""

    space = "fake-words/numpy"
    dimension = 16
    max_tokens = 512

    def encode(self, texts: Sequence[str]) -> Encoding:
        rows = np.stack([sum(map(_word_vector, text.lower().split())) for text in texts])
        return Encoding(
            vectors=(rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32),
            token_counts=np.ones(len(texts), np.int64),
            truncated=np.zeros(len(texts), np.bool_),
        )

    def close(self) -> None:
        """There is nothing to close."""


def pairs(count: int) -> list[Pair]:
    """`count` pairs of as many groups, every other one the same: the same is asked in other words, what is
    not differs in a number."""
    made = []
    for number in range(count):
        verb, thing = _VERBS[number % 10], _THINGS[number // 10 % 10]
        asked = f"How do I {verb} {number + 2} {thing} in room {number}?"
        other = (
            f"What is the way to {verb} {number + 2} {thing} in room {number}"
            if number % 2 == 0
            else f"How do I {verb} {number + 7} {thing} in room {number}?"
        )
        made.append(Pair(a=asked, b=other, same=number % 2 == 0, source="mine"))
    return made


def _word_vector(word: str) -> npt.NDArray[np.float64]:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8])
    return np.random.default_rng(seed).normal(size=FakeEmbedder.dimension)
