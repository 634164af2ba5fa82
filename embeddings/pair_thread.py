"""The cross-encoder as the event loop uses it: on one thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from embeddings.protocols import EmbedderError

TextPair = tuple[str, str]


class PairScorer(Protocol):
    """Reads two texts together. Safe to call from one thread at a time. Raises EmbedderError."""

    @property
    def identity(self) -> str:
        """Of the weights: what was calibrated on its scores holds for no others'."""
        ...

    def score(self, pairs: Sequence[TextPair]) -> Any:
        """Of (asked, cached): `logits`, float32 (N,), log-odds; `truncated`, bool (N,), where a pair was
        longer than the window."""
        ...

    def close(self) -> None: ...


class PairThread:
    """Owns its scorer."""

    def __init__(self, scorer: PairScorer) -> None:
        self.identity = scorer.identity
        self._scorer = scorer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lockgate-verifier")

    async def score(self, pairs: Sequence[TextPair]) -> list[float | None]:
        """Log-odds of each pair; None where it is longer than the window. Raises EmbedderError, whatever it
        was that failed."""
        try:
            scores = await asyncio.get_running_loop().run_in_executor(self._thread, self._scorer.score, pairs)
        except EmbedderError:
            raise
        except Exception as error:  # the thread's edge; a foreign message may quote the texts
            raise EmbedderError(f"reading pairs failed ({type(error).__name__})") from error
        return [
            None if cut else logit
            for logit, cut in zip(scores.logits.tolist(), scores.truncated, strict=True)
        ]

    def close(self) -> None:
        """Blocks until the pairs in hand have been read."""
        self._thread.shutdown(cancel_futures=True)
        self._scorer.close()
