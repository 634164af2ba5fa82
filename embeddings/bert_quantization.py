"""8-bit linear layers for BERT encoders, with activation ranges measured once at conversion.

A fixed range per tensor, rather than one found in every call, makes a text's vector independent of what else
is in its batch. Encoders have a few channels ten times larger than the rest, always the same ones, which
would leave the rest few steps; these stay in float32 (LLM.int8(), arXiv 2208.07339).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embeddings.bert_weights import Float32, Linear
from embeddings.protocols import FloatMatrix, IdArray

# Inputs larger than any seen are clipped; this much more than the largest seen is kept.
_MARGIN = 1.2
# CPUs without VNNI add two products of unsigned and signed bytes in 16 bits, where 2 * 255 * 63 still fits.
_WEIGHT_MAX = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Least and largest value per channel, float32 (C,)."""

    low: Float32
    high: Float32

    def union(self, other: Range) -> Range:
        return Range(low=np.minimum(self.low, other.low), high=np.maximum(self.high, other.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedLinear:
    """y = (code(x) - input_zero) * input_scale @ (codes * scales) + bias + x[outliers] @ outlier_weight.

    `codes`: int8 (in, out), 0 in the rows of outliers. `scales`, `bias`: (out,). `outliers`: channels of the
    input, int64 (K,). `outlier_weight`: float32 (K, out).
    """

    input_scale: np.float32
    input_zero: np.uint8
    codes: npt.NDArray[np.int8]
    scales: Float32
    bias: Float32
    outliers: IdArray
    outlier_weight: FloatMatrix


def quantize(linear: Linear, seen: Range, outliers: int = 0) -> QuantizedLinear:
    """`seen` is the range of the layer's inputs; the `outliers` largest channels stay in float32."""
    size = np.maximum(np.abs(seen.low), np.abs(seen.high))
    largest = np.sort(np.argsort(-size, kind="stable")[:outliers])
    weight = linear.weight.T.copy()
    outlier_weight = weight[largest]
    weight[largest] = 0
    low, high = np.delete(seen.low, largest), np.delete(seen.high, largest)
    least, most = _round_up(-min(low.min(), 0.0)), _round_up(max(high.max(), 0.0))
    input_scale = np.float32((least + most) / 255)
    scales = np.maximum(np.abs(weight).max(axis=0) / _WEIGHT_MAX, np.finfo(np.float32).tiny).astype(
        np.float32
    )
    return QuantizedLinear(
        input_scale=input_scale,
        input_zero=np.uint8(round(least / float(input_scale))),
        codes=np.rint(weight / scales).astype(np.int8),
        scales=scales,
        bias=linear.bias,
        outliers=largest.astype(np.int64),
        outlier_weight=outlier_weight,
    )


def _round_up(value: float) -> float:
    """With the margin, to the next eighth of an octave: the same on all machines, but for rare ties."""
    return float(np.exp2(np.ceil(np.log2(max(value, 1e-6) * _MARGIN) * 8) / 8))


def measure_ranges(
    graph: bytes, names: Sequence[str], sequences: Sequence[Sequence[int]]
) -> Mapping[str, Range]:
    """Run a float32 graph, serialized, whose outputs include `names`, over token ids; returns the range of
    each."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    ranges: dict[str, Range] = {}
    for sequence in sequences:
        ids = np.array([sequence], np.int64)
        for name, values in zip(
            names,
            session.run(list(names), {"input_ids": ids, "attention_mask": np.ones_like(ids)}),
            strict=True,
        ):
            seen = Range(low=values.min(axis=(0, 1)), high=values.max(axis=(0, 1)))
            ranges[name] = ranges[name].union(seen) if name in ranges else seen
    return ranges
