"""Trains a verifier: features of pairs, trees, calibration, and how good it is on pairs held out.

The shipped one is made by `gateway.training.shipped_verifier`, of the same steps.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from embeddings.pair_thread import PairScorer
from embeddings.protocols import Embedder, FloatMatrix
from gateway.router_data import SourceFile
from gateway.router_embeddings import embed
from gateway.verifier_corpus import Parts, no_parts
from gateway.verifier_data import Pair, VerifierDataError, edited, groups, part_of
from gateway.verifier_fitting import (
    TREES,
    Labels,
    calibrate,
    fit_trees,
    recall_at,
    require_scikit_learn,
    threshold_at,
)
from gateway.verifier_weights import VerifierFile, write_weights
from policies.calibration_curve import count
from policies.cascade_verifier import Blend
from policies.pair_features import PAIR_FEATURES, PAIR_FEATURES_VERSION, pair_features
from policies.tree_ensemble import FloatArray, TreeEnsemble
from policies.tree_verifier import TreeVerifier, VerifierWeights

MIN_PAIRS: Final = 500
MIN_OF_EACH: Final = 100
"""Fewer labelled pairs than MIN_PAIRS, or fewer of either answer than this, train nothing worth trusting."""
MIN_IN_PART: Final = 20
"""Of either answer, of what is held out for the calibration and for the figures."""
GREY: Final = (0.03, 0.995)
"""Probabilities of the first stage between which a pair is read together. Below, 1 pair in 30 would be lost
at most; above, it is surer than the cross-encoder."""
NEAREST: Final = 3
"""Of the earlier questions of a stream, those looked at."""
SHARES: Final = (0.01, 0.05, 0.1)
"""Of the pairs that are not the same: at these shares let through, the recall is measured."""
PROBES: Final = (
    ("How do I send 5 files from Rome to Milan?", "Can I not send 6 files from Milan to Rome?", 0.9),
    ("Which is the best `grep -r` flag in version 2.1", "What's the worst grep option?", 0.7),
    ("거실 불을 7시에 켜줘", "거실 불은 8시에 켜지 말아줘", 0.95),
)
"""Pairs whose features are kept with the weights, to tell when the features have changed since."""
_EDIT_SHARE: Final = 0.2  # of the labelled pairs in training: more and the recall of real pairs falls
_EDIT_WEIGHT: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """N pairs: `features` float64 (N, F), the last column a cross-encoder's score where there is one; `same`
    bool (N,), `weight` float64 (N,)."""

    pairs: Sequence[Pair]
    features: FloatArray
    same: Labels
    weight: FloatArray

    @property
    def similarity(self) -> FloatArray:
        """The cosine, float64 (N,)."""
        return self.features[:, PAIR_FEATURES.index("similarity")]

    @property
    def plain(self) -> FloatArray:
        """The features without a cross-encoder's score."""
        return self.features[:, : len(PAIR_FEATURES)]


def own_parts(pairs: Sequence[Pair], seed: int) -> Parts:
    """Parts somebody's own pairs: a fifth of the groups for the figures, a fifth for the calibration; to the
    rest come edits of their questions. Raises VerifierDataError when there are too few."""
    _enough(pairs)
    group = groups((pair.a, pair.b) for pair in pairs)
    parts = no_parts()
    for pair in pairs:
        parts[part_of(group[pair.a], seed)].append(pair)
    for part, held in parts.items():
        if part == "blend":
            continue
        same = sum(pair.same for pair in held)
        if min(same, len(held) - same) < MIN_IN_PART:
            raise VerifierDataError(
                f"{len(held)} pairs, {same} of them the same, are left to {part}: at least {MIN_IN_PART} of "
                "either are needed; questions that are compared with each other stay together, so bring "
                "pairs of more different questions"
            )
    rng = np.random.default_rng(seed)
    for part in ("train", "calibrate"):
        texts = list(dict.fromkeys(pair.a for pair in parts[part]))
        each = max(round(_EDIT_SHARE * len(parts[part]) / 10), 1)
        parts[part] += edited(texts, rng, each, _EDIT_WEIGHT)
    return parts


