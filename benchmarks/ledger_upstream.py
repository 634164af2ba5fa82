"""An upstream that counts: what it was asked, and the usage it has told of, by model.

    python -m benchmarks.ledger_upstream PORT

It answers five APIs as the question in each request says (`benchmarks.ledger_questions`), so that the same
request has the same answer in every run. What it counts for a stream that does not end is the usage of the
last event it wrote. `GET /count` is one object: `running` (requests that are not over), and `models`, each
with `requests`, `prompt`, `completion`, `cached`, `written` and `picousd`. `GET /arrived?ID.N` is answered
once the Nth request with question ID is there; `GET /go?ID` lets a stream that paused go on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import uvloop

from benchmarks.ledger_answers import ending, failing, failure, opening, piece, whole
from benchmarks.ledger_questions import (
    BY_UPSTREAM_NAME,
    NO_TOKENS,
    PATHS,
    Api,
    Question,
    Tokens,
    question_in,
)
from benchmarks.upstream import STREAM_HEAD, request_end

_APIS: dict[bytes, Api] = {path.encode(): api for api, path in PATHS.items()}
_LAST = b"0\r\n\r\n"


@dataclass(slots=True, kw_only=True)
class Count:
    """Of one model."""

    requests: int = 0
    tokens: Tokens = NO_TOKENS


@dataclass(slots=True, kw_only=True)
class Counts:
    """Of all connections. `asked`: requests by question; `waiting`: who is to be told of the Nth of one."""

    models: dict[str, Count] = field(default_factory=lambda: defaultdict(Count))
    asked: Counter[int] = field(default_factory=Counter)
    running: int = 0
    waiting: list[tuple[int, int, Connection]] = field(default_factory=list)
    paused: dict[int, Connection] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        models = {
            name: {
                "requests": count.requests,
                **asdict(count.tokens),
                "picousd": BY_UPSTREAM_NAME[name].picousd(count.tokens),
            }
            for name, count in self.models.items()
        }
        return {"running": self.running, "models": models}

    def arrived(self, question: Question) -> int:
        """How many requests with the question there are now."""
        self.asked[question.id] += 1
        for waiting in list(self.waiting):
            self.answer_when_arrived(*waiting)
        return self.asked[question.id]

    def answer_when_arrived(self, number: int, times: int, connection: Connection) -> None:
        entry = (number, times, connection)
        if self.asked[number] >= times:
            connection.write_whole(b"{}")
            if entry in self.waiting:
                self.waiting.remove(entry)
        elif entry not in self.waiting:
            self.waiting.append(entry)


@dataclass(slots=True, kw_only=True)
class _Answering:
    """One request under way: what it has told of so far."""

    api: Api
    question: Question
    model: str
    told: Tokens = NO_TOKENS


class Connection(asyncio.Protocol):
    """Serves one request at a time."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._buffer = bytearray()
        self._now: _Answering | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def connection_lost(self, _: Exception | None) -> None:
        self._over()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := request_end(self._buffer)) >= 0:
            request = bytes(self._buffer[:end])
            del self._buffer[:end]
            self._serve(request)

    def go_on(self) -> None:
        """Writes the rest of a stream that paused."""
        now = self._now
        if now is not None and not self._transport.is_closing():
            self._pieces(now, now.question.at, now.question.parts)
            self._finish_stream(now)

    def write_whole(self, body: bytes, status: int = 200, headers: str = "") -> None:
        head = f"HTTP/1.1 {status} As told\r\ncontent-type: application/json\r\n{headers}"
        self._transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def _serve(self, request: bytes) -> None:
        method, path, _ = request.split(b" ", 2)
        if method == b"GET":
            self._tell(path.decode())
            return
        api, question = _APIS[path], question_in(request)
        asked: dict[str, Any] = json.loads(request.partition(b"\r\n\r\n")[2])
        model = asked["model"]
        self._counts.models[model].requests += 1
        self._counts.running += 1
        self._now = now = _Answering(api=api, question=question, model=model)
        attempt = self._counts.arrived(question)
        if attempt <= len(question.first):
            self._fail(now, question.first[attempt - 1])
        elif question.then == "hold":
            pass
        elif asked.get("stream"):
            self._stream(now)
        else:
            now.told = question.vectors if api == "embeddings" else question.whole
            self.write_whole(whole(api, question, model))
            self._over()

    def _tell(self, path: str) -> None:
        what, _, about = path.partition("?")
        match what:
            case "/count":
                self.write_whole(json.dumps(self._counts.told()).encode())
            case "/arrived":
                number, _, times = about.partition(".")
                self._counts.answer_when_arrived(int(number), int(times), self)
            case "/go":
                if (paused := self._counts.paused.pop(int(about), None)) is not None:
                    paused.go_on()
                self.write_whole(b"{}")
            case _:
                self.write_whole(b'{"object":"list","data":[]}')

    def _fail(self, now: _Answering, how: str) -> None:
        if how == "cut":
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n"
                + whole(now.api, now.question, now.model)[:40]
            )
            self._break_off()
            return
        status = int(how.removesuffix("far"))
        headers = ""
        if status == 429:
            headers = f"retry-after: {60 if how.endswith('far') else 0}\r\n"
        self.write_whole(failure(now.api, status), status, headers)
        self._over()

    def _stream(self, now: _Answering) -> None:
        question = now.question
        self._transport.write(STREAM_HEAD)
        self._event(opening(now.api, question, now.model))
        if question.then == "ok":
            self._pieces(now, 0, question.parts)
            self._finish_stream(now)
            return
        self._pieces(now, 0, question.at)
        match question.then:
            case "error":
                self._event(failing(now.api))
                self._transport.write(_LAST)
                self._over()
            case "die":
                self._break_off()
            case "pause":
                self._counts.paused[question.id] = self

    def _pieces(self, now: _Answering, begin: int, end: int) -> None:
        for number in range(begin, end):
            self._event(piece(now.api, now.question, now.model, number))
            now.told = now.question.told(number + 1)

    def _finish_stream(self, now: _Answering) -> None:
        self._event(ending(now.api, now.question, now.model))
        self._transport.write(_LAST)
        now.told = now.question.whole
        self._over()

    def _event(self, data: bytes) -> None:
        if data:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _break_off(self) -> None:
        """What was written before arrives: the connection is closed, not reset."""
        self._over()
        self._transport.close()

    def _over(self) -> None:
        now, self._now = self._now, None
        if now is not None:
            self._counts.running -= 1
            self._counts.models[now.model].tokens += now.told
            self._counts.paused.pop(now.question.id, None)


async def serve(port: int) -> None:
    counts = Counts()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(counts), "127.0.0.1", port, backlog=2048)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("port", type=int)
    uvloop.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
