"""The embedder's thread: whatever texts are waiting are encoded as one batch."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embeddings.protocols import Embedder, EmbedderError, EncodedText, Encoding

NORM_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """Since the start: batches encoded, texts in them (each distinct text once), how many were truncated;
    and the size of the last batch."""

    batches: int = 0
    texts: int = 0
    truncated: int = 0
    last_batch: int = 0


@dataclass(frozen=True, slots=True)
class _Waiter:
    text: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[EncodedText]


class EngineThread:
    """Micro-batcher. No timer: a lone text is encoded at once, and while the embedder is busy the next
    batch gathers. It owns its embedder."""

    def __init__(self, embedder: Embedder, *, max_batch: int = 32, max_backlog: int = 1024) -> None:
        if max_batch < 1 or max_backlog < 1:
            raise ValueError(f"max_batch and max_backlog must be at least 1: {max_batch}, {max_backlog}")
        self.space = embedder.space
        self.dimension = embedder.dimension
        self.max_tokens = embedder.max_tokens
        self.counters = EngineCounters()
        self._embedder = embedder
        self._max_batch = max_batch
        self._max_backlog = max_backlog
        self._condition = threading.Condition()
        self._waiting: deque[_Waiter] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="lockgate-embedder", daemon=True)
        self._thread.start()

    async def encode(self, text: str) -> EncodedText:
        """From any event loop. Raises EmbedderError. A cancelled call costs nothing if its batch has not
        begun."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[EncodedText] = loop.create_future()
        with self._condition:
            if self._closing:
                raise EmbedderError("the embedder is closed")
            if len(self._waiting) >= self._max_backlog:
                self._waiting = deque(waiter for waiter in self._waiting if not waiter.future.cancelled())
            if len(self._waiting) >= self._max_backlog:
                raise EmbedderError(f"the embedder cannot keep up: {self._max_backlog} texts in its backlog")
            self._waiting.append(_Waiter(text, loop, future))
            self._condition.notify()
        return await future

    def close(self) -> None:
        """End the thread after the batch in hand, fail those who still wait, close the embedder. Blocks.
        Closing again does nothing."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()

    def _work(self) -> None:
        try:
            while batch := self._take():
                self._encode(batch)
        finally:
            with self._condition:
                self._closing = True
                left, self._waiting = self._waiting, deque()
            _deliver(list(left), EmbedderError("the embedder is closed"))
            self._embedder.close()

    def _take(self) -> dict[str, list[_Waiter]]:
        """The waiters of up to `max_batch` distinct texts. Empty when it is time to end."""
        batch: dict[str, list[_Waiter]] = {}
        with self._condition:
            while not batch:
                self._condition.wait_for(lambda: self._closing or self._waiting)
                if self._closing:
                    return {}
                while self._waiting:
                    waiter = self._waiting[0]
                    if waiter.text not in batch and len(batch) == self._max_batch:
                        break
                    self._waiting.popleft()
                    if not waiter.future.cancelled():
                        batch.setdefault(waiter.text, []).append(waiter)
        return batch

    def _encode(self, batch: dict[str, list[_Waiter]]) -> None:
        try:
            encoded = self._encode_texts(list(batch))
        except Exception as error:  # noqa: BLE001 - the thread's edge: the waiters get it
            if len(batch) == 1:
                _fail(batch, error)
                return
        else:
            for waiters, result in zip(batch.values(), encoded, strict=True):
                _deliver(waiters, result)
            return
        for text, waiters in batch.items():  # one by one, so that a text that cannot be encoded fails alone
            if not all(waiter.future.cancelled() for waiter in waiters):
                self._encode({text: waiters})

    def _encode_texts(self, texts: list[str]) -> list[EncodedText]:
        encoding = self._embedder.encode(texts)
        _check(encoding, texts, self.dimension)
        self.counters = EngineCounters(
            batches=self.counters.batches + 1,
            texts=self.counters.texts + len(texts),
            truncated=self.counters.truncated + int(encoding.truncated.sum()),
            last_batch=len(texts),
        )
        return [
            # copied: a row would keep its whole batch in memory
            EncodedText(vector=vector.copy(), token_count=int(count), truncated=bool(cut))
            for vector, count, cut in zip(
                encoding.vectors, encoding.token_counts, encoding.truncated, strict=True
            )
        ]


def _check(encoding: Encoding, texts: Sequence[str], dimension: int) -> None:
    """A faulty embedder must not pass: with one vector for everything, every question gets one answer."""
    shape = (len(texts), dimension)
    if encoding.vectors.shape != shape or encoding.vectors.dtype != np.float32:
        raise EmbedderError(
            f"the embedder returned {encoding.vectors.dtype} {encoding.vectors.shape}, not float32 {shape}"
        )
    norms = np.linalg.norm(encoding.vectors, axis=1)
    if not (np.abs(norms - 1) <= NORM_TOLERANCE).all():  # so written that NaN fails
        raise EmbedderError("the embedder returned a vector whose norm is not 1")


def _fail(batch: dict[str, list[_Waiter]], error: Exception) -> None:
    for waiters in batch.values():
        _deliver(waiters, error)


def _deliver(waiters: list[_Waiter], result: EncodedText | Exception) -> None:
    for waiter in waiters:
        with contextlib.suppress(RuntimeError):  # that loop has been closed: no one waits any more
            waiter.loop.call_soon_threadsafe(_resolve, waiter.future, result)


def _resolve(future: asyncio.Future[EncodedText], result: EncodedText | Exception) -> None:
    if future.done():
        return
    if isinstance(result, EncodedText):
        future.set_result(result)
        return
    future.set_exception(EmbedderError(_reason(result)))


def _reason(error: Exception) -> str:
    """Of a foreign error only the type and the place: its message may quote the text."""
    if isinstance(error, EmbedderError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"encoding failed ({type(error).__name__}{place})"
