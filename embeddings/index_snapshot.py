"""The file an index is saved in.

    magic, header (JSON), then for each partition: its key; pieces of (ids, vectors) in row order, an empty
    one last; rows that changed while the pieces were copied, their ids, the vectors of those that are not
    gone; its codes. Last the BLAKE2b digest, 32 bytes, of all before it.

Each part is preceded by its length, 8 bytes. Numbers are little-endian as numpy has them in memory.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from embeddings.flat_rows import HalfMatrix
from embeddings.index_partition import Partition
from embeddings.row_codes import RabitqCodes
from embeddings.slab_rows import SlabRows

MAGIC = b"lockgate vector index\n"
VERSION = 1
DIGEST_BYTES = 32
BLOCK = 2**20


class Header(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    dimension: int
    label: str
    partitions: int


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    key: bytes
    rows: SlabRows
    codes: RabitqCodes | None


class DamagedSnapshot(Exception):
    """The file is not what `write` wrote, or is of something else."""


def write(path: Path, dimension: int, label: str, partitions: list[tuple[bytes, Partition]]) -> None:
    """Write beside `path` and rename. Of each partition, 2,048 rows at a time are copied under its lock,
    and its codes at the end, so searches and writes wait for milliseconds. Raises OSError.

    Without fsync: a power cut may leave a file whose digest does not fit, which is then not loaded.
    """
    for left in path.parent.glob(f".{path.name}.*.new"):  # of a process that was killed
        left.unlink(missing_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)  # is 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            out = _Writer(file)
            out.raw(MAGIC)
            header = Header(version=VERSION, dimension=dimension, label=label, partitions=len(partitions))
            out.part(msgspec.json.encode(header))
            for key, partition in partitions:
                out.part(key)
                _write_partition(out, partition)
            file.write(out.digest.digest())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _write_partition(out: _Writer, partition: Partition) -> None:
    with partition.logging() as log:
        for ids, halves in partition.copy():
            out.part(ids.tobytes())
            out.part(halves.tobytes())
        out.part(b"")
        rows, ids, halves, codes = partition.changes(log)
    for part in (rows.tobytes(), ids.tobytes(), halves.tobytes(), codes):
        out.part(part)


def read(faiss: Any, path: Path, dimension: int, label: str) -> Iterator[Restored]:
    """The partitions of a snapshot; where one id is in two, the later is right. The digest is looked at
    before anything else. Raises OSError and DamagedSnapshot."""
    with path.open("rb") as file:
        _check_digest(file)
        source = _Reader(file)
        if source.raw(len(MAGIC)) != MAGIC:
            raise DamagedSnapshot("it is not a snapshot of an index")
        try:
            header = msgspec.json.decode(source.part(), type=Header)
        except msgspec.MsgspecError as error:
            raise DamagedSnapshot(f"its header cannot be read: {error}") from error
        for name, of_file, ours in (
            ("version", header.version, VERSION),
            ("dimension", header.dimension, dimension),
            ("label", header.label, label),
        ):
            if of_file != ours:
                raise DamagedSnapshot(f"its {name} is {of_file!r}, not {ours!r}")
        for _ in range(header.partitions):
            yield _read_partition(faiss, source, dimension)


def _read_partition(faiss: Any, source: _Reader, dimension: int) -> Restored:
    key = source.part()
    slab = SlabRows(dimension)
    while raw := source.part():
        ids = np.frombuffer(raw, dtype=np.int64)
        halves = _matrix(source.part(), dimension)
        slab.restore(np.arange(slab.end, slab.end + len(ids), dtype=np.int64), ids, halves)
    rows = np.frombuffer(source.part(), dtype=np.int64)
    ids = np.frombuffer(source.part(), dtype=np.int64)
    halves = _matrix(source.part(), dimension)
    slab.restore(rows, ids, halves)
    slab.close_restored()
    codes = source.part()
    return Restored(key=key, rows=slab, codes=RabitqCodes.parse(faiss, codes) if codes else None)


def _matrix(halves: bytes, dimension: int) -> HalfMatrix:
    return np.frombuffer(halves, dtype=np.float16).reshape(-1, dimension)


def _check_digest(file: BinaryIO) -> None:
    left = os.fstat(file.fileno()).st_size - DIGEST_BYTES
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    while left > 0 and (block := file.read(min(BLOCK, left))):
        digest.update(block)
        left -= len(block)
    if left < 0 or file.read(DIGEST_BYTES) != digest.digest():
        raise DamagedSnapshot("its digest does not fit")
    file.seek(0)


class _Writer:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def raw(self, content: bytes) -> None:
        self._file.write(content)
        self.digest.update(content)

    def part(self, content: bytes) -> None:
        self.raw(len(content).to_bytes(8, "little"))
        self.raw(content)


class _Reader:
    """Of a file whose digest fits: lengths are what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def raw(self, length: int) -> bytes:
        return self._file.read(length)

    def part(self) -> bytes:
        return self._file.read(int.from_bytes(self._file.read(8), "little"))
