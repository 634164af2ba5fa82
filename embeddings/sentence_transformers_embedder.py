"""Sentence embeddings through the sentence-transformers library: any model it can load, on PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from embeddings.embedding_models import locate_minilm
from embeddings.protocols import EmbedderError, Encoding, FloatMatrix
from embeddings.text_tokenizer import well_formed

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_BATCH = 32


class SentenceTransformersEmbedder:
    """Implements Embedder. Safe to call from one thread at a time."""

    def __init__(self, model: SentenceTransformer, name: str) -> None:
        self._model: Any | None = model
        self._prompt = str(model.prompts.get(model.default_prompt_name or "", ""))
        self._max_tokens = int(model.max_seq_length or model.tokenizer.model_max_length)
        self._dimension = len(self._vectors(model, [""])[0])
        precision = str(model.dtype).removeprefix("torch.")
        self._space = f"{name}-{precision}-{_fingerprint(model)}/sentence-transformers-{model.device.type}"

    @classmethod
    def open(
        cls, model: str, device: Literal["auto", "cpu", "cuda"] = "auto", *, download: bool = True
    ) -> Self:
        """`model` is "minilm", a folder, or a name on the Hugging Face hub: fetched when it is not in the
        hub's local cache, unless `download` is False. Raises EmbedderError."""
        if model == "default":
            raise EmbedderError(
                'the default embedding model runs on ONNX Runtime: use kind = "onnx", or set `model` to '
                '"minilm", a folder or the name of a model on a hub'
            )
        folder = locate_minilm() if model == "minilm" else Path(model).expanduser()
        source = str(folder) if folder.is_dir() else model
        name = "all-MiniLM-L6-v2" if model == "minilm" else Path(model).expanduser().name
        return cls(_load(source, _torch_device(device), download and not folder.is_dir()), name)

    @property
    def space(self) -> str:
        return self._space

    @property
    def dimension(self) -> int:
        return self._dimension

    @property
    def max_tokens(self) -> int:
        return self._max_tokens

    def encode(self, texts: Sequence[str]) -> Encoding:
        if self._model is None:
            raise EmbedderError("the embedder is closed")
        whole = [well_formed(text) for text in texts]
        counts = np.array([self._count(text) for text in whole], np.int64)
        vectors = self._vectors(self._model, whole) if whole else np.empty((0, self._dimension), np.float32)
        return Encoding(vectors=vectors, token_counts=counts, truncated=counts > self._max_tokens)

    def close(self) -> None:
        self._model = None

    def _count(self, text: str) -> int:
        assert self._model is not None
        return len(self._model.tokenizer(self._prompt + text, truncation=False, verbose=False)["input_ids"])

    def _vectors(self, model: Any, texts: list[str]) -> FloatMatrix:
        try:
            found = model.encode(texts, batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False)
        except (RuntimeError, ValueError, TypeError) as error:
            raise EmbedderError(f"sentence-transformers failed: {_first_line(error)}") from error
        vectors: FloatMatrix = np.asarray(found, np.float32)
        return vectors


def _torch_device(device: Literal["auto", "cpu", "cuda"]) -> str:
    try:
        import torch
    except ImportError as error:
        raise _missing() from error
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise EmbedderError(
            'PyTorch cannot use CUDA here: install a CUDA build of torch, or set device = "cpu"'
        )
    return "cuda" if device != "cpu" and available else "cpu"


def _load(source: str, device: str, download: bool) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise _missing() from error
    try:
        # What is here is used without asking the network, whose retries take a minute when there is none.
        return SentenceTransformer(source, device=device, local_files_only=True)
    except Exception as error:
        if not download:
            raise EmbedderError(f"embedding model {source!r}: {_first_line(error)}") from error
    try:
        return SentenceTransformer(source, device=device)
    except Exception as error:
        raise EmbedderError(
            f"embedding model {source!r} is no folder and no model the hub gave: {_first_line(error)}"
        ) from error


def _missing() -> EmbedderError:
    return EmbedderError(
        "sentence-transformers is not installed: pip install 'lockgate[sentence-transformers]'"
    )


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def _fingerprint(model: Any) -> str:
    """12 hex digits of the weights: a hub's name can come to mean other ones. transformers' own pooler does
    not count: unused here, and random in models that come without it."""
    import torch

    total = hashlib.blake2b(digest_size=6)
    for name, weight in sorted(model.state_dict().items()):
        if ".pooler." in name:
            continue
        total.update(name.encode())
        total.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return total.hexdigest()
