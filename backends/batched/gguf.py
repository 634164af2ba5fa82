"""Reads GGUF files and rewrites their Q4_1 weights as Q8_0.

llama.cpp multiplies a batch by Q8_0 weights as one matrix product, and by Q4_1 weights as one dot product
per row and sequence, which wins nothing from batching. Formats: https://github.com/ggml-org/ggml
docs/gguf.md (version 3) and src/ggml-common.h (block_q4_1, block_q8_0).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

_MAGIC = b"GGUF"
_VERSION = 3
_UINT32, _STRING, _ARRAY = 4, 8, 9
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

_Q4_1, _Q8_0 = 3, 8
_BLOCK = 32  # weights per block of either type
_Q4_1_BLOCK = np.dtype([("scale", "<f2"), ("least", "<f2"), ("nibbles", "u1", (_BLOCK // 2,))])
_Q8_0_BLOCK = np.dtype([("scale", "<f2"), ("values", "i1", (_BLOCK,))])
_MOSTLY_Q8_0 = 7  # of the key general.file_type

_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    name: bytes
    dims: tuple[int, ...]
    type: int
    start: int
    """From the beginning of the tensor data, in bytes."""


def requantize(source: Path, target: Path) -> None:
    """Writes `source` to `target` with every Q4_1 tensor as Q8_0. The values change by at most 1/254 of the
    largest in their block of 32. Raises ValueError for a file that is not GGUF version 3."""
    with source.open("rb") as file:
        tensor_count, key_count = _counts(file)
        keys = b"".join(_key_value(file)[1] for _ in range(key_count))
        tensors = [_tensor(file) for _ in range(tensor_count)]
        data_start = _aligned(file.tell())
    data = np.memmap(source, dtype=np.uint8, mode="r", offset=data_start)
    with target.open("wb") as out:
        out.write(_MAGIC + struct.pack("<IQQ", _VERSION, tensor_count, key_count) + keys)
        blocks = _write_infos(out, tensors, data)
        for tensor, block in zip(tensors, blocks, strict=True):
            out.write(_as_q8_0(block) if tensor.type == _Q4_1 else block.tobytes())
            _pad(out)


def context_length(path: Path) -> int | None:
    """The context that the model was trained with, in tokens; None where the file does not say. Raises
    ValueError for a file that is not GGUF version 3."""
    with path.open("rb") as file:
        _, key_count = _counts(file)
        for _ in range(key_count):
            name, entry = _key_value(file)
            if name.endswith(b".context_length"):
                return int.from_bytes(entry[-4:], "little")
    return None


def q4_1_to_q8_0(blocks: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Blocks of Q4_1, dtype (scale, least, nibbles), to as many of Q8_0, dtype (scale, values)."""
    nibbles = blocks["nibbles"]
    levels = np.concatenate([nibbles & 0x0F, nibbles >> 4], axis=1).astype(np.float32)
    weights = levels * blocks["scale"].astype(np.float32)[:, None]
    weights += blocks["least"].astype(np.float32)[:, None]
    scale = (np.abs(weights).max(axis=1) / 127).astype(np.float16)
    divisor = scale.astype(np.float32)[:, None]
    out = np.empty(len(blocks), dtype=_Q8_0_BLOCK)
    out["scale"] = scale
    steps = np.divide(weights, divisor, out=np.zeros_like(weights), where=divisor > 0)
    out["values"] = np.clip(np.rint(steps), -127, 127).astype(np.int8)
    return out


def _as_q8_0(data: npt.NDArray[np.uint8]) -> bytes:
    return q4_1_to_q8_0(data.view(_Q4_1_BLOCK)).tobytes()


def _write_infos(
    out: BinaryIO, tensors: list[_Tensor], data: npt.NDArray[np.uint8]
) -> list[npt.NDArray[np.uint8]]:
    """Writes the tensor table for the new sizes; returns each tensor's old data."""
    ends = [*sorted(tensor.start for tensor in tensors)[1:], len(data)]
    end_of = dict(zip(sorted(tensor.start for tensor in tensors), ends, strict=True))
    blocks = []
    start = 0
    for tensor in tensors:
        weights = math.prod(tensor.dims)
        if tensor.type == _Q4_1:
            old_size = weights // _BLOCK * _Q4_1_BLOCK.itemsize
            new_type, new_size = _Q8_0, weights // _BLOCK * _Q8_0_BLOCK.itemsize
        else:  # up to the next tensor, padding included: its own size need not be known
            old_size = end_of[tensor.start] - tensor.start
            new_type, new_size = tensor.type, old_size
        blocks.append(data[tensor.start : tensor.start + old_size])
        out.write(struct.pack("<Q", len(tensor.name)) + tensor.name)
        out.write(struct.pack(f"<I{len(tensor.dims)}Q", len(tensor.dims), *tensor.dims))
        out.write(struct.pack("<IQ", new_type, start))
        start = _aligned(start + new_size)
    _pad(out)
    return blocks


def _counts(file: BinaryIO) -> tuple[int, int]:
    """Of tensors and of metadata entries, which come next."""
    if file.read(4) != _MAGIC or _uint(file, 4) != _VERSION:
        raise ValueError(f"{file.name} is not a GGUF file of version {_VERSION}")
    return _uint(file, 8), _uint(file, 8)


def _key_value(file: BinaryIO) -> tuple[bytes, bytes]:
    """The name of a metadata entry, and the entry as it is, but for the file's type."""
    begin = file.tell()
    name = file.read(_uint(file, 8))
    kind = _uint(file, 4)
    if name == b"general.alignment":
        raise ValueError("a GGUF file with an alignment of its own")
    _skip_value(file, kind)
    end = file.tell()
    file.seek(begin)
    entry = file.read(end - begin)
    if name == b"general.file_type" and kind == _UINT32:
        entry = entry[:-4] + struct.pack("<I", _MOSTLY_Q8_0)
    return name, entry


def _skip_value(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        length = _uint(file, 8)
        file.seek(length, 1)
    elif kind == _ARRAY:
        item, count = _uint(file, 4), _uint(file, 8)
        if item in _SCALAR_BYTES:
            file.seek(_SCALAR_BYTES[item] * count, 1)
        else:
            for _ in range(count):
                _skip_value(file, item)
    elif kind in _SCALAR_BYTES:
        file.seek(_SCALAR_BYTES[kind], 1)
    else:
        raise ValueError(f"a GGUF value of unknown type {kind}")


def _tensor(file: BinaryIO) -> _Tensor:
    name = file.read(_uint(file, 8))
    dims = tuple(_uint(file, 8) for _ in range(_uint(file, 4)))
    return _Tensor(name=name, dims=dims, type=_uint(file, 4), start=_uint(file, 8))


def _uint(file: BinaryIO, count: int) -> int:
    data = file.read(count)
    if len(data) != count:
        raise ValueError("a GGUF file that breaks off")
    return int.from_bytes(data, "little")


def _aligned(at: int) -> int:
    return -(-at // _DEFAULT_ALIGNMENT) * _DEFAULT_ALIGNMENT


def _pad(out: BinaryIO) -> None:
    out.write(bytes(_aligned(out.tell()) - out.tell()))
