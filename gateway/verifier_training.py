"""Trains a verifier: features of pairs, trees, calibration, and how good it is on pairs held out.

`python -m gateway.verifier_training DATA OUT CACHE` makes the shipped weights of the public pairs in DATA.
"""

from __future__ import annotations

import json
import platform
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from embeddings.protocols import Embedder, FloatMatrix
from gateway.router_data import SourceFile
from gateway.router_embeddings import embed
from gateway.verifier_corpus import Parts, read_corpus
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
from gateway.verifier_weights import write_weights
from policies.pair_features import PAIR_FEATURES, PAIR_FEATURES_VERSION, pair_features
from policies.tree_ensemble import FloatArray, TreeEnsemble
from policies.tree_verifier import TreeVerifier, VerifierWeights

MIN_PAIRS: Final = 500
MIN_OF_EACH: Final = 100
"""Fewer labelled pairs than MIN_PAIRS, or fewer of either answer than this, train nothing worth trusting."""
MIN_IN_PART: Final = 20
"""Of either answer, of what is held out for the calibration and for the figures."""
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
    """N pairs: `features` float64 (N, F), `same` bool (N,), `weight` float64 (N,)."""

    pairs: Sequence[Pair]
    features: FloatArray
    same: Labels
    weight: FloatArray

    @property
    def similarity(self) -> FloatArray:
        """The cosine, float64 (N,)."""
        return self.features[:, PAIR_FEATURES.index("similarity")]

    def scores(self, trees: TreeEnsemble) -> FloatArray:
        """Raw scores, float64 (N,)."""
        return np.array([trees.score(row) for row in self.features])


def own_parts(pairs: Sequence[Pair], seed: int) -> Parts:
    """Parts somebody's own pairs: a fifth of the groups for the figures, a fifth for the calibration; to the
    rest come edits of their questions. Raises VerifierDataError when there are too few."""
    _enough(pairs)
    group = groups((pair.a, pair.b) for pair in pairs)
    parts: Parts = {"train": [], "calibrate": [], "evaluate": []}
    for pair in pairs:
        parts[part_of(group[pair.a], seed)].append(pair)
    for part, held in parts.items():
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
    trees: int = TREES,
    advance: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Writes the weights to `out` and returns what the file says about itself: data with SHA-256, seed,
    versions, rows and held-out figures.

    Nothing of the parts "calibrate" and "evaluate" is trained on; the figures are of "evaluate" alone.
    `advance` is told how many more texts are embedded, of `texts_of` in all. Raises VerifierDependencyError,
    EmbedderError, EmbeddingCacheError, OSError.
    """
    require_scikit_learn()
    vectors = _vectors(embedder, texts_of(parts), cache, advance)
    learnt, held = (measure(_turned(parts[part]), vectors) for part in ("train", "calibrate"))
    judged = measure(parts["evaluate"], vectors)
    fitted = fit_trees(learnt.features, learnt.same, learnt.weight, seed, trees)
    ensemble = TreeEnsemble(fitted, len(PAIR_FEATURES))
    raw, probability = calibrate(held.scores(ensemble), held.same, held.weight)
    weights = VerifierWeights(
        space=embedder.space,
        features_version=PAIR_FEATURES_VERSION,
        features=tuple(PAIR_FEATURES),
        trees=fitted,
        raw=raw,
        probability=probability,
    )
    about = {
        "space": embedder.space,
        "seed": seed,
        "data": [asdict(file) for file in files],
        "versions": _versions(),
        "rows": {part: _rows(pairs) for part, pairs in parts.items()},
        "probes": [pair_features(*probe) for probe in PROBES],
        "held_out": figures(judged, ensemble),
    }
    write_weights(out, weights, about)
    return about


def texts_of(parts: Parts) -> list[str]:
    """Every text of every part, once."""
    return list(
        dict.fromkeys(text for pairs in parts.values() for pair in pairs for text in (pair.a, pair.b))
    )


def measure(pairs: Sequence[Pair], vectors: dict[str, FloatMatrix]) -> Measured:
    """The features of `pairs`, the vector of each of whose texts is in `vectors`."""
    features = np.empty((len(pairs), len(PAIR_FEATURES)))
    for row, pair in enumerate(pairs):
        features[row] = pair_features(pair.a, pair.b, float(vectors[pair.a] @ vectors[pair.b]))
    return Measured(
        pairs=pairs,
        features=features,
        same=np.array([pair.same for pair in pairs], np.bool_),
        weight=np.array([pair.weight for pair in pairs]),
    )


def figures(judged: Measured, trees: TreeEnsemble) -> dict[str, Any]:
    """Per data set the recall at SHARES of the false pairs, of the verifier and of the cosine alone; and of
    the edits that change a question, the share that passes at the 1 % threshold of all labelled pairs."""
    scores = {
        "verifier": judged.scores(trees),
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


def measured(pairs: Sequence[Pair], verifier: TreeVerifier, embedder: Embedder) -> dict[str, Any]:
    """The `figures` of a verifier on somebody's pairs. Raises VerifierDataError when they are all the same or
    all not, and EmbedderError."""
    if len({pair.same for pair in pairs}) < 2:
        raise VerifierDataError("pairs that are the same and pairs that are not are both needed")
    vectors = _vectors(embedder, texts_of({"evaluate": list(pairs)}), None, lambda done: None)
    return figures(measure(pairs, vectors), verifier.trees)


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


def main(data: Path, out: Path, cache: Path) -> dict[str, Any]:
    """Trains the shipped weights on the public pairs in `data`, with the default embedder on a CPU, seed 0;
    `cache` is where embeddings are kept."""
    from embeddings.onnx_embedder import OnnxEmbedder

    with closing(OnnxEmbedder.open("default", "cpu", 2)) as embedder:
        parts, files = read_corpus(data, lambda texts: embed(embedder, texts, cache), seed=0)
        return train(parts, embedder, out, seed=0, files=files, cache=cache)


if __name__ == "__main__":
    print(json.dumps(main(*map(Path, sys.argv[1:4])), indent=1, ensure_ascii=False))
