"""What a peer's process is asked to do, and what it says of it: `cache_peers.py` starts the process with the
peer's own Python, which has neither Lockgate nor an embedding model.

    python -m benchmarks.peer_NAME texts FOLDER     writes texts.json: what the peer would have embedded
    python -m benchmarks.peer_NAME replay FOLDER    writes told.json: what it served

FOLDER holds job.json: `streams`, by name lists of questions, and `pairs`, by name lists of two conversations,
the cached and the asked; for a replay also vectors.npy, the vectors of texts.json, float32 (N, D).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`served`: the answer from the cache; None where the model was asked. `declined`: the peer found the
    request unfit for caching, and neither looked it up nor stored it."""

    served: str | None
    declined: bool = False


class PeerCache(Protocol):
    async def ask(self, messages: Messages, answer: str) -> Reply:
        """One request; on a miss the model's `answer` is stored."""
        ...

    async def close(self) -> None: ...


class Vectors:
    """The peer's embedding model: unit vectors, float32 (D,), worked out beforehand."""

    def __init__(self, texts: Sequence[str], rows: npt.NDArray[np.float32]) -> None:
        self._row = {text: i for i, text in enumerate(texts)}
        self._rows = rows
        self.dimension = int(rows.shape[1])

    def __getitem__(self, text: str) -> npt.NDArray[np.float32]:
        """Raises KeyError where the peer embeds another text than it said; which one, it does not tell: some
        are for evaluation only and are not to be printed."""
        if text not in self._row:
            raise KeyError("a text that the peer did not say it embeds")
        row: npt.NDArray[np.float32] = self._rows[self._row[text]]
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerProgram:
    """`embedded`: what the peer embeds of a text. `open`: an empty cache for that many entries, asynchronous
    since one of the peers is. `about`: its versions and its threshold, as it ships, as a cosine."""

    embedded: Callable[[str], str]
    open: Callable[[Vectors, int], Any]
    about: Callable[[], dict[str, Any]]


def message(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def main(program: PeerProgram) -> None:
    action, folder = sys.argv[1], Path(sys.argv[2])
    job = json.loads((folder / "job.json").read_text("utf-8"))
    texts = folder / "texts.json"
    if action == "texts":
        wanted = list(dict.fromkeys(map(program.embedded, _last_texts(job))))
        texts.write_text(json.dumps(wanted), "utf-8")
        return
    vectors = Vectors(json.loads(texts.read_text("utf-8")), np.load(folder / "vectors.npy"))
    told = asyncio.run(replay(program, job, vectors))
    (folder / "told.json").write_text(json.dumps({**told, **program.about()}), "utf-8")


async def replay(program: PeerProgram, job: dict[str, Any], vectors: Vectors) -> dict[str, Any]:
    """`streams`: by name `served`, for each question the row whose answer it got, or null; `declined`, how
    many; `cpu_s`. `pairs`: by name, for each pair whether the cached answer was served, and `declined`."""
    streams = {
        name: await _stream(await program.open(vectors, len(texts)), texts)
        for name, texts in job["streams"].items()
    }
    pairs = {}
    for name, both in job["pairs"].items():
        replies = [await _pair(await program.open(vectors, 2), *pair) for pair in both]
        pairs[name] = {
            "served": [reply.served is not None for reply in replies],
            "declined": sum(reply.declined for reply in replies),
        }
    return {"streams": streams, "pairs": pairs}


async def _stream(cache: PeerCache, texts: Sequence[str]) -> dict[str, Any]:
    began = time.process_time()
    replies = [await cache.ask(message(text), str(row)) for row, text in enumerate(texts)]
    cpu_s = time.process_time() - began
    await cache.close()
    return {
        "served": [None if reply.served is None else int(reply.served) for reply in replies],
        "declined": sum(reply.declined for reply in replies),
        "cpu_s": cpu_s,
    }


async def _pair(cache: PeerCache, cached: Messages, asked: Messages) -> Reply:
    await cache.ask(cached, "cached")
    reply = await cache.ask(asked, "asked")
    await cache.close()
    return reply


def _last_texts(job: dict[str, Any]) -> Iterator[str]:
    for texts in job["streams"].values():
        yield from texts
    for pairs in job["pairs"].values():
        for pair in pairs:
            yield from (messages[-1]["content"] for messages in pair)
