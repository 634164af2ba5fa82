from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embeddings import bert_onnx, bert_weights
from embeddings.protocols import FloatMatrix
from embeddings.sentence_transformers_layout import Pooling
from tests.tiny_bert import HIDDEN, WORDS, write_bert

SEQUENCES = [[2, 4, 5, 3], [2, 6, 7, 8, 9, 10, 11, 3], [2, 3], [2, *range(4, 18), 3]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bert")
    write_bert(made)
    return made


def run(model: Any, sequences: list[list[int]]) -> FloatMatrix:
    """All of them in one padded batch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    shape = len(sequences), max(map(len, sequences))
    ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for i, sequence in enumerate(sequences):
        ids[i, : len(sequence)] = sequence
        mask[i, : len(sequence)] = 1
    found: FloatMatrix = session.run(["embedding"], {"input_ids": ids, "attention_mask": mask})[0]
    return found


def reference(folder: Path, pooling: Pooling) -> FloatMatrix:
    """Every sequence by itself through transformers."""
    import torch
    from transformers import BertModel

    model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    rows = []
    with torch.no_grad():
        for sequence in SEQUENCES:
            state = model(input_ids=torch.tensor([sequence])).last_hidden_state[0].numpy()
            pooled = state.mean(axis=0) if pooling == "mean" else state[0]
            rows.append(pooled / np.linalg.norm(pooled))
    found: FloatMatrix = np.array(rows, np.float32)
    return found


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_float32_is_the_model(folder: Path, pooling: Pooling) -> None:
    model = bert_onnx.build_fp32(bert_weights.read_safetensors(folder), pooling)
    assert np.allclose(run(model, SEQUENCES), reference(folder, pooling), atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_int8_is_near_the_model(folder: Path, pooling: Pooling) -> None:
    model = bert_onnx.build_int8(bert_weights.read_safetensors(folder), pooling, SEQUENCES[:3])
    cosines = (run(model, SEQUENCES) * reference(folder, pooling)).sum(axis=1)
    assert cosines.min() > 0.995


def test_int8_holds_no_float_weights(folder: Path) -> None:
    from onnx import TensorProto

    model = bert_onnx.build_int8(bert_weights.read_safetensors(folder), "mean", SEQUENCES)
    large = [tensor for tensor in model.graph.initializer if np.prod(tensor.dims) >= HIDDEN * HIDDEN]
    assert large
    assert {tensor.data_type for tensor in large} == {TensorProto.INT8}


def test_int8_does_not_depend_on_company(folder: Path) -> None:
    model = bert_onnx.build_int8(bert_weights.read_safetensors(folder), "mean", SEQUENCES)
    together = run(model, SEQUENCES)
    for i, sequence in enumerate(SEQUENCES):
        assert np.allclose(run(model, [sequence])[0], together[i], atol=1e-6)


def test_a_width_that_blocks_do_not_divide(tmp_path: Path) -> None:
    write_bert(tmp_path, hidden=24)
    weights = bert_weights.read_safetensors(tmp_path)
    exact = run(bert_onnx.build_fp32(weights, "mean"), SEQUENCES)
    assert (
        (run(bert_onnx.build_int8(weights, "mean", SEQUENCES), SEQUENCES) * exact).sum(axis=1) > 0.99
    ).all()


def test_writes_tensors_beside_the_graph(folder: Path, tmp_path: Path) -> None:
    import onnx

    path = bert_onnx.write(bert_weights.read_safetensors(folder), "int8", "mean", tmp_path, SEQUENCES)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.bin", "model.onnx"]
    onnx.load(path)
    assert path.stat().st_size < (tmp_path / "model.bin").stat().st_size
    assert len(WORDS) * HIDDEN < (tmp_path / "model.bin").stat().st_size
