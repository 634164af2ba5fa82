"""Makes the weights that compare conversations: `python -m gateway.training.shipped_conversations WEIGHTS`.

Learnt from those groups of conversations of the code's that the cross-encoder in WEIGHTS has not seen. The
figures and the counts are of folds: each group is judged by weights that have not seen it.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from embeddings.pair_encoder import PairEncoder
from gateway.conversation_corpus import conversation_pairs, kept_from_encoder, written_conversations
from gateway.conversation_weights import write_conversations_file
from gateway.verifier_fitting import recall_at
from policies.calibration_curve import count
from policies.conversation import gist
from policies.conversation_features import CONVERSATION_FEATURES_VERSION, conversation_features
from policies.conversation_verifier import ConversationWeights, Logistic

FOLDS: Final = 10
SEED: Final = 0
_PENALTY: Final = 1.0  # inverse strength of the ridge, on features in [0, 1]
FloatArray = npt.NDArray[np.float64]


def make(weights: Path) -> dict[str, Any]:
    """Writes `weights` / conversations.json; returns what the file says of itself."""
    written, files = written_conversations()
    groups = [group for group in written if kept_from_encoder(group, SEED)]
    pairs = [
        (a, b, same, number)
        for number, group in enumerate(groups)
        for a, b, same in conversation_pairs(group)
    ]
    same = np.array([is_same for _, _, is_same, _ in pairs])
    group_of = np.array([number for *_, number in pairs])
    with closing(PairEncoder.open(weights / "pair-encoder", "cpu", 2)) as scorer:
        encoder = scorer.identity
        scores = scorer.score([(gist(a), gist(b)) for a, b, _, _ in pairs]).logits
    plain = np.array([conversation_features(a, b) for a, b, _, _ in pairs])
    rows = {"plain": plain, "scored": np.column_stack([plain, scores / 10])}
    held: dict[str, FloatArray] = {name: np.empty(len(pairs)) for name in rows}
    fold = np.random.default_rng(SEED).permutation(len(groups))[group_of] % FOLDS
    for name, features in rows.items():
        for at in range(FOLDS):
            learnt = fold != at
            model = _fit(features[learnt], same[learnt])
            held[name][~learnt] = [
                1 / (1 + np.exp(-model.log_odds(row))) for row in features[~learnt].tolist()
            ]
    about: dict[str, Any] = {
        "seed": SEED,
        "groups": len(groups),
        "pairs": {"same": int(same.sum()), "not": int((~same).sum())},
        "data": [{"name": file.name, "sha256": file.sha256} for file in files],
        "held_out": {
            name: {str(share): round(recall_at(of, same, share), 3) for share in (0.01, 0.03, 0.1)}
            for name, of in {**held, "cross-encoder": scores.astype(np.float64)}.items()
        },
    }
    made = ConversationWeights(
        features_version=CONVERSATION_FEATURES_VERSION,
        plain=_fit(rows["plain"], same),
        scored=_fit(rows["scored"], same),
        encoder=encoder,
    )
    outcomes = zip(held["scored"].tolist(), same.tolist(), strict=True)
    write_conversations_file(weights / "conversations.json", made, count(outcomes), about)
    return about


def _fit(features: FloatArray, same: npt.NDArray[np.bool_]) -> Logistic:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=_PENALTY, max_iter=5000).fit(features, same)
    return Logistic(
        weights=tuple(round(float(w), 4) for w in model.coef_[0]), bias=round(float(model.intercept_[0]), 4)
    )


if __name__ == "__main__":
    print(json.dumps(make(Path(sys.argv[1])), indent=1, ensure_ascii=False))
