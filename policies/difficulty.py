"""Scores a prompt by how much a large model would gain over a small one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from policies.lexical import LEXICAL_FEATURES, LEXICAL_VERSION, lexical_features
from policies.types import Query

FloatArray = npt.NDArray[np.float32]

HEADS: Final = ("small", "large")
"""The order of the columns of every pair of heads."""

_PRECISION_AND_RUNTIME = re.compile(r"(?:-(?:int8|fp32|fp16|bf16)\b.*|/[^/]*)$")


class WeightsError(Exception):
    """Weights do not fit this version or one another; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifficultyWeights:
    """Two logistic heads, P(small is right) and P(large is right), on [embedding | lexical features], and two
    on the lexical features alone.

    F = number of lexical features, D = dimension of the embedding; all arrays float32. `mean`, `scale` (F,)
    standardise the lexical features, which are then clipped to ± `limit`. `embedding` (D, 2), `lexical`
    (F, 2), `bias` (2,): the heads with an embedding. `lexical_only` (F, 2), `lexical_only_bias` (2,): those
    without. `calibration` (Q,): rising quantiles of the score over traffic-like prompts.
    `lexical_only_calibration` (Q,): the same quantiles, over the same prompts, of the score of the heads
    without an embedding. `embedder` is the model that `embedder_of` finds in the name of the vector space.
    """

    name: str
    embedder: str
    lexical_version: int
    mean: FloatArray
    scale: FloatArray
    limit: float
    embedding: FloatArray
    lexical: FloatArray
    bias: FloatArray
    lexical_only: FloatArray
    lexical_only_bias: FloatArray
    calibration: FloatArray
    lexical_only_calibration: FloatArray

    def __post_init__(self) -> None:
        if self.lexical_version != LEXICAL_VERSION:
            raise WeightsError(
                f"router weights {self.name} were trained on version {self.lexical_version} of the lexical "
                f"features, this is version {LEXICAL_VERSION}: train them again (lockgate router train)"
            )
        features, heads = len(LEXICAL_FEATURES), len(HEADS)
        shapes = {
            "mean": (features,),
            "scale": (features,),
            "embedding": (self.embedding.shape[0], heads),
            "lexical": (features, heads),
            "bias": (heads,),
            "lexical_only": (features, heads),
            "lexical_only_bias": (heads,),
            "lexical_only_calibration": self.calibration.shape,
        }
        for part, shape in shapes.items():
            found = getattr(self, part).shape
            if found != shape:
                raise WeightsError(f"router weights {self.name}: {part} has shape {found}, not {shape}")
            if not np.isfinite(getattr(self, part)).all():
                raise WeightsError(f"router weights {self.name}: {part} holds what is no finite number")
        if not (self.scale > 0).all():
            raise WeightsError(f"router weights {self.name}: scale must be positive")
        for part in ("calibration", "lexical_only_calibration"):
            values = getattr(self, part)
            if not values.size or not (np.diff(values) >= 0).all():
                raise WeightsError(f"router weights {self.name}: {part} must be numbers that never fall")

    @property
    def dimension(self) -> int:
        return int(self.embedding.shape[0])


@dataclass(frozen=True, slots=True)
class DifficultyPolicy:
    """Implements RoutingPolicy: score = (P(large is right) − P(small is right) + 1) / 2.

    Without a vector, or with one of another embedder, of another dimension or not finite, the heads without
    an embedding score the prompt, and their score is mapped to the quantile it has among its like: one
    threshold then sends the same share of traffic to the large model either way.
    """

    weights: DifficultyWeights

    def score(self, query: Query) -> float:
        """In [0, 1]; .5 is no gain. About 10 µs on top of `lexical_features`."""
        return self.score_features(lexical_features(query.text), self._vector(query))

    def score_features(self, features: FloatArray, vector: FloatArray | None) -> float:
        """`features` (F,) as `lexical_features` gives them; `vector` (D,) of this embedder, or None."""
        weights = self.weights
        lexical = np.clip((features - weights.mean) / weights.scale, -weights.limit, weights.limit)
        if vector is not None:
            return _gain(vector @ weights.embedding + lexical @ weights.lexical + weights.bias)
        alone = _gain(lexical @ weights.lexical_only + weights.lexical_only_bias)
        return float(np.interp(alone, weights.lexical_only_calibration, weights.calibration))

    def uses_embedding(self, query: Query) -> bool:
        """Whether the query's vector is of the space that the weights were trained on."""
        return self._vector(query) is not None

    def _vector(self, query: Query) -> FloatArray | None:
        if query.vector is None or query.space is None or embedder_of(query.space) != self.weights.embedder:
            return None
        vector = np.asarray(query.vector, dtype=np.float32)
        fits = vector.shape == (self.weights.dimension,) and bool(np.isfinite(vector).all())
        return vector if fits else None


def embedder_of(space: str) -> str:
    """The model in the name of a vector space, without precision and runtime: those differ little enough to
    share heads. A fine-tuned model has another name."""
    return _PRECISION_AND_RUNTIME.sub("", space)


def _gain(logits: FloatArray) -> float:
    small, large = (_sigmoid(float(logit)) for logit in logits)
    return (large - small + 1) / 2


def _sigmoid(x: float) -> float:
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    power = math.exp(x)
    return power / (1 + power)
