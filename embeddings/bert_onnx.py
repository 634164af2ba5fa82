"""Builds a fused ONNX Runtime graph of a BERT encoder, node by node, without a training framework.

Inputs `input_ids`, `attention_mask`: int64 (batch, tokens). The output of a sentence encoder is `embedding`,
float32 (batch, hidden), unit norm: the mean over the tokens of the mask, or the first token. That of a
cross-encoder is `logit`, float32 (batch,).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from embeddings.bert_quantization import QuantizedLinear, Range, measure_ranges, quantize
from embeddings.bert_weights import (
    BLOCK,
    BertWeights,
    BlockQuantized,
    EncoderLayer,
    LayerNorm,
    Linear,
    PairHead,
    quantize_blocks,
)
from embeddings.sentence_transformers_layout import Pooling

Precision = Literal["fp32", "int8"]
# Channels kept in float32 where activations are uneven: after the attention's norm and after GELU. One takes
# most of the error away, four what is left.
_OUTLIERS = 4
_OPSET = 17
_CONTRIB = "com.microsoft"


def write(
    weights: BertWeights,
    precision: Precision,
    pooling: Pooling,
    folder: Path,
    calibration: Sequence[Sequence[int]],
) -> Path:
    """Write `model.onnx` and its tensors (`model.bin`, mapped into memory when loaded) into `folder`.

    `calibration`: token ids of typical texts, from which "int8" takes the ranges of its activations.
    """
    import onnx

    model = build_fp32(weights, pooling) if precision == "fp32" else build_int8(weights, pooling, calibration)
    path = folder / "model.onnx"
    onnx.save_model(model, str(path), save_as_external_data=True, location="model.bin", size_threshold=1024)
    return path


def build_fp32(weights: BertWeights, end: Pooling | PairHead) -> Any:
    """The graph in float32 as an onnx.ModelProto; word embeddings stay in blocks where they come so."""
    return _Graph(weights, end).model()


def build_int8(weights: BertWeights, end: Pooling | PairHead, calibration: Sequence[Sequence[int]]) -> Any:
    """The graph with 8-bit linear layers and word embeddings in blocks, as an onnx.ModelProto."""
    tapped = _Graph(weights, end)
    model = tapped.model(tap=True)
    ranges = measure_ranges(model.SerializeToString(), tapped.linear_inputs, calibration)
    return _Graph(weights, end, ranges).model()


class _Graph:
    """`ranges` of every linear layer's input make it an 8-bit graph."""

    def __init__(
        self, weights: BertWeights, end: Pooling | PairHead, ranges: Mapping[str, Range] | None = None
    ) -> None:
        self._weights = weights
        self._end = end
        self._ranges = ranges
        self._nodes: list[Any] = []
        self._tensors: list[Any] = []
        self.linear_inputs: list[str] = []

    def model(self, *, tap: bool = False) -> Any:
        """`tap` makes the inputs of the linear layers outputs of the graph."""
        from onnx import TensorProto, helper

        mask = self._node("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
        state = self._embed()
        *layers, last = self._weights.layers
        for i, layer in enumerate(layers):
            state = self._layer(state, mask, layer, f"layer{i}.")
        first_only = isinstance(self._end, PairHead)  # all that the head reads
        state = self._layer(state, mask, last, f"layer{len(layers)}.", first_only=first_only)
        if isinstance(self._end, PairHead):
            self._score(state, self._end)
            shape: tuple[str, list[Any]] = ("logit", ["batch"])
        else:
            self._pool(state, self._end)
            shape = ("embedding", ["batch", self._weights.hidden])
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
            for name in ("input_ids", "attention_mask")
        ]
        outputs = [
            helper.make_tensor_value_info(shape[0], TensorProto.FLOAT, shape[1]),
            *(
                helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "tokens", None])
                for name in (self.linear_inputs if tap else ())
            ),
        ]
        graph = helper.make_graph(self._nodes, "bert", inputs, outputs, self._tensors)
        versions = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=8, producer_name="lockgate")

    def _node(self, op: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: Any) -> str:
        from onnx import helper

        self._nodes.append(
            helper.make_node(op, list(inputs), [output], name=output, domain=domain, **attributes)
        )
        return output

    def _fused(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        return self._node(op, inputs, output, _CONTRIB, **attributes)

    def _tensor(self, name: str, value: npt.ArrayLike) -> str:
        from onnx import numpy_helper

        self._tensors.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def _embed(self) -> str:
        words = self._gather_words("words")
        count = self._node("Shape", ["input_ids"], "tokens", start=1, end=2)
        zero = self._tensor("zero", np.zeros(1, np.int64))
        table = self._tensor("positions.table", self._weights.positions)
        positions = self._node("Slice", [table, zero, count, zero], "positions")
        return self._add_norm(words, positions, self._weights.embedding_norm, "embedding_norm")

    def _gather_words(self, output: str) -> str:
        words = self._weights.words
        if not isinstance(words, BlockQuantized):
            if self._ranges is None or words.shape[1] % BLOCK:
                return self._node("Gather", [self._tensor("words.table", words), "input_ids"], output)
            words = quantize_blocks(words)
        return self._fused(
            "GatherBlockQuantized",
            [
                self._tensor("words.codes", words.codes),
                "input_ids",
                self._tensor("words.scales", words.scales),
            ],
            output,
            bits=words.bits,
            block_size=words.block,
            gather_axis=0,
            quantize_axis=1,
        )

    def _layer(self, state: str, mask: str, layer: EncoderLayer, at: str, *, first_only: bool = False) -> str:
        """`first_only`: its output has the first token only, which has attended to all of them."""
        attended = self._attention(state, mask, layer, at + "attention")
        if first_only:
            first = self._tensor("first_token", np.zeros(1, np.int64))
            attended = self._node("Gather", [attended, first], at + "first_attended", axis=1)
            state = self._node("Gather", [state, first], at + "first_state", axis=1)
        attended = self._linear(attended, layer.attention_output, at + "attention_output")
        state = self._add_norm(attended, state, layer.attention_norm, at + "attention_norm")
        inner = self._linear(state, layer.intermediate, at + "intermediate", _OUTLIERS)
        inner = self._linear(
            self._fused("Gelu", [inner], at + "gelu"), layer.output, at + "output", _OUTLIERS
        )
        return self._add_norm(inner, state, layer.output_norm, at + "output_norm")

    def _attention(self, state: str, mask: str, layer: EncoderLayer, name: str) -> str:
        parts = layer.query, layer.key, layer.value
        qkv = Linear(
            weight=np.concatenate([part.weight for part in parts]),
            bias=np.concatenate([part.bias for part in parts]),
        )
        self.linear_inputs.append(state)
        heads = self._weights.heads
        if self._ranges is None:
            weight = self._tensor(name + ".weight", qkv.weight.T)
            bias = self._tensor(name + ".bias", qkv.bias)
            return self._fused("Attention", [state, weight, bias, mask], name, num_heads=heads)
        quantized = quantize(qkv, self._ranges[state])
        codes, scale, zero = self._quantize_input(state, quantized, name)
        weight, scales, bias = self._quantized_weight(quantized, name)
        flat = self._tensor(name + ".zeros", np.zeros(len(qkv.bias), np.int8))
        return self._fused(
            "QAttention", [codes, weight, bias, scale, scales, mask, zero, flat], name, num_heads=heads
        )

    def _linear(self, x: str, linear: Linear, name: str, outliers: int = 0) -> str:
        self.linear_inputs.append(x)
        if self._ranges is None:
            weight = self._tensor(name + ".weight", linear.weight.T)
            bias = self._tensor(name + ".bias", linear.bias)
            return self._node("Add", [self._node("MatMul", [x, weight], name + ".product"), bias], name)
        quantized = quantize(linear, self._ranges[x], outliers)
        codes, scale, zero = self._quantize_input(x, quantized, name)
        weight, scales, bias = self._quantized_weight(quantized, name)
        inputs = [codes, weight, scale, scales, zero, "", bias]
        if not outliers:
            return self._fused("MatMulIntegerToFloat", inputs, name)
        channels = self._tensor(name + ".outliers", quantized.outliers)
        large = self._node("Gather", [x, channels], name + ".large", axis=2)
        large = self._node(
            "MatMul",
            [large, self._tensor(name + ".outlier_weight", quantized.outlier_weight)],
            name + ".exact",
        )
        return self._node("Add", [self._fused("MatMulIntegerToFloat", inputs, name + ".int8"), large], name)

    def _quantize_input(self, x: str, linear: QuantizedLinear, name: str) -> tuple[str, str, str]:
        """Returns the names of the input's codes, scale and zero point."""
        scale = self._tensor(name + ".input_scale", linear.input_scale)
        zero = self._tensor(name + ".input_zero", linear.input_zero)
        return self._node("QuantizeLinear", [x, scale, zero], name + ".input"), scale, zero

    def _quantized_weight(self, linear: QuantizedLinear, name: str) -> tuple[str, str, str]:
        return (
            self._tensor(name + ".codes", linear.codes),
            self._tensor(name + ".scales", linear.scales),
            self._tensor(name + ".bias", linear.bias),
        )

    def _add_norm(self, x: str, skip: str, norm: LayerNorm, name: str) -> str:
        """Two nodes: on a CPU ONNX Runtime's fused one takes seven times as long (1.32)."""
        total = self._node("Add", [x, skip], name + ".sum")
        gamma = self._tensor(name + ".gamma", norm.gamma)
        beta = self._tensor(name + ".beta", norm.beta)
        return self._node(
            "LayerNormalization", [total, gamma, beta], name, axis=-1, epsilon=self._weights.epsilon
        )

    def _first(self, state: str) -> str:
        first = self._tensor("first", np.array(0, np.int64))
        return self._node("Gather", [state, first], "pooled", axis=1)

    def _score(self, state: str, head: PairHead) -> None:
        """In float32: a thousandth of the work, and it decides."""
        dense, out = (
            [self._tensor(f"head.{name}", part.weight), self._tensor(f"head.{name}_bias", part.bias)]
            for name, part in (("dense", head.dense), ("out", head.out))
        )
        hidden = self._node("Gemm", [self._first(state), *dense], "head.hidden", transB=1)
        hidden = self._node("Tanh", [hidden], "head.tanh")
        scored = self._node("Gemm", [hidden, *out], "head.logit", transB=1)
        axis = self._tensor("axis", np.array([1], np.int64))
        self._node("Squeeze", [scored, axis], "logit")

    def _pool(self, state: str, pooling: Pooling) -> None:
        from onnx import TensorProto

        axis = self._tensor("axis", np.array([1], np.int64))
        if pooling == "cls":
            pooled = self._first(state)
        else:  # the division by the number of tokens falls away under the unit norm
            rows = self._node("Cast", ["attention_mask"], "mask_float", to=TensorProto.FLOAT)
            rows = self._node("Unsqueeze", [rows, axis], "mask_row")
            pooled = self._node("Squeeze", [self._node("MatMul", [rows, state], "total"), axis], "pooled")
        self._node("LpNormalization", [pooled], "embedding", axis=-1, p=2)