def train(
    parts: Parts,
    embedder: Embedder,
    out: Path,
    *,
    seed: int,
    files: Sequence[SourceFile],
    cache: Path | None,
    scorer: PairScorer | None = None,
    encoder: Path | None = None,
    streams: Sequence[Sequence[tuple[str, int]]] = (),
    trees: int = TREES,
    advance: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Writes the weights to `out` and returns what the file says about itself: data with SHA-256, seed,
    versions, rows and held-out figures.

    `scorer` is a cross-encoder that has not been trained on the part "blend" (without such a part: on none of
    the pairs), `encoder` its folder. `streams`: held-out questions with their classes, of which the counts
    are taken that a policy starts from; without, they come of the part "calibrate". The figures are of
    "evaluate" alone. `advance` is told how many more texts are embedded, of `texts_of` in all. Raises
    VerifierDependencyError, EmbedderError, EmbeddingCacheError, OSError.
    """
    require_scikit_learn()
    vectors = _vectors(embedder, texts_of(parts, streams), cache, advance)
    sides = {
        part: measure(_turned(pairs), vectors, None if part == "train" else scorer)
        for part, pairs in parts.items()
        if pairs
    }
    learnt, held, judged = sides["train"], sides["calibrate"], sides["evaluate"]
    first = _first(learnt, held, embedder.space, seed, trees)
    blend = None
    if scorer is not None and encoder is not None:
        blend = _blended(first, sides.get("blend", held), held, scorer.identity)
    found = Stages(first=first, blend=blend)
    outcomes = list(zip(found.probabilities(held).tolist(), held.same.tolist(), strict=True))
    for stream in streams:
        outcomes += stream_outcomes(stream, vectors, found, scorer)
    about = {
        "space": embedder.space,
        "seed": seed,
        "data": [asdict(file) for file in files],
        "versions": _versions(),
        "rows": {part: _rows(pairs) for part, pairs in parts.items()},
        "outcomes": len(outcomes),
        "probes": [pair_features(*probe) for probe in PROBES],
        "held_out": figures(judged, found),
    }
    folder = "" if encoder is None else os.path.relpath(encoder, out.parent)
    write_weights(out, first, about, blend=blend, encoder=folder, counts=count(outcomes))
    return about


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The two stages together, over rows of features."""

    first: VerifierWeights
    blend: Blend | None

    def probabilities(self, measured: Measured) -> FloatArray:
        """As CascadeVerifier gives them, float64 (N,)."""
        one = TreeVerifier(self.first)
        said = [one.of_features(row) for row in measured.plain]
        found = np.array([verification.probability for _, verification in said])
        if self.blend is None:
            return found
        low, high = self.blend.grey
        for row in np.flatnonzero((found >= low) & (found <= high)).tolist():
            found[row] = self.blend.of(said[row][0], measured.features[row, -1])
        return found


def stream_outcomes(
    stream: Sequence[tuple[str, int]],
    vectors: dict[str, FloatMatrix],
    found: Stages,
    scorer: PairScorer | None,
) -> list[tuple[float, bool]]:
    """What a cache meets, asked `stream` in its order: for each question, of the earlier ones nearest to it
    the one that the verifier is surest of; its probability and whether one answer serves both."""
    texts = [text for text, _ in stream]
    rows = np.stack([vectors[text] for text in texts])
    pairs = []
    for at in range(1, len(texts)):
        near = np.argsort(-(rows[:at] @ rows[at]), kind="stable")[:NEAREST]
        pairs += [
            Pair(a=texts[at], b=texts[i], same=stream[at][1] == stream[i][1] != -1, source=str(at))
            for i in near.tolist()
            if texts[i] != texts[at]
        ]
    if not pairs:
        return []
    said = found.probabilities(measure(pairs, vectors, scorer)).tolist()
    surest: dict[str, tuple[float, bool]] = {}
    for pair, probability in zip(pairs, said, strict=True):
        surest[pair.source] = max(surest.get(pair.source, (-1.0, False)), (probability, pair.same))
    return list(surest.values())


def _first(learnt: Measured, held: Measured, space: str, seed: int, trees: int) -> VerifierWeights:
    """Trees fitted to `learnt` and calibrated on `held`."""
    fitted = fit_trees(learnt.plain, learnt.same, learnt.weight, seed, trees)
    ensemble = TreeEnsemble(fitted, len(PAIR_FEATURES))
    raw = np.array([ensemble.score(row) for row in held.plain])
    points, probability = calibrate(raw, held.same, held.weight)
    return VerifierWeights(
        space=space,
        features_version=PAIR_FEATURES_VERSION,
        features=tuple(PAIR_FEATURES),
        trees=fitted,
        raw=points,
        probability=probability,
    )


def _blended(first: VerifierWeights, learnt: Measured, held: Measured, encoder: str) -> Blend:
    """A logistic regression of two log-odds, fitted to `learnt` and calibrated on `held`."""
    from sklearn.linear_model import LogisticRegression

    ensemble = TreeEnsemble(first.trees, len(PAIR_FEATURES))

    def both(side: Measured) -> FloatArray:
        return np.array([[ensemble.score(row[:-1]), row[-1]] for row in side.features])

    model = LogisticRegression(C=10.0).fit(both(learnt), learnt.same, learnt.weight)
    raw, probability = calibrate(model.decision_function(both(held)), held.same, held.weight)
    (trees, score), bias = model.coef_[0].tolist(), float(model.intercept_[0])
    return Blend(
        bias=bias, trees=trees, score=score, raw=raw, probability=probability, encoder=encoder, grey=GREY
    )


def texts_of(parts: Parts, streams: Sequence[Sequence[tuple[str, int]]] = ()) -> list[str]:
    """Every text of every part and stream, once."""
    paired = (text for pairs in parts.values() for pair in pairs for text in (pair.a, pair.b))
    return list(dict.fromkeys([*paired, *(text for stream in streams for text, _ in stream)]))


def measure(
    pairs: Sequence[Pair], vectors: dict[str, FloatMatrix], scorer: PairScorer | None = None
) -> Measured:
    """The features of `pairs`, the vector of each of whose texts is in `vectors`, and their pair scores. One
    of a pair beyond the cross-encoder's window is of what it has read."""
    features = np.empty((len(pairs), len(PAIR_FEATURES) + (scorer is not None)))
    for row, pair in enumerate(pairs):
        features[row, : len(PAIR_FEATURES)] = pair_features(
            pair.a, pair.b, float(vectors[pair.a] @ vectors[pair.b])
        )
    if scorer is not None:
        features[:, -1] = scorer.score([(pair.a, pair.b) for pair in pairs]).logits
    return Measured(
        pairs=pairs,
        features=features,
        same=np.array([pair.same for pair in pairs], np.bool_),
        weight=np.array([pair.weight for pair in pairs]),
    )


def figures(judged: Measured, stages: Stages) -> dict[str, Any]:
    """Per data set the recall at SHARES of the false pairs, of the verifier and of the cosine alone; and of
    the edits that change a question, the share that passes at the 1 % threshold of all labelled pairs."""
    scores = {
        "verifier": stages.probabilities(judged),
        "cosine": judged.similarity,
    }
    sources = np.array([pair.source for pair in judged.pairs])
    labelled = ~np.char.startswith(sources, "edit-")
    found: dict[str, Any] = {}
    for source in [*sorted(set(sources[labelled])), "all labelled"]:
        rows = labelled if source == "all labelled" else sources == source
        same = judged.same[rows]
        if same.any() and not same.all():
            counts = {"shares": SHARES, "same": int(same.sum()), "not_same": int((~same).sum())}
            found[source] = counts | {
                name: [round(recall_at(of[rows], same, share), 4) for share in SHARES]
                for name, of in scores.items()
            }
    limits = {
        name: threshold_at(of[labelled], judged.same[labelled], SHARES[0]) for name, of in scores.items()
    }
    for source in sorted(set(sources[~labelled])):
        rows = sources == source
        found[source] = {"pairs": int(rows.sum())} | {
            name: round(float((of[rows] > limits[name]).mean()), 4) for name, of in scores.items()
        }
    return found


def measured(
    pairs: Sequence[Pair], file: VerifierFile, embedder: Embedder, scorer: PairScorer | None
) -> dict[str, Any]:
    """The `figures` of a verifier on somebody's pairs. Raises VerifierDataError when they are all the same or
    all not, and EmbedderError."""
    if len({pair.same for pair in pairs}) < 2:
        raise VerifierDataError("pairs that are the same and pairs that are not are both needed")
    vectors = _vectors(embedder, texts_of({"evaluate": list(pairs)}), None, lambda done: None)
    found = Stages(first=file.first, blend=file.blend)
    return figures(measure(pairs, vectors, scorer), found)


def _enough(pairs: Sequence[Pair]) -> None:
    same = sum(pair.same for pair in pairs)
    if len(pairs) < MIN_PAIRS or min(same, len(pairs) - same) < MIN_OF_EACH:
        raise VerifierDataError(
            f"{len(pairs)} pairs, {same} of them the same: at least {MIN_PAIRS} are needed, "
            f"{MIN_OF_EACH} of them the same and {MIN_OF_EACH} not"
        )


def _turned(pairs: Sequence[Pair]) -> list[Pair]:
    """Every other pair the other way round: which question comes first must teach nothing."""
    return [replace(pair, a=pair.b, b=pair.a) if row % 2 else pair for row, pair in enumerate(pairs)]


def _vectors(
    embedder: Embedder, texts: Sequence[str], cache: Path | None, advance: Callable[[int], None]
) -> dict[str, FloatMatrix]:
    return dict(zip(texts, embed(embedder, texts, cache, advance), strict=True))


def _rows(pairs: Sequence[Pair]) -> dict[str, int]:
    return dict(sorted(Counter(pair.source for pair in pairs).items()))


def _versions() -> dict[str, str]:
    import sklearn

    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "features": str(PAIR_FEATURES_VERSION),
    }
