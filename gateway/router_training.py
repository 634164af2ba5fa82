"""Trains a difficulty router: embeds, fits, calibrates, and says how good it is on prompts held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

from embeddings.protocols import Embedder
from gateway.router_data import (
    LabelledPrompts,
    SourceFile,
    TrainingDataError,
    read_texts,
    read_training_data,
)
from gateway.router_embeddings import embed
from gateway.router_heads import (
    LEXICAL_GAIN,
    LIMIT,
    Examples,
    FloatMatrix,
    Heads,
    Rows,
    choose_penalty,
    fit_heads,
    fold_rows,
)
from gateway.router_weights import rounded, write_weights
from policies.difficulty import DifficultyPolicy, DifficultyWeights, FloatArray, embedder_of
from policies.lexical import LEXICAL_FEATURES, LEXICAL_VERSION, lexical_features
from policies.routing_eval import routing_metrics

MIN_PROMPTS: Final = 100
"""Fewer labelled prompts than this train nothing worth calibrating."""
_HELD_OUT = 5  # one of so many prompts is held out
_ANCHOR_SHARE = 0.03  # of the total weight
_QUANTILES = 1001


@dataclass(frozen=True, slots=True, kw_only=True)
class Everyday:
    """Prompts as people ask them, without labels: the calibration scores them beside the held-out prompts.
    Only their scores are kept."""

    texts: tuple[str, ...] = ()
    files: tuple[SourceFile, ...] = ()


@dataclass(frozen=True, slots=True)
class _Prompts:
    """Texts with their features (N, F) and vectors (N, D), both float32."""

    features: FloatArray
    vectors: FloatArray

    def rows(self) -> FloatMatrix:
        return np.concatenate([self.vectors, self.features], axis=1).astype(np.float64)

    def scores(self, policy: DifficultyPolicy, index: Sequence[int] | Rows, *, embedded: bool) -> FloatMatrix:
        return np.array(
            [policy.score_features(self.features[i], self.vectors[i] if embedded else None) for i in index]
        )


def anchors() -> LabelledPrompts:
    """The hand-written prompts, plainly easy or hard, in English and Korean, that ship with Lockgate."""
    return read_training_data([Path(str(resources.files("gateway") / "router_anchors.jsonl"))])


def read_everyday(paths: Sequence[Path], rows: int, seed: int) -> Everyday:
    """At most `rows` texts of each file, drawn with `seed`. Raises TrainingDataError."""
    texts: list[str] = []
    files: list[SourceFile] = []
    for path in paths:
        found, file = read_texts(path)
        order = np.random.default_rng(seed).permutation(len(found))[:rows]
        texts += [found[i] for i in np.sort(order)]
        files.append(file)
    return Everyday(texts=tuple(texts), files=tuple(files))


def train(
    data: LabelledPrompts,
    embedder: Embedder,
    out: Path,
    *,
    seed: int,
    anchored: LabelledPrompts | None,
    everyday: Everyday,
    cache: Path | None,
    advance: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Writes the weights to `out` and returns what the file says about itself: the data with SHA-256, the
    seed, the penalties chosen, the calibration and the held-out figures.

    A fifth of the prompts, drawn with `seed`, is never trained on: the figures and, with `everyday`, the
    calibration come from it. `anchored` prompts carry 3 % of the training weight and no figure.
    `advance` is told how many more texts are embedded, of `texts_to_embed` in all. Raises TrainingDataError,
    TrainingDependencyError, EmbedderError, EmbeddingCacheError, OSError.
    """
    if len(data) < MIN_PROMPTS:
        raise TrainingDataError(f"{len(data)} labelled prompts: at least {MIN_PROMPTS} are needed")
    if data.small.mean() >= data.large.mean():
        raise TrainingDataError(
            f"the large model must be the better one: mean quality {data.large.mean():.3f} against "
            f"{data.small.mean():.3f} of the small one"
        )
    texts = texts_to_embed(data, anchored, everyday)
    prompts = _Prompts(
        features=np.stack([lexical_features(text) for text in texts]),
        vectors=embed(embedder, texts, cache, advance),
    )
    examples = _examples(data, anchored, prompts)
    held = fold_rows(len(data), _HELD_OUT, seed)[0]
    learnt = np.setdiff1d(np.arange(len(examples.rows)), held)
    with_embedding, alone = (
        fit_heads(part, choose_penalty(part, seed))
        for part in (examples.take(learnt), examples.take(learnt).lexical_only())
    )
    weights = _folded(out.stem, embedder_of(embedder.space), with_embedding, alone)
    unlabelled = range(len(texts) - len(everyday.texts), len(texts))
    weights = _calibrated(weights, prompts, [*held, *unlabelled])
    about = {
        "space": embedder.space,
        "seed": seed,
        "data": [asdict(file) for file in data.files],
        "anchors": [asdict(file) for file in anchored.files] if anchored else [],
        "everyday": [asdict(file) for file in everyday.files],
        "rows": {"trained": len(learnt), "held_out": len(held), "everyday": len(unlabelled)},
        "penalty": {"with_embedding": with_embedding.penalty, "lexical_only": alone.penalty},
        "calibration": "held-out prompts and everyday questions",
        "held_out": _held_out(data, prompts, held, DifficultyPolicy(weights)),
    }
    write_weights(out, weights, about)
    return about


