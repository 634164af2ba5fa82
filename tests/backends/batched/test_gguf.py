from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from backends.batched.gguf import context_length, q4_1_to_q8_0, requantize

Q4_1 = np.dtype([("scale", "<f2"), ("least", "<f2"), ("nibbles", "u1", (16,))])
F32, Q4_1_TYPE, Q8_0_TYPE = 0, 3, 8


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _blocks(count: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    random = np.random.default_rng(1)
    blocks = np.zeros(count, dtype=Q4_1)
    blocks["scale"] = random.uniform(0.001, 0.1, count)
    blocks["least"] = -random.uniform(0.0, 1.0, count)
    blocks["nibbles"] = random.integers(0, 256, (count, 16))
    return blocks


def _weights(
    blocks: np.ndarray[tuple[int], np.dtype[np.void]],
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """By the definition of Q4_1: the low halves of the bytes, then the high ones."""
    levels = [[byte & 15 for byte in row] + [byte >> 4 for byte in row] for row in blocks["nibbles"].tolist()]
    scale, least = (blocks[name][:, None].astype(np.float64) for name in ("scale", "least"))
    weights: np.ndarray[tuple[int, int], np.dtype[np.float64]] = np.array(levels) * scale + least
    return weights


def _file(path: Path, tensors: list[tuple[str, tuple[int, ...], int, bytes]]) -> Path:
    keys = [
        _string("general.architecture") + struct.pack("<I", 8) + _string("llama"),
        _string("general.file_type") + struct.pack("<II", 4, 3),
        _string("llama.context_length") + struct.pack("<II", 4, 8192),
        _string("tokens") + struct.pack("<IIQ", 9, 8, 2) + _string("a") + _string("bc"),
        _string("scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys)
    data = b""
    for name, dims, kind, content in tensors:
        head += _string(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        head += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


def test_blocks_keep_their_values() -> None:
    blocks = _blocks(50)
    wanted = _weights(blocks)
    out = q4_1_to_q8_0(blocks)
    got = out["values"].astype(float) * out["scale"][:, None].astype(float)
    largest = np.abs(wanted).max(axis=1, keepdims=True)
    assert (np.abs(got - wanted) <= largest / 254 * 1.1).all()


def test_a_block_of_zeros_stays_zero() -> None:
    out = q4_1_to_q8_0(np.zeros(1, dtype=Q4_1))
    assert not out["values"].any()
    assert out["scale"][0] == 0


def test_requantize_rewrites_q4_1_only(tmp_path: Path) -> None:
    blocks = _blocks(6)
    norm = np.arange(5, dtype="<f4").tobytes()
    source = _file(
        tmp_path / "in.gguf",
        [
            ("first", (64, 2), Q4_1_TYPE, blocks[:4].tobytes()),
            ("norm", (5,), F32, norm),
            ("last", (32, 2), Q4_1_TYPE, blocks[4:].tobytes()),
        ],
    )
    target = tmp_path / "out.gguf"
    requantize(source, target)
    expected = _file(
        tmp_path / "expected.gguf",
        [
            ("first", (64, 2), Q8_0_TYPE, q4_1_to_q8_0(blocks[:4]).tobytes()),
            ("norm", (5,), F32, norm),
            ("last", (32, 2), Q8_0_TYPE, q4_1_to_q8_0(blocks[4:]).tobytes()),
        ],
    )
    file_type = _string("general.file_type") + struct.pack("<I", 4)
    wanted = expected.read_bytes().replace(file_type + struct.pack("<I", 3), file_type + struct.pack("<I", 7))
    assert target.read_bytes()[: len(wanted)].rstrip(b"\0") == wanted.rstrip(b"\0")


def test_context_length(tmp_path: Path) -> None:
    assert context_length(_file(tmp_path / "a.gguf", [])) == 8192


@pytest.mark.parametrize(
    "content", [b"", b"GGUF", b"not a model at all, whatever its name says", b"GGUF" + bytes(3)]
)
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="GGUF"):
        requantize(path, tmp_path / "out.gguf")
    with pytest.raises(ValueError, match="GGUF"):
        context_length(path)
