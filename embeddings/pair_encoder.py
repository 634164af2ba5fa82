"""A cross-encoder through ONNX Runtime: reads two texts together and says whether one answer serves both.

A folder of it holds `model.onnx`, `tokenizer.json` and `about.json`, which tells the hashes of the other two.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from embeddings import bert_onnx
from embeddings.bert_weights import BertWeights, PairHead
from embeddings.length_buckets import buckets
from embeddings.onnx_session import CPU, CUDA, NO_CUDA, Device, cuda_built, first_line, on_cuda, open_session
from embeddings.pair_thread import TextPair
from embeddings.protocols import EmbedderError, FloatVector
from embeddings.text_tokenizer import well_formed

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

FORMAT: Final = "lockgate-pair-encoder-1"
_FILES: Final = ("model.onnx", "tokenizer.json")
_SPECIAL: Final = 4  # <s> asked </s></s> cached </s>
_MAX_TOKENS: Final = 4096  # of one call, padding included
_CALL_COST: Final = 8  # as of the embedder


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScores:
    """`logits`: float32 (N,), the log-odds that one answer serves both. `truncated`: bool (N,), the pair was
    longer than the window and its end was not read."""

    logits: FloatVector
    truncated: npt.NDArray[np.bool_]


class _About(msgspec.Struct, frozen=True, kw_only=True):
    """What the reader needs of about.json. `sha256`: of each of the other files."""

    max_tokens: Annotated[int, msgspec.Meta(gt=_SPECIAL)]
    bos: Annotated[int, msgspec.Meta(ge=0)]
    eos: Annotated[int, msgspec.Meta(ge=0)]
    sha256: dict[str, str]


class PairEncoder:
    """Implements PairScorer. One session; safe to call from one thread at a time."""

    def __init__(self, session: InferenceSession, tokenizer: Tokenizer, about: _About) -> None:
        self.identity = f"{about.sha256['model.onnx'][:16]}/{'cuda' if on_cuda(session) else 'cpu'}"
        self.max_tokens = about.max_tokens
        self._session: InferenceSession | None = session
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # a text that spells a special token is text
        self._tokenizer = tokenizer
        self._bos, self._eos = about.bos, about.eos

    @classmethod
    def open(cls, folder: Path, device: Device = "auto", threads: int = 1) -> Self:
        """ "auto" takes CUDA where ONNX Runtime can start it. Raises EmbedderError."""
        about = _about(folder)
        tokenizer = _tokenizer(folder / "tokenizer.json")
        graph = folder / "model.onnx"
        if device != "cpu" and cuda_built():
            session = open_session(graph, [CUDA, CPU], threads)
            if on_cuda(session):
                return cls(session, tokenizer, about)
        if device == "cuda":
            raise EmbedderError(NO_CUDA)
        return cls(open_session(graph, [CPU], threads), tokenizer, about)

    def score(self, pairs: Sequence[TextPair]) -> PairScores:
        """Of (asked, cached): a cross-encoder may tell the two orders apart. Pairs of like length run
        together. Raises EmbedderError."""
        rows = [self._ids(asked, cached) for asked, cached in pairs]
        lengths = np.array([len(ids) for ids, _ in rows], np.int64)
        logits: FloatVector = np.empty(len(rows), np.float32)
        for batch in buckets(lengths, _CALL_COST, _MAX_TOKENS):
            logits[batch] = self._run([rows[row][0] for row in batch])
        return PairScores(logits=logits, truncated=np.array([cut for _, cut in rows], np.bool_))

    def close(self) -> None:
        self._session = None

    def _ids(self, asked: str, cached: str) -> tuple[list[int], bool]:
        """The longer text is cut first."""
        first, second = (
            self._tokenizer.encode(well_formed(text), add_special_tokens=False).ids
            for text in (asked, cached)
        )
        room = self.max_tokens - _SPECIAL
        cut = len(first) + len(second) > room
        if cut:
            kept = max(room - min(len(first), len(second)), room // 2)
            first = first[:kept]
            second = second[: room - len(first)]
        return [self._bos, *first, self._eos, self._eos, *second, self._eos], cut

    def _run(self, batch: Sequence[Sequence[int]]) -> FloatVector:
        if self._session is None:
            raise EmbedderError("the cross-encoder is closed")
        shape = len(batch), max(len(ids) for ids in batch)
        ids = np.zeros(shape, np.int64)
        mask = np.zeros(shape, np.int64)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        try:
            logits: FloatVector = self._session.run(["logit"], {"input_ids": ids, "attention_mask": mask})[0]
        except Exception as error:  # the runtime's own errors share no base class
            raise EmbedderError(
                f"the cross-encoder failed on {shape[0]} x {shape[1]} tokens: {first_line(error)}"
            ) from error
        if logits.shape != (len(batch),) or not np.isfinite(logits).all():
            raise EmbedderError("the cross-encoder gave no finite score")
        return logits


def write_pair_encoder(
    weights: BertWeights,
    head: PairHead,
    tokenizer: Tokenizer,
    folder: Path,
    calibration: Sequence[Sequence[int]],
    about: Mapping[str, Any],
) -> None:
    """Writes the folder, linear layers in 8 bits. `calibration`: token ids of typical pairs. `about` holds
    `max_tokens`, `bos` and `eos`, and what else is to be told."""
    import onnx

    folder.mkdir(parents=True, exist_ok=True)
    onnx.save_model(bert_onnx.build_int8(weights, head, calibration), str(folder / "model.onnx"))
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    content = {"format": FORMAT, **about, "sha256": {name: _sha256(folder / name) for name in _FILES}}
    (folder / "about.json").write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", "utf-8")


def _about(folder: Path) -> _About:
    """Of a folder whose other files are those that it tells of."""
    path = folder / "about.json"
    try:
        content = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        if content.get("format") != FORMAT:
            raise EmbedderError(f"{path}: format {content.get('format')}, expected {FORMAT}")
        about = msgspec.convert(content, _About)
    except OSError as error:
        raise EmbedderError(f"the cross-encoder's {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # msgspec's errors are of this kind
        raise EmbedderError(f"{path} does not describe a cross-encoder: {error}") from error
    for name in _FILES:
        try:
            same = _sha256(folder / name) == about.sha256.get(name)
        except OSError as error:
            raise EmbedderError(f"{folder / name} cannot be read: {error.strerror}") from error
        if not same:
            raise EmbedderError(
                f"{folder / name} is damaged: it is not the file that about.json tells of; "
                "copy the whole folder again, or install again what it came with"
            )
    return about


def _tokenizer(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise EmbedderError(f"{path} cannot be read: {error}") from error


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
