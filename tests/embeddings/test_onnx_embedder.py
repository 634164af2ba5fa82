from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embeddings import embedding_models
from embeddings.onnx_embedder import OnnxEmbedder
from embeddings.protocols import EmbedderError, FloatMatrix
from tests.tiny_bert import MAX_TOKENS, WORDS, write_bert, write_layout, write_tokenizer

TABLE = np.random.default_rng(0).standard_normal((len(WORDS), 5)).astype(np.float32)


def write_graph(
    folder: Path, inputs: tuple[str, ...] = ("input_ids", "attention_mask"), output: str = "last_hidden_state"
) -> None:
    """A graph that looks each token up in `TABLE`; every input takes part, as an exporter would have it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = [helper.make_node("Gather", ["table", "input_ids"], ["looked_up"])]
    before = "looked_up"
    for name in inputs[1:]:
        nodes += [
            helper.make_node("Cast", [name], [f"{name}_float"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"{name}_float", "zero"], [f"{name}_zero"]),
            helper.make_node("Unsqueeze", [f"{name}_zero", "axis"], [f"{name}_row"]),
            helper.make_node("Add", [before, f"{name}_row"], [f"with_{name}"]),
        ]
        before = f"with_{name}"
    nodes.append(helper.make_node("Identity", [before], [output]))
    tensors = [
        numpy_helper.from_array(TABLE, "table"),
        numpy_helper.from_array(np.zeros(1, np.float32), "zero"),
        numpy_helper.from_array(np.array([2], np.int64), "axis"),
    ]
    taken = [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "t"]) for name in inputs]
    given = [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["b", "t", 5])]
    graph = helper.make_graph(nodes, "table", taken, given, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(folder / "model.onnx"))


def expected(pooling: str, *texts: str) -> FloatMatrix:
    rows = []
    for text in texts:
        ids = [2, *(WORDS.index(word) for word in text.split()), 3]
        rows.append(TABLE[ids].mean(axis=0) if pooling == "mean_tokens" else TABLE[ids[0]])
    found: FloatMatrix = np.array([row / np.linalg.norm(row) for row in rows], np.float32)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCKGATE_CACHE_DIR", str(tmp_path / "cache"))
    made = tmp_path / "exported"
    made.mkdir()
    write_tokenizer(made)
    write_layout(made)
    return made


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
@pytest.mark.parametrize("extra", [(), ("token_type_ids",)])
def test_pools_what_the_graph_does_not(folder: Path, pooling: str, extra: tuple[str, ...]) -> None:
    write_graph(folder, ("input_ids", "attention_mask", *extra))
    write_layout(folder, pooling)
    embedder = OnnxEmbedder.open(str(folder), "cpu", 1)
    texts = ["the cat", "a dog ran under the tree", "", "mat"]
    assert np.allclose(embedder.encode(texts).vectors, expected(pooling, *texts), atol=1e-6)
    assert (embedder.dimension, embedder.max_tokens) == (5, MAX_TOKENS)


def test_puts_the_prompt_before_every_text(folder: Path) -> None:
    write_graph(folder)
    settings = '{"prompts": {"q": "not "}, "default_prompt_name": "q"}'
    (folder / "config_sentence_transformers.json").write_text(settings, "utf-8")
    encoding = OnnxEmbedder.open(str(folder), "cpu", 1).encode(["the cat"])
    assert np.allclose(encoding.vectors, expected("mean_tokens", "not the cat"), atol=1e-6)
    assert encoding.token_counts.tolist() == [5]


def test_space_follows_model_and_runtime(folder: Path) -> None:
    write_graph(folder)
    first = OnnxEmbedder.open(str(folder), "cpu", 1).space
    assert first.startswith("exported-")
    assert first.endswith("/onnxruntime-cpu")
    write_graph(folder, ("input_ids", "attention_mask", "token_type_ids"))
    assert OnnxEmbedder.open(str(folder), "cpu", 1).space != first


def test_refuses_a_graph_it_cannot_feed(folder: Path) -> None:
    write_graph(folder, ("input_ids", "position_ids"))
    with pytest.raises(EmbedderError, match="position_ids"):
        OnnxEmbedder.open(str(folder), "cpu", 1)


def test_refuses_a_graph_it_cannot_read(folder: Path) -> None:
    write_graph(folder, output="logits")
    with pytest.raises(EmbedderError, match="logits"):
        OnnxEmbedder.open(str(folder), "cpu", 1)


def test_a_damaged_graph_is_one_line(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(EmbedderError, match="cannot be loaded") as raised:
        OnnxEmbedder.open(str(folder), "cpu", 1)
    assert "\n" not in str(raised.value)


def test_a_damaged_conversion_is_made_again(folder: Path) -> None:
    write_bert(folder)
    graph = embedding_models.find(str(folder), "int8").graph
    tensors = (graph.parent / "model.bin").read_bytes()
    (graph.parent / "model.bin").write_bytes(tensors[::-1])
    assert OnnxEmbedder.open(str(folder), "cpu", 1).encode(["cat"]).vectors.shape == (1, 64)
    assert (graph.parent / "model.bin").read_bytes() == tensors


def test_asking_for_cuda_where_there_is_none_is_an_error(folder: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    write_graph(folder)
    with pytest.raises(EmbedderError, match="onnxruntime-gpu"):
        OnnxEmbedder.open(str(folder), "cuda", 1)
    assert OnnxEmbedder.open(str(folder), "auto", 1).space.endswith("onnxruntime-cpu")


@pytest.mark.gpu
@pytest.mark.model
def test_cuda_agrees_with_the_cpu() -> None:
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("needs onnxruntime-gpu")
    texts = ["How do I reset my password?", "비밀번호를 어떻게 바꾸나요?", ""]
    try:
        gpu = OnnxEmbedder.open("default", "cuda", 1)
    except EmbedderError as error:
        pytest.skip(str(error))
    cpu = OnnxEmbedder.open("default", "cpu", 1)
    assert gpu.space != cpu.space
    assert ((gpu.encode(texts).vectors * cpu.encode(texts).vectors).sum(axis=1) > 0.99).all()


def test_two_threads_give_the_same_vectors(folder: Path) -> None:
    write_bert(folder)
    texts = ["the cat sat on the mat", "a dog ran"]
    one, two = (OnnxEmbedder.open(str(folder), "cpu", threads).encode(texts).vectors for threads in (1, 2))
    assert np.allclose(one, two, atol=1e-6)
