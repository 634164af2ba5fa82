"""The clients of the soak: connections that ask all kinds of questions, check the answers, and often leave.

What is asked, and when who leaves, comes from a seed; which of two requests comes first does not.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from benchmarks import load
from benchmarks.soak_upstream import tag_of

ANSWER_LIMIT_S = 30.0
TENANTS = 4
REPEATED = 200
"""Questions that are asked again and again, of each kind: found in the cache from the second time on."""
TOGETHER = 6
"""How many in a row ask the same new question: those at the same time share one call."""
LEAVERS_SHARE = 0.2
MAX_THINK_S = 0.1
_FILLER = "Explain the trade-offs of caching answers of a language model. " * 12
_RESET = struct.pack("ii", 1, 0)

Leaving = Literal["", "in the body", "before the answer", "in the answer"]

# How questions are asked, and the share of each way.
_WAYS = {"new": 0.45, "repeated": 0.25, "together": 0.2, "uncached": 0.1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One form of request, and the end of an answer in it."""

    name: str
    path: str
    stream: bool
    end: bytes

    def body(self, text: str) -> dict[str, Any]:
        fields: dict[str, Any] = {"model": "small", "temperature": 0, "stream": self.stream}
        if self.path == "/v1/responses":
            return {**fields, "input": text, "instructions": "Be brief.", "max_output_tokens": 256}
        messages = [{"role": "user", "content": text}]
        if self.path == "/v1/messages":
            return {**fields, "messages": messages, "system": "Be brief.", "max_tokens": 256}
        return {**fields, "messages": [{"role": "system", "content": "Be brief."}, *messages]}