def texts_to_embed(data: LabelledPrompts, anchored: LabelledPrompts | None, everyday: Everyday) -> list[str]:
    """Every text of a training: labelled prompts, anchors, everyday questions, in this order."""
    return [*data.prompts, *(anchored.prompts if anchored else ()), *everyday.texts]


def _examples(data: LabelledPrompts, anchored: LabelledPrompts | None, prompts: _Prompts) -> Examples:
    names = sorted(set(data.sources))
    group = [names.index(name) for name in data.sources]
    # Between one vote a prompt, which a large data set wins, and one vote a data set.
    rows = np.bincount(group)
    balance = 1 / np.sqrt(rows)[group]
    small, large, weight = [data.small], [data.large], [balance / balance.mean()]
    if anchored:
        each = _ANCHOR_SHARE / (1 - _ANCHOR_SHARE) * len(data) / len(anchored)
        group += [-1] * len(anchored)
        small.append(anchored.small)
        large.append(anchored.large)
        weight.append(np.full(len(anchored), each))
    return Examples(
        rows=prompts.rows()[: len(group)],
        small=np.concatenate(small),
        large=np.concatenate(large),
        weight=np.concatenate(weight),
        group=np.array(group, dtype=np.intp),
        lexical=len(LEXICAL_FEATURES),
    )


def _folded(name: str, embedder: str, joint: Heads, alone: Heads) -> DifficultyWeights:
    """Moves the scaling of the embedding into its weights and the bias, so that a raw vector goes in."""
    lexical = len(LEXICAL_FEATURES)
    first = len(joint.weights) - lexical
    # In 8 bits before the bias is set, which makes up for the rounding of the mean vector, and before the
    # calibration, which is then that of the file.
    embedding = rounded((joint.weights[:first] / joint.scaling.scale[:first, None]).astype(np.float32))
    return DifficultyWeights(
        name=name,
        embedder=embedder,
        lexical_version=LEXICAL_VERSION,
        mean=joint.scaling.mean[first:].astype(np.float32),
        scale=joint.scaling.scale[first:].astype(np.float32),
        limit=LIMIT,
        embedding=embedding,
        lexical=rounded((joint.weights[first:] * LEXICAL_GAIN).astype(np.float32)),
        bias=(joint.bias - joint.scaling.mean[:first] @ embedding).astype(np.float32),
        lexical_only=rounded((alone.weights * LEXICAL_GAIN).astype(np.float32)),
        lexical_only_bias=alone.bias.astype(np.float32),
        calibration=np.array([0, 1], np.float32),  # until calibrated, a score stands for itself
        lexical_only_calibration=np.array([0, 1], np.float32),
    )


def _calibrated(
    weights: DifficultyWeights, prompts: _Prompts, index: Sequence[int] | Rows
) -> DifficultyWeights:
    policy = DifficultyPolicy(weights)
    levels = np.linspace(0, 1, _QUANTILES)
    with_embedding, alone = (
        np.quantile(prompts.scores(policy, index, embedded=embedded), levels).astype(np.float32)
        for embedded in (True, False)
    )
    return replace(weights, calibration=with_embedding, lexical_only_calibration=alone)


def _held_out(
    data: LabelledPrompts, prompts: _Prompts, held: Rows, policy: DifficultyPolicy
) -> dict[str, Any]:
    """Per data set the measures of the router, of its heads without an embedding, and of length alone."""
    scores = {
        "router": prompts.scores(policy, held, embedded=True),
        "lexical_only": prompts.scores(policy, held, embedded=False),
        "length_only": np.array([float(len(data.prompts[i])) for i in held]),
    }
    figures: dict[str, Any] = {}
    for source in sorted(set(data.sources)):
        rows = np.array([data.sources[i] == source for i in held], dtype=np.bool_)
        small, large = data.small[held][rows], data.large[held][rows]
        if not rows.any() or small.mean() >= large.mean():
            continue  # no gap to recover: the measures have no meaning here
        figures[source] = {"prompts": int(rows.sum())} | {
            name: {
                key: round(value, 4) for key, value in asdict(routing_metrics(of[rows], small, large)).items()
            }
            for name, of in scores.items()
        }
    return figures
