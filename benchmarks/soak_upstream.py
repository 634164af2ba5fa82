"""The upstream of the soak: that of the benchmarks, but it takes its time, and counts what it works on.

    python -m benchmarks.soak_upstream PORT [--gap-ms MS]

A completion starts 2 to 30 ms after it was asked for; a stream then comes three events at a time, `--gap-ms`
apart. One question in a hundred takes 3 s more: what is at work for nobody shows. Every answer begins and
ends with the tag of its request (`tag_of`), so that a client knows it for its own. `GET /soak` is one object:
`asked` (completions so far), `running` (not yet answered whole), `dropped` (whose connection was lost before)
and `connections` (open, without the one that asks).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import zlib
from functools import partial

import uvloop

from benchmarks import upstream
from benchmarks.upstream import CONTENT, FRAMES, PIECES, STREAM_HEAD, Upstream, answer, response

_TAG_START = b"<q"
_TAG_BYTES = len(PIECES[0])
_MARK = b"@" * _TAG_BYTES
_MARKED = (_MARK.decode() + CONTENT[_TAG_BYTES:-_TAG_BYTES] + _MARK.decode()).encode()
_ANSWER = response(answer().replace(CONTENT.encode(), _MARKED))
_ENDS = {
    FRAMES.index(frame) for frame in FRAMES if PIECES[0].encode() in frame or PIECES[-1].encode() in frame
}
_FRAMES = [
    frame.replace(PIECES[0].encode(), _MARK).replace(PIECES[-1].encode(), _MARK) if number in _ENDS else frame
    for number, frame in enumerate(FRAMES)
]
_EVENTS_A_WRITE = 3
_SLOW_ONE_IN = 100
_SLOW_S = 3.0


def tag_of(number: int) -> str:
    """What a question holds somewhere to have it at both ends of its answer: 16 characters."""
    return f"<q{number:0{_TAG_BYTES - 4}d}> "


class SoakUpstream(Upstream):
    """One connection; the counts are of all."""

    running = 0
    dropped = 0
    connections = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        SoakUpstream.connections += 1
        self._next: asyncio.TimerHandle | None = None

    def connection_lost(self, _: Exception | None) -> None:
        SoakUpstream.connections -= 1
        if self._next is not None:
            self._next.cancel()
            SoakUpstream.running -= 1
            SoakUpstream.dropped += 1

    def _answer(self, request: bytes) -> None:
        if not request.startswith(b"POST"):
            self._transport.write(told() if request.startswith(b"GET /soak ") else upstream.MODELS)
            return
        Upstream.count += 1
        SoakUpstream.running += 1
        at = request.find(_TAG_START)
        tag = request[at : at + _TAG_BYTES] if at >= 0 else _MARK
        chance = zlib.crc32(tag)
        slow = chance // 29 % _SLOW_ONE_IN == 0
        delay_s = (2 + chance % 29) / 1000
        if b'"stream":true' in request or b'"stream": true' in request:
            gap_s = _SLOW_S * _EVENTS_A_WRITE / len(_FRAMES) if slow else self._gap_s
            begin = partial(self._go_on, tag, 0, gap_s)
        else:
            delay_s += _SLOW_S if slow else 0.0
            begin = partial(self._whole, tag)
        self._next = asyncio.get_running_loop().call_later(delay_s, begin)

    def _whole(self, tag: bytes) -> None:
        self._transport.write(_ANSWER.replace(_MARK, tag))
        self._end()

    def _go_on(self, tag: bytes, number: int, gap_s: float) -> None:
        end = number + _EVENTS_A_WRITE
        frames = b"".join(_FRAMES[number:end]).replace(_MARK, tag)
        self._transport.write(frames if number else STREAM_HEAD + frames)
        if end < len(_FRAMES):
            self._next = asyncio.get_running_loop().call_later(gap_s, self._go_on, tag, end, gap_s)
        else:
            self._end()

    def _end(self) -> None:
        self._next = None
        SoakUpstream.running -= 1


def told() -> bytes:
    return response(
        json.dumps(
            {
                "asked": Upstream.count,
                "running": SoakUpstream.running,
                "dropped": SoakUpstream.dropped,
                "connections": SoakUpstream.connections - 1,
            }
        ).encode()
    )


async def serve(port: int, gap_s: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SoakUpstream(gap_s), "127.0.0.1", port, backlog=2048)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--gap-ms", type=float, default=4.0)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.gap_ms / 1000))


if __name__ == "__main__":
    main()
