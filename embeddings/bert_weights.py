"""Weights of a BERT encoder (post layer norm, exact GELU, learned positions) in numpy, however they were
stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from embeddings.protocols import EmbedderError, FloatMatrix

BLOCK = 32
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockQuantized:
    """A matrix (R, C) in blocks along its rows: weight = scale * (code - zero point), the zero point being
    half the range of codes.

    `codes`: uint8 (R, C * bits / 8), the low bits of a byte first. `scales`: float32 (R, C / block).
    """

    codes: npt.NDArray[np.uint8]
    scales: FloatMatrix
    bits: int
    block: int

    def dense(self) -> FloatMatrix:
        codes = self.codes
        if self.bits == 4:
            codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1)
        blocks = codes.reshape(*self.scales.shape, self.block).astype(np.float32) - (1 << (self.bits - 1))
        return (blocks * self.scales[..., None]).reshape(len(codes), -1)


def quantize_blocks(matrix: FloatMatrix) -> BlockQuantized:
    """8-bit blocks of `BLOCK`, which must divide the columns; rounded to nearest."""
    blocks = matrix.reshape(len(matrix), -1, BLOCK)
    scales = np.maximum(np.abs(blocks).max(axis=-1) / 127, np.finfo(np.float32).tiny).astype(np.float32)
    codes = (np.rint(blocks / scales[..., None]) + 128).astype(np.uint8)
    return BlockQuantized(codes=codes.reshape(len(matrix), -1), scales=scales, bits=8, block=BLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """y = x @ weight.T + bias. `weight`: (out, in), `bias`: (out,)."""

    weight: FloatMatrix
    bias: Float32


@dataclass(frozen=True, slots=True, kw_only=True)
class PairHead:
    """What makes a score of the first token's state: out(tanh(dense(state))). `dense` (H, H), `out` (1,
    H)."""

    dense: Linear
    out: Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorm:
    gamma: Float32
    beta: Float32


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderLayer:
    query: Linear
    key: Linear
    value: Linear
    attention_output: Linear
    attention_norm: LayerNorm
    intermediate: Linear
    output: Linear
    output_norm: LayerNorm


@dataclass(frozen=True, slots=True, kw_only=True)
class BertWeights:
    """`positions`: float32 (P, H), the embedding of token type 0 included: a single text has no other."""

    words: FloatMatrix | BlockQuantized
    positions: FloatMatrix
    embedding_norm: LayerNorm
    layers: tuple[EncoderLayer, ...]
    heads: int
    epsilon: float

    @property
    def hidden(self) -> int:
        return int(self.positions.shape[1])


def read_safetensors(folder: Path) -> BertWeights:
    """Read a Hugging Face folder of `model_type` bert. Raises EmbedderError when it is another kind."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise EmbedderError(f"{folder / 'config.json'} cannot be read: {error}") from error
    _require_plain_bert(folder, config)
    try:
        tensors = load_file(folder / "model.safetensors")
    except (OSError, SafetensorError, TypeError) as error:  # TypeError: numpy has no bfloat16
        raise EmbedderError(f"{folder / 'model.safetensors'} cannot be read: {error}") from error
    prefix = "" if "embeddings.word_embeddings.weight" in tensors else "bert."

    def get(name: str) -> Any:
        try:
            return tensors[prefix + name].astype(np.float32)
        except KeyError:
            raise EmbedderError(f"{folder / 'model.safetensors'} has no tensor {prefix + name}") from None

    positions = get("embeddings.position_embeddings.weight")
    return BertWeights(
        words=get("embeddings.word_embeddings.weight"),
        positions=positions + get("embeddings.token_type_embeddings.weight")[0],
        embedding_norm=_norm(get, "embeddings.LayerNorm"),
        layers=tuple(_layer(get, f"encoder.layer.{i}.") for i in range(config["num_hidden_layers"])),
        heads=config["num_attention_heads"],
        epsilon=config.get("layer_norm_eps", 1e-12),
    )


def _require_plain_bert(folder: Path, config: dict[str, Any]) -> None:
    expected = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
    for key, value in expected.items():
        found = config.get(key, None if key == "model_type" else value)
        if found != value:
            raise EmbedderError(
                f"{folder / 'config.json'}: {key} is {found!r}, only {value!r} can be converted; "
                'export the model to ONNX, or use kind = "sentence-transformers"'
            )


def _layer(get: Callable[[str], Any], at: str) -> EncoderLayer:
    return EncoderLayer(
        query=_linear(get, at + "attention.self.query"),
        key=_linear(get, at + "attention.self.key"),
        value=_linear(get, at + "attention.self.value"),
        attention_output=_linear(get, at + "attention.output.dense"),
        attention_norm=_norm(get, at + "attention.output.LayerNorm"),
        intermediate=_linear(get, at + "intermediate.dense"),
        output=_linear(get, at + "output.dense"),
        output_norm=_norm(get, at + "output.LayerNorm"),
    )


def _linear(get: Callable[[str], Any], name: str) -> Linear:
    return Linear(weight=get(name + ".weight"), bias=get(name + ".bias"))


def _norm(get: Callable[[str], Any], name: str) -> LayerNorm:
    return LayerNorm(gamma=get(name + ".weight"), beta=get(name + ".bias"))