_CHAT, _MESSAGES, _RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
KINDS = (
    Kind(name="chat", path=_CHAT, stream=False, end=b"}"),
    Kind(name="chat-stream", path=_CHAT, stream=True, end=b"data: [DONE]\n\n"),
    Kind(name="messages", path=_MESSAGES, stream=False, end=b"}"),
    Kind(name="messages-stream", path=_MESSAGES, stream=True, end=b'{"type":"message_stop"}\n\n'),
    Kind(name="responses", path=_RESPONSES, stream=False, end=b"}"),
    Kind(name="responses-stream", path=_RESPONSES, stream=True, end=b"}\n\n"),
)
_WEIGHTS = (3, 4, 1, 2, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request. `leaving`: where its client goes, if it does; `patience`: a number in [0, 1), how late."""

    kind: Kind
    data: bytes
    tag: bytes
    leaving: Leaving
    patience: float

    def fault(self, answer: load.Answer) -> str | None:
        """What is wrong with the answer; None when nothing is."""
        if answer.status != 200:
            return f"status {answer.status}"
        if answer.body.count(self.tag) < 2:
            return "another answer" if b"<q" in answer.body else "no whole answer"
        return None if answer.body.endswith(self.kind.end) else "another end"


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of the questions. `answered` by kind, `cache` by what the header says, `left` by where,
    `faults` by kind and what was wrong; `unwilling`: answered before their client could leave."""

    answered: Counter[str] = field(default_factory=Counter)
    cache: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    unwilling: int = 0

    def told(self) -> dict[str, Any]:
        answered = self.answered.total()
        return {
            "requests": answered + self.left.total() + self.faults.total(),
            "answered": dict(sorted(self.answered.items())),
            "cache": dict(sorted(self.cache.items())),
            "left": dict(sorted(self.left.items())),
            "answered_before_leaving": self.unwilling,
            "faults": dict(sorted(self.faults.items())),
        }


class Questions:
    """All questions of a run, one after the other; the numbers of new ones are never used twice."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._random = Random(seed)
        self._number = REPEATED
        self._together: list[tuple[Kind, int]] = []

    def next(self) -> Question:
        random = self._random
        [kind] = random.choices(KINDS, _WEIGHTS)
        [way] = random.choices(list(_WAYS), list(_WAYS.values()))
        if way == "repeated":
            number = random.randrange(REPEATED)
        elif way == "together":
            if not self._together:
                self._together = [(kind, self._new())] * TOGETHER
            kind, number = self._together.pop()
        else:
            number = self._new()
        # By the number, so that equal questions are one tenant's.
        headers = {"authorization": f"Bearer soak-tenant-{number % TENANTS}"}
        if way == "uncached":
            headers["cache-control"] = "no-store"
        tag = tag_of(number)
        return Question(
            kind=kind,
            data=load.post(f"{self._url}{kind.path}", kind.body(f"{tag}{_FILLER}"), headers),
            tag=tag.strip().encode(),
            leaving=self._leaving(kind),
            patience=random.random(),
        )

    def think_s(self) -> float:
        return self._random.random() * MAX_THINK_S

    def resets(self) -> bool:
        """Whether who leaves now does it with a reset, as a killed process may, or in good order."""
        return self._random.random() < 0.5

    def _new(self) -> int:
        self._number += 1
        return self._number

    def _leaving(self, kind: Kind) -> Leaving:
        if self._random.random() >= LEAVERS_SHARE:
            return ""
        places: tuple[Leaving, ...] = ("in the body", "before the answer")
        return self._random.choice((*places, "in the answer") if kind.stream else places)


async def visit(url: str, questions: Questions, tally: Tally, connections: int) -> None:
    """Keeps `connections` busy until it is cancelled; then all leave at once, whatever they are at."""
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(_come_and_go(url, questions, tally))


async def _come_and_go(url: str, questions: Questions, tally: Tally) -> None:
    """One client after another on one place."""
    where = urlsplit(url)
    loop = asyncio.get_running_loop()
    while True:
        try:
            _, line = await loop.create_connection(_Line, where.hostname or "", where.port or 80)
        except OSError:
            tally.faults["no connection"] += 1
            await asyncio.sleep(0.1)
            continue
        try:
            while await _ask(line, questions.next(), tally, questions.think_s()):
                pass
        finally:
            line.leave(reset=questions.resets())


async def _ask(line: _Line, question: Question, tally: Tally, think_s: float) -> bool:
    """Whether the connection is still there afterwards."""
    await asyncio.sleep(think_s)
    if question.leaving == "in the body":
        line.send(question.data[: int(len(question.data) * question.patience) or 1])
        await asyncio.sleep(question.patience * 0.01)
        tally.left["in the body"] += 1
        return False
    line.send(question.data)
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            if question.leaving and not await _stayed(line, question):
                tally.left[question.leaving] += 1
                return False
            answer = await line.answer()
    except TimeoutError:
        fault: str | None = "no answer in time"
    except ConnectionError as error:
        fault = str(error)
    else:
        tally.unwilling += bool(question.leaving)
        fault = question.fault(answer)
    if fault is not None:
        tally.faults[f"{question.kind.name}: {fault}"] += 1
        return False
    tally.answered[question.kind.name] += 1
    tally.cache[header(answer, b"x-lockgate-cache")] += 1
    return True


async def _stayed(line: _Line, question: Question) -> bool:
    """Waits until the client would leave; whether the answer was there before."""
    if question.leaving == "in the answer":
        await line.bytes_come(1 + int(6000 * question.patience))
        return line.whole() is not None
    try:
        async with asyncio.timeout(0.03 * question.patience):
            await line.bytes_come(1)
    except TimeoutError:
        return False
    return True


def header(answer: load.Answer, name: bytes) -> str:
    """A header's value; "" where there is none."""
    _, found, rest = answer.head.partition(b"\r\n" + name + b": ")
    return rest.partition(b"\r\n")[0].decode() if found else ""


class _Line(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._lost = False
        self._news: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._wake()

    def connection_lost(self, _: Exception | None) -> None:
        self._lost = True
        self._wake()

    def send(self, data: bytes) -> None:
        self._buffer.clear()
        self._transport.write(data)

    def whole(self) -> load.Answer | None:
        try:
            return load.parse(self._buffer)
        except ValueError:
            raise ConnectionError("not HTTP") from None

    async def answer(self) -> load.Answer:
        """Raises ConnectionError, saying what happened."""
        while (answer := self.whole()) is None:
            await self._more()
        return answer

    async def bytes_come(self, count: int) -> None:
        """Until so many bytes, or the whole answer, are there. Raises ConnectionError."""
        while len(self._buffer) < count and self.whole() is None:
            await self._more()

    def leave(self, *, reset: bool) -> None:
        sock = self._transport.get_extra_info("socket")
        if reset and sock is not None and not self._transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    async def _more(self) -> None:
        if self._lost:
            raise ConnectionError("connection lost")
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
