"""The file of a difficulty router: a small ONNX graph with 8-bit weights, read into numpy to run.

The graph, opset 17: `embedding` (N, D) and `lexical` (N, F), both float32, give `p_small`, `p_large`, `score`
and `lexical_only_score`, each (N,). Any ONNX runtime computes the same scores as DifficultyPolicy, but for
the mapping of `lexical_only_score` to its quantile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from policies.difficulty import HEADS, DifficultyWeights, FloatArray, WeightsError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_OPSET = 17
_IR_VERSION = 8
_FORMAT = "lockgate-difficulty-1"
_QUANTISED: Final = ("embedding_heads", "lexical_heads", "lexical_only_heads")
SHIPPED: Final = ("difficulty-e5", "difficulty-minilm")


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterFile:
    """`about`: what the file says of its training: seed, data with SHA-256, calibration, held-out figures."""

    weights: DifficultyWeights
    about: Mapping[str, Any]


def shipped(space: str | None = None) -> Path:
    """The file that comes with Lockgate for vectors of `space`; the first, used without its embedding, when
    there is none for it."""
    folder = Path(str(resources.files("gateway") / "weights"))
    minilm = space is not None and space.startswith("all-MiniLM-L6-v2")
    return folder / f"{SHIPPED[int(minilm)]}.onnx"


def read_weights(path: Path) -> RouterFile:
    """Raises WeightsError."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load(str(path))
    except OSError as error:
        raise WeightsError(f"router weights {path} cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise WeightsError(f"router weights {path}: not an ONNX file") from error
    text = {item.key: item.value for item in model.metadata_props}
    if text.get("format") != _FORMAT:
        raise WeightsError(
            f"router weights {path}: format {text.get('format', 'unknown')}, expected {_FORMAT}: "
            "train them again (lockgate router train)"
        )
    try:
        return RouterFile(weights=_weights(model, text), about=json.loads(text["about"]))
    except (KeyError, ValueError) as error:
        raise WeightsError(f"router weights {path}: damaged: {error}") from error


def rounded(heads: FloatArray) -> FloatArray:
    """Heads (K, 2) as the file will hold them: in 8 bits, with one scale per head. Rounding again changes
    nothing."""
    levels, step = _quantise(heads)
    held: FloatArray = levels.astype(np.float32) * step
    return held


def write_weights(path: Path, weights: DifficultyWeights, about: Mapping[str, Any]) -> None:
    """Writes the file: the same bytes for the same arguments. Raises OSError."""
    from onnx import TensorProto, checker, helper

    def vector(name: str, *shape: str | int) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    outputs = ("p_small", "p_large", "score", "lexical_only_score")
    graph = helper.make_graph(
        _nodes(),
        "difficulty",
        [vector("embedding", "N", weights.dimension), vector("lexical", "N", len(weights.mean))],
        [vector(name, "N") for name in outputs],
        initializer=_initializers(weights),
    )
    model = helper.make_model(
        graph,
        producer_name="lockgate",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    metadata = {
        "format": _FORMAT,
        "name": weights.name,
        "embedder": weights.embedder,
        "dimension": str(weights.dimension),
        "lexical_version": str(weights.lexical_version),
        "calibration": _numbers(weights.calibration),
        "lexical_only_calibration": _numbers(weights.lexical_only_calibration),
        "about": json.dumps(about, sort_keys=True, ensure_ascii=False),
    }
    helper.set_model_props(model, metadata)
    checker.check_model(model, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _numbers(values: FloatArray) -> str:
    return json.dumps([round(float(value), 6) for value in values], separators=(",", ":"))


def _initializers(weights: DifficultyWeights) -> list[TensorProto]:
    from onnx import numpy_helper

    plain = {
        "mean": weights.mean,
        "scale": weights.scale,
        "lowest": np.float32(-weights.limit),
        "highest": np.float32(weights.limit),
        "bias": weights.bias,
        "lexical_only_bias": weights.lexical_only_bias,
        "one": np.float32(1),
        "half": np.float32(0.5),
    }
    tensors = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in plain.items()]
    tensors += [
        numpy_helper.from_array(np.array(HEADS.index(head), np.int64), f"{head}_head") for head in HEADS
    ]
    heads = (weights.embedding, weights.lexical, weights.lexical_only)
    for name, value in zip(_QUANTISED, heads, strict=True):
        levels, step = _quantise(value)
        tensors.append(numpy_helper.from_array(np.ascontiguousarray(levels.T), f"{name}_int8"))
        tensors.append(numpy_helper.from_array(step, f"{name}_scale"))
    return tensors


def _quantise(heads: FloatArray) -> tuple[Any, FloatArray]:
    step = (np.maximum(np.abs(heads).max(axis=0), 1e-12) / 127).astype(np.float32)  # one per head
    return np.rint(heads / step).astype(np.int8), step


def _nodes() -> list[NodeProto]:
    from onnx import helper

    node = helper.make_node
    unpack = [
        node("DequantizeLinear", [f"{name}_int8", f"{name}_scale"], [name], axis=0) for name in _QUANTISED
    ]
    standardise = [
        node("Sub", ["lexical", "mean"], ["centred"]),
        node("Div", ["centred", "scale"], ["standard"]),
        node("Clip", ["standard", "lowest", "highest"], ["clipped"]),
    ]
    # Gemm and not MatMul: ONNX Runtime rounds the inputs of a dequantised MatMul to 8 bits too.
    with_embedding = [
        node("Gemm", ["embedding", "embedding_heads", "bias"], ["from_embedding"], transB=1),
        node("Gemm", ["clipped", "lexical_heads", "from_embedding"], ["logits"], transB=1),
        *_score("logits", "p_small", "p_large", "score"),
    ]
    without = [
        node(
            "Gemm", ["clipped", "lexical_only_heads", "lexical_only_bias"], ["lexical_only_logits"], transB=1
        ),
        *_score("lexical_only_logits", "lexical_only_small", "lexical_only_large", "lexical_only_score"),
    ]
    return unpack + standardise + with_embedding + without


def _score(logits: str, small: str, large: str, score: str) -> list[NodeProto]:
    from onnx import helper

    node = helper.make_node
    return [
        node("Sigmoid", [logits], [f"{logits}_p"]),
        node("Gather", [f"{logits}_p", "small_head"], [small], axis=1),
        node("Gather", [f"{logits}_p", "large_head"], [large], axis=1),
        node("Sub", [large, small], [f"{score}_gain"]),
        node("Add", [f"{score}_gain", "one"], [f"{score}_raised"]),
        node("Mul", [f"{score}_raised", "half"], [score]),
    ]


def _weights(model: ModelProto, text: Mapping[str, str]) -> DifficultyWeights:
    from onnx import numpy_helper

    parts = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    heads = {name: parts[f"{name}_int8"].T.astype(np.float32) * parts[f"{name}_scale"] for name in _QUANTISED}
    return DifficultyWeights(
        name=text["name"],
        embedder=text["embedder"],
        lexical_version=int(text["lexical_version"]),
        mean=parts["mean"],
        scale=parts["scale"],
        limit=float(parts["highest"]),
        embedding=heads["embedding_heads"],
        lexical=heads["lexical_heads"],
        bias=parts["bias"],
        lexical_only=heads["lexical_only_heads"],
        lexical_only_bias=parts["lexical_only_bias"],
        calibration=np.array(json.loads(text["calibration"]), np.float32),
        lexical_only_calibration=np.array(json.loads(text["lexical_only_calibration"]), np.float32),
    )
