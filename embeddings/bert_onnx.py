"""Builds a fused ONNX Runtime graph of a BERT sentence encoder, node by node, without a training framework.

Inputs `input_ids`, `attention_mask`: int64 (batch, tokens). Output `embedding`: float32 (batch, hidden), unit
norm: the mean over the tokens of the mask, or the first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from embeddings.bert_weights import (
    BertWeights,
    BlockQuantized,
    EncoderLayer,
    LayerNorm,
    Linear,
    quantize_blocks,
)
from embeddings.sentence_transformers_layout import Pooling

Precision = Literal["fp32", "int8"]
_OPSET = 17
_CONTRIB = "com.microsoft"


def write(weights: BertWeights, precision: Precision, pooling: Pooling, folder: Path) -> Path:
    """Write `model.onnx` and its tensors (`model.bin`, mapped into memory when loaded) into `folder`."""
    import onnx

    path = folder / "model.onnx"
    onnx.save_model(
        build(weights, precision, pooling),
        str(path),
        save_as_external_data=True,
        location="model.bin",
        size_threshold=1024,
    )
    return path


def build(weights: BertWeights, precision: Precision, pooling: Pooling) -> Any:
    """The graph as an onnx.ModelProto. "int8": linear layers with 8-bit weights (one scale per output) and
    8-bit activations (one scale per call)."""
    return _Graph(weights, precision, pooling).model()


class _Graph:
    def __init__(self, weights: BertWeights, precision: Precision, pooling: Pooling) -> None:
        self._weights = weights
        self._precision = precision
        self._pooling = pooling
        self._nodes: list[Any] = []
        self._tensors: list[Any] = []

    def model(self) -> Any:
        from onnx import TensorProto, helper

        mask = self._node("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
        state = self._embed()
        for i, layer in enumerate(self._weights.layers):
            state = self._layer(state, mask, layer, f"layer{i}.")
        self._pool(state)
        ids, kept = (
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
            for name in ("input_ids", "attention_mask")
        )
        out = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", self._weights.hidden])
        graph = helper.make_graph(self._nodes, "bert", [ids, kept], [out], self._tensors)
        versions = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=8, producer_name="lockgate")

    def _node(
        self,
        op: str,
        inputs: Sequence[str],
        output: str,
        domain: str = "",
        outputs: int = 1,
        **attributes: Any,
    ) -> str:
        from onnx import helper

        names = [output] if outputs == 1 else [f"{output}{i}" for i in range(outputs)]
        self._nodes.append(
            helper.make_node(op, list(inputs), names, name=output, domain=domain, **attributes)
        )
        return output

    def _fused(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        return self._node(op, inputs, output, _CONTRIB, **attributes)

    def _tensor(self, name: str, value: npt.NDArray[Any]) -> str:
        from onnx import numpy_helper

        self._tensors.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _embed(self) -> str:
        words = self._gather_words("words")
        shape = self._node("Shape", ["input_ids"], "tokens", start=1, end=2)
        zero = self._tensor("zero", np.array([0], np.int64))
        table = self._tensor("positions.table", self._weights.positions)
        positions = self._node("Slice", [table, zero, shape, zero], "positions")
        return self._add_norm(words, positions, self._weights.embedding_norm, "embedding_norm")

    def _gather_words(self, output: str) -> str:
        words = self._weights.words
        if not isinstance(words, BlockQuantized):
            if self._precision == "fp32":
                return self._node("Gather", [self._tensor("words.table", words), "input_ids"], output)
            words = quantize_blocks(words)
        codes = self._tensor("words.codes", words.codes)
        scales = self._tensor("words.scales", words.scales)
        return self._fused(
            "GatherBlockQuantized",
            [codes, "input_ids", scales],
            output,
            bits=words.bits,
            block_size=words.block,
            gather_axis=0,
            quantize_axis=1,
        )

    def _layer(self, state: str, mask: str, layer: EncoderLayer, at: str) -> str:
        qkv = Linear(
            weight=np.concatenate([layer.query.weight, layer.key.weight, layer.value.weight]),
            bias=np.concatenate([layer.query.bias, layer.key.bias, layer.value.bias]),
        )
        projected = self._linear(state, qkv, at + "qkv")
        self._node("Split", [projected], at + "split", outputs=3, axis=-1)
        attended = self._fused(
            "MultiHeadAttention",
            [at + "split0", at + "split1", at + "split2", "", mask],
            at + "attention",
            num_heads=self._weights.heads,
        )
        attended = self._linear(attended, layer.attention_output, at + "attention_output")
        state = self._add_norm(attended, state, layer.attention_norm, at + "attention_norm")
        inner = self._linear(state, layer.intermediate, at + "intermediate")
        inner = self._fused("Gelu", [inner], at + "gelu")
        return self._add_norm(
            self._linear(inner, layer.output, at + "output"), state, layer.output_norm, at + "output_norm"
        )

    def _linear(self, x: str, linear: Linear, name: str) -> str:
        bias = self._tensor(name + ".bias", linear.bias)
        if self._precision == "fp32":
            weight = self._tensor(name + ".weight", linear.weight.T)
            return self._node("Add", [self._node("MatMul", [x, weight], name + ".product"), bias], name)
        scale = np.maximum(np.abs(linear.weight).max(axis=1) / 127, np.finfo(np.float32).tiny)
        codes = self._tensor(name + ".codes", np.rint(linear.weight.T / scale).astype(np.int8))
        scales = self._tensor(name + ".scales", scale.astype(np.float32))
        return self._fused("DynamicQuantizeMatMul", [x, codes, scales, "", bias], name)

    def _add_norm(self, x: str, skip: str, norm: LayerNorm, name: str) -> str:
        gamma = self._tensor(name + ".gamma", norm.gamma)
        beta = self._tensor(name + ".beta", norm.beta)
        return self._fused(
            "SkipLayerNormalization", [x, skip, gamma, beta], name, epsilon=self._weights.epsilon
        )

    def _pool(self, state: str) -> None:
        from onnx import TensorProto

        axis = self._tensor("axis", np.array([1], np.int64))
        if self._pooling == "cls":
            first = self._tensor("first", np.array(0, np.int64))
            pooled = self._node("Gather", [state, first], "pooled", axis=1)
        else:  # the division by the number of tokens falls away under the unit norm
            rows = self._node("Cast", ["attention_mask"], "mask_float", to=TensorProto.FLOAT)
            rows = self._node("Unsqueeze", [rows, axis], "mask_row")
            pooled = self._node("Squeeze", [self._node("MatMul", [rows, state], "total"), axis], "pooled")
        self._node("LpNormalization", [pooled], "embedding", axis=-1, p=2)
