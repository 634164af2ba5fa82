from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from embeddings.bert_weights import BlockQuantized, quantize_blocks, read_safetensors
from embeddings.protocols import EmbedderError
from tests.tiny_bert import HIDDEN, WORDS, write_bert


def test_eight_bit_blocks_are_near() -> None:
    matrix = np.random.default_rng(0).standard_normal((10, 64)).astype(np.float32)
    matrix[3, 5] = 100  # spoils its own block only
    quantized = quantize_blocks(matrix)
    steps = quantized.scales.repeat(32, axis=1)
    assert (np.abs(quantized.dense() - matrix) <= 0.5001 * steps).all()
    assert np.abs(quantized.dense() - matrix)[:3].max() < 0.02


def test_a_block_of_zeros_stays_zero() -> None:
    assert (quantize_blocks(np.zeros((2, 32), np.float32)).dense() == 0).all()


def test_four_bit_codes_hold_the_first_in_the_low_bits() -> None:
    quantized = BlockQuantized(
        codes=np.array([[0x98] * 8 + [0xF0] * 8], np.uint8),
        scales=np.array([[2]], np.float32),
        bits=4,
        block=32,
    )
    dense = quantized.dense()[0]
    assert dense[:16].tolist() == [0.0, 2.0] * 8
    assert dense[16:].tolist() == [-16.0, 14.0] * 8


def test_reads_a_bert_folder(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    write_bert(tmp_path)
    weights = read_safetensors(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert isinstance(weights.words, np.ndarray)
    assert weights.words.shape == (len(WORDS), HIDDEN)
    positions = tensors["embeddings.position_embeddings.weight"]
    assert np.array_equal(
        weights.positions, positions + tensors["embeddings.token_type_embeddings.weight"][0]
    )
    assert np.array_equal(
        weights.layers[1].intermediate.weight, tensors["encoder.layer.1.intermediate.dense.weight"]
    )
    assert (len(weights.layers), weights.heads, weights.epsilon) == (2, 2, 1e-12)


def test_reads_names_under_a_prefix(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    write_bert(tmp_path)
    plain = read_safetensors(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({f"bert.{name}": value for name, value in tensors.items()}, tmp_path / "model.safetensors")
    assert np.array_equal(read_safetensors(tmp_path).positions, plain.positions)


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    write_bert(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({k: v.astype(np.float16) for k, v in tensors.items()}, tmp_path / "model.safetensors")
    assert read_safetensors(tmp_path).positions.dtype == np.float32


@pytest.mark.parametrize(
    ("key", "value"),
    [("model_type", "roberta"), ("hidden_act", "relu"), ("position_embedding_type", "relative_key")],
)
def test_refuses_another_architecture(tmp_path: Path, key: str, value: str) -> None:
    write_bert(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, key: value}), "utf-8")
    with pytest.raises(EmbedderError, match=f"{key} is '{value}'"):
        read_safetensors(tmp_path)


def test_names_a_missing_tensor(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    write_bert(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["encoder.layer.1.output.dense.bias"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(EmbedderError, match=r"encoder\.layer\.1\.output\.dense\.bias"):
        read_safetensors(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_file_is_an_embedder_error(tmp_path: Path, name: str) -> None:
    write_bert(tmp_path)
    (tmp_path / name).write_bytes(b"{")
    with pytest.raises(EmbedderError, match=name):
        read_safetensors(tmp_path)
