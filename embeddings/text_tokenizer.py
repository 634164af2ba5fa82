"""Texts to token ids within a model's window, through the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from embeddings.protocols import EmbedderError, IdArray


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedTexts:
    """`ids[i]` has at most the window's tokens, special tokens included. `counts` and `truncated` are those
    of `embeddings.protocols.Encoding`."""

    ids: list[list[int]]
    counts: IdArray
    truncated: npt.NDArray[np.bool_]


def well_formed(text: str) -> str:
    """JSON can carry half a surrogate pair, which is no Unicode text: it becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


class TextTokenizer:
    """Reads `tokenizer.json`; its own truncation and padding are off. Raises EmbedderError."""

    def __init__(self, path: Path, max_tokens: int) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise EmbedderError(f"{path} cannot be read: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # A text that spells a special token ("[SEP]") is text.
        self._tokenizer.encode_special_tokens = True
        self._max_tokens = max_tokens
        self._room = max_tokens - self._tokenizer.num_special_tokens_to_add(is_pair=False)

    def encode(self, texts: Sequence[str]) -> TokenizedTexts:
        ids: list[list[int]] = []
        counts = np.empty(len(texts), np.int64)
        for i, text in enumerate(texts):
            encoding = self._tokenizer.encode(well_formed(text), add_special_tokens=False)
            counts[i] = len(encoding) + self._max_tokens - self._room
            if len(encoding) > self._room:
                encoding.truncate(self._room)
            ids.append(self._tokenizer.post_process(encoding, add_special_tokens=True).ids)
        return TokenizedTexts(ids=ids, counts=counts, truncated=counts > self._max_tokens)
