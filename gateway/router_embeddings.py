"""Embeds training prompts once: a long run that breaks off, or is repeated, reads the file it left."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from embeddings.protocols import Embedder, FloatMatrix

_SAVE_EVERY = 4096  # texts at most that a broken run loses


class EmbeddingCacheError(Exception):
    """The cache file cannot be read or written; the message names it."""


def cache_file(folder: Path, space: str) -> Path:
    """Where the vectors of one space are kept in `folder`."""
    return folder / f"embeddings-{hashlib.sha256(space.encode()).hexdigest()[:16]}.npz"


def embed(
    embedder: Embedder,
    texts: Sequence[str],
    folder: Path | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> FloatMatrix:
    """Vectors of `texts`, float32 (N, D). With a `folder`, what is in its cache file is not embedded again
    and what is new is added to it. `advance` is told how many more texts are done. Raises EmbedderError and
    EmbeddingCacheError."""
    path = None if folder is None else cache_file(folder, embedder.space)
    known = _read(path, embedder.dimension) if path else {}
    keys = [hashlib.sha256(text.encode()).digest()[:16] for text in texts]
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    advance(len(texts) - len(missing))
    for number, (key, text) in enumerate(missing.items(), 1):
        # One at a time: 8-bit activations are scaled over the batch, so a vector would depend on its company
        # and the trained weights on what the cache held before.
        known[key] = embedder.encode([text]).vectors[0]
        advance(1)
        if path and (number % _SAVE_EVERY == 0 or number == len(missing)):
            _write(path, known)
    found = np.empty((len(texts), embedder.dimension), dtype=np.float32)
    for row, key in enumerate(keys):
        found[row] = known[key]
    return found


def _read(path: Path, dimension: int) -> dict[bytes, FloatMatrix]:
    if not path.exists():
        return {}
    try:
        with np.load(path, allow_pickle=False) as stored:
            keys, vectors = stored["keys"], stored["vectors"]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise EmbeddingCacheError(f"{path}: not an embedding cache, remove it: {error}") from error
    if keys.shape != (len(vectors), 16) or vectors.shape != (len(keys), dimension):
        raise EmbeddingCacheError(f"{path}: not an embedding cache of dimension {dimension}, remove it")
    return {key.tobytes(): vector for key, vector in zip(keys, vectors, strict=True)}


def _write(path: Path, known: dict[bytes, FloatMatrix]) -> None:
    keys = np.frombuffer(b"".join(known), dtype=np.uint8).reshape(-1, 16)
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.savez(file, keys=keys, vectors=np.stack(list(known.values())))
        part.replace(path)
    except OSError as error:
        raise EmbeddingCacheError(f"{path}: cannot be written: {error}") from error
