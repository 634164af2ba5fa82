"""The words that the gateway and its worker exchange: length-prefixed JSON over one Unix socket."""

from __future__ import annotations

import asyncio
import socket
import struct

import msgspec

from backends.batched.config import BatchedConfig
from backends.protocols import EngineInfo, Failure, Job, Load, Piece

MAX_FRAME_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Gateway to worker, first: load this engine."""

    config: BatchedConfig


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    job: Job


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    job_id: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Answered by Pong, from the thread that hands jobs to the engine."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Worker to gateway, once: the engine takes jobs."""

    info: EngineInfo


class Unavailable(msgspec.Struct, frozen=True, tag="unavailable"):
    """Worker to gateway instead of Ready; the worker ends after it."""

    message: str


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    load: Load


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    piece: Piece


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    failure: Failure


ToWorker = Start | Submit | Cancel | Ping
FromWorker = Ready | Unavailable | Pong | Progress | Failed

_encoder = msgspec.json.Encoder()
_to_worker = msgspec.json.Decoder(ToWorker)
_from_worker = msgspec.json.Decoder(FromWorker)


def encode(frame: ToWorker | FromWorker) -> bytes:
    body = _encoder.encode(frame)
    return _LENGTH.pack(len(body)) + body


async def read_from_worker(reader: asyncio.StreamReader) -> FromWorker:
    """Raises asyncio.IncompleteReadError at the end of the stream, ValueError on a frame out of shape."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes")
    return _from_worker.decode(await reader.readexactly(length))


def read_to_worker(sock: socket.socket) -> ToWorker | None:
    """Blocks for the next frame; None at the end of the stream."""
    head = _read_exactly(sock, _LENGTH.size)
    if head is None:
        return None
    body = _read_exactly(sock, _LENGTH.unpack(head)[0])
    return None if body is None else _to_worker.decode(body)


def _read_exactly(sock: socket.socket, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        part = sock.recv(count)
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
