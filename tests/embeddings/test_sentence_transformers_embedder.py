from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from embeddings.onnx_embedder import OnnxEmbedder
from embeddings.protocols import EmbedderError
from embeddings.sentence_transformers_embedder import SentenceTransformersEmbedder
from tests.tiny_bert import MAX_TOKENS, write_bert


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    write_bert(made)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    (made / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    prompts = {"prompts": {"q": "not "}, "default_prompt_name": "q"}
    (made / "config_sentence_transformers.json").write_text(json.dumps(prompts), "utf-8")
    return made


@pytest.fixture(scope="module")
def tiny(folder: Path) -> Iterator[SentenceTransformersEmbedder]:
    embedder = SentenceTransformersEmbedder.open(str(folder), "cpu")
    yield embedder
    embedder.close()


def test_agrees_with_the_converted_model(
    tiny: SentenceTransformersEmbedder, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKGATE_CACHE_DIR", str(tmp_path))
    texts = ["the cat sat on the mat", "a dog", "", "the tree " * MAX_TOKENS]
    mine, theirs = OnnxEmbedder.open(str(folder), "cpu", 1).encode(texts), tiny.encode(texts)
    assert (mine.vectors * theirs.vectors).sum(axis=1).min() > 0.99
    assert mine.token_counts.tolist() == theirs.token_counts.tolist() == [9, 5, 3, 2 * MAX_TOKENS + 3]
    assert mine.truncated.tolist() == theirs.truncated.tolist() == [False, False, False, True]


def test_space_follows_the_weights(tiny: SentenceTransformersEmbedder, folder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    assert tiny.space.startswith(f"{folder.name}-float32-")
    assert tiny.space.endswith("/sentence-transformers-cpu")
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    assert SentenceTransformersEmbedder.open(str(copy), "cpu").space == tiny.space
    tensors = load_file(copy / "model.safetensors")
    tensors["embeddings.LayerNorm.bias"] += np.float32(0.01)
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    assert SentenceTransformersEmbedder.open(str(copy), "cpu").space != tiny.space


@pytest.mark.parametrize("name", ["no-such-model", "nobody/no-such-model", "/no/such/folder"])
def test_a_model_that_is_not_here_is_one_line(name: str) -> None:
    with pytest.raises(EmbedderError, match=r"no-such-model|/no/such/folder") as raised:
        SentenceTransformersEmbedder.open(name, "cpu", download=False)
    assert "\n" not in str(raised.value)


def test_the_default_model_is_of_the_other_kind() -> None:
    with pytest.raises(EmbedderError, match='kind = "onnx"'):
        SentenceTransformersEmbedder.open("default")


def test_asking_for_cuda_where_there_is_none_is_an_error(folder: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this PyTorch has CUDA")
    with pytest.raises(EmbedderError, match="cpu"):
        SentenceTransformersEmbedder.open(str(folder), "cuda")
