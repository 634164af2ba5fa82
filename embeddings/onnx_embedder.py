"""Sentence embeddings through ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from embeddings import embedding_models
from embeddings.embedding_models import EmbeddingModel
from embeddings.length_buckets import buckets
from embeddings.onnx_session import CPU, CUDA, NO_CUDA, Device, cuda_built, first_line, on_cuda, open_session
from embeddings.protocols import EmbedderError, Encoding, FloatMatrix, IdArray
from embeddings.sentence_transformers_layout import Pooling
from embeddings.text_tokenizer import TextTokenizer

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

# Of one call, padding included: bounds its memory.
_MAX_TOKENS = {"cpu": 2048, "cuda": 16_384}
# What a call costs beside its tokens, in tokens. Measured on a CPU: .9 ms, and .12 ms for a token.
_CALL_COST = {"cpu": 8, "cuda": 512}
_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
_POOLED = ("embedding", "sentence_embedding")
_PER_TOKEN = ("last_hidden_state", "token_embeddings")


class OnnxEmbedder:
    """Implements Embedder. One ONNX Runtime session; safe to call from one thread at a time."""

    def __init__(self, model: EmbeddingModel, session: InferenceSession) -> None:
        self._model = model
        self._session: InferenceSession | None = session
        self._tokenizer = TextTokenizer(model.tokenizer, model.max_tokens)
        self._inputs = _inputs_of(session, model)
        self._output = _output_of(session, model)
        self._pooling = None if self._output in _POOLED else model.pooling
        self._provider = "cuda" if on_cuda(session) else "cpu"
        self._dimension: int = self._run(self._tokenizer.encode([model.prompt]).ids).shape[1]

    @classmethod
    def open(cls, model: str = "default", device: Device = "auto", threads: int = 1) -> Self:
        """`model`: see `embedding_models.find`. `threads` is how many the runtime computes with.

        "auto" takes CUDA where ONNX Runtime can start it. Models converted here run in 8 bits on a CPU and in
        float32 on CUDA. The first use of a model converts it, which takes some seconds. Raises EmbedderError.
        """
        if device != "cpu":
            if cuda_built():
                found = embedding_models.find(model, "fp32")
                session = _open(found, [CUDA, CPU], threads)
                if on_cuda(session):
                    return cls(found, session)
            if device == "cuda":
                raise EmbedderError(NO_CUDA)
        found = embedding_models.find(model, "int8")
        return cls(found, _open(found, [CPU], threads))

    @property
    def space(self) -> str:
        return f"{self._model.identity}/onnxruntime-{self._provider}"

    @property
    def dimension(self) -> int:
        return self._dimension

    @property
    def max_tokens(self) -> int:
        return self._model.max_tokens

    def encode(self, texts: Sequence[str]) -> Encoding:
        """Texts of like length run together, so that short ones do not pay for padding."""
        tokens = self._tokenizer.encode([self._model.prompt + text for text in texts])
        vectors: FloatMatrix = np.empty((len(texts), self._dimension), np.float32)
        lengths = np.array([len(ids) for ids in tokens.ids], np.int64)
        for rows in buckets(lengths, _CALL_COST[self._provider], _MAX_TOKENS[self._provider]):
            vectors[rows] = self._run([tokens.ids[row] for row in rows])
        return Encoding(vectors=vectors, token_counts=tokens.counts, truncated=tokens.truncated)

    def close(self) -> None:
        self._session = None

    def _run(self, batch: Sequence[Sequence[int]]) -> FloatMatrix:
        if self._session is None:
            raise EmbedderError("the embedder is closed")
        shape = len(batch), max(len(ids) for ids in batch)
        feeds: dict[str, npt.NDArray[np.int64]] = {name: np.zeros(shape, np.int64) for name in _INPUTS}
        for row, ids in enumerate(batch):
            feeds["input_ids"][row, : len(ids)] = ids
            feeds["attention_mask"][row, : len(ids)] = 1
        try:
            output = self._session.run([self._output], {name: feeds[name] for name in self._inputs})[0]
        except Exception as error:  # the runtime's own errors share no base class
            raise EmbedderError(
                f"ONNX Runtime failed on {shape[0]} x {shape[1]} tokens: {first_line(error)}"
            ) from error
        return _unit(_pool(output, feeds["attention_mask"], self._pooling))


def _open(model: EmbeddingModel, providers: list[str], threads: int) -> InferenceSession:
    again = f"; remove {model.graph.parent} to have it converted again" if model.converted else ""
    return open_session(model.graph, providers, threads, again)


def _inputs_of(session: InferenceSession, model: EmbeddingModel) -> list[str]:
    names = [item.name for item in session.get_inputs()]
    if unknown := set(names) - _INPUTS:
        raise EmbedderError(f"{model.graph} asks for the input {min(unknown)}, which is not known here")
    return names


def _output_of(session: InferenceSession, model: EmbeddingModel) -> str:
    """The output to read; the graph pools by itself exactly when it has one of the pooled names."""
    names = [item.name for item in session.get_outputs()]
    for name in (*_POOLED, *_PER_TOKEN):
        if name in names:
            return name
    known = ", ".join((*_POOLED, *_PER_TOKEN))
    raise EmbedderError(f"{model.graph} has the outputs {', '.join(names)}; one of {known} is needed")


def _pool(output: npt.NDArray[Any], mask: IdArray, pooling: Pooling | None) -> FloatMatrix:
    vectors: FloatMatrix = output.astype(np.float32, copy=False)
    if pooling == "mean":
        vectors = np.einsum("btd,bt->bd", vectors, mask.astype(np.float32))
    elif pooling == "cls":
        vectors = vectors[:, 0]
    return vectors


def _unit(vectors: FloatMatrix) -> FloatMatrix:
    unit: FloatMatrix = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
