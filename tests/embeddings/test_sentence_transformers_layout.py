from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from embeddings import sentence_transformers_layout as layout
from embeddings.protocols import EmbedderError

TRANSFORMER = {"path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
NORMALIZE = {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
DENSE = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}


def write(folder: Path, name: str, content: Any) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(content), "utf-8")


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"word_embedding_dimension": 384}, "mean"),
    ],
)
def test_reads_the_pooling(tmp_path: Path, config: dict[str, Any], pooling: str) -> None:
    write(tmp_path, "modules.json", [TRANSFORMER, POOLING, NORMALIZE])
    write(tmp_path, "1_Pooling/config.json", config)
    assert layout.pooling(tmp_path) == pooling


def test_the_pooling_may_lie_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, "modules.json", [TRANSFORMER, {**POOLING, "path": "pool"}])
    write(tmp_path, "pool/config.json", {"pooling_mode_cls_token": True})
    assert layout.pooling(tmp_path) == "cls"


def test_the_mean_where_nothing_is_said(tmp_path: Path) -> None:
    assert layout.pooling(tmp_path) == "mean"


@pytest.mark.parametrize(
    "config",
    [
        {"pooling_mode_max_tokens": True},
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
        {"pooling_mode": "lasttoken"},
    ],
)
def test_refuses_poolings_it_cannot_do(tmp_path: Path, config: dict[str, Any]) -> None:
    write(tmp_path, "1_Pooling/config.json", config)
    with pytest.raises(EmbedderError, match="sentence-transformers"):
        layout.pooling(tmp_path)


def test_refuses_layers_after_the_pooling(tmp_path: Path) -> None:
    write(tmp_path, "modules.json", [TRANSFORMER, POOLING, DENSE])
    with pytest.raises(EmbedderError, match="Dense"):
        layout.pooling(tmp_path)


@pytest.mark.parametrize(
    ("files", "tokens"),
    [
        ({}, 512),
        ({"sentence_bert_config.json": {"max_seq_length": 256}}, 256),
        ({"sentence_bert_config.json": {"max_seq_length": None}}, 512),
        ({"tokenizer_config.json": {"model_max_length": 128}}, 128),
        ({"tokenizer_config.json": {"model_max_length": int(1e30)}}, 512),
        ({"config.json": {"model_type": "bert", "max_position_embeddings": 64}}, 64),
        (
            {"config.json": {"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}},
            512,
        ),
        (
            {
                "sentence_bert_config.json": {"max_seq_length": 4096},
                "config.json": {"model_type": "bert", "max_position_embeddings": 1024},
            },
            1024,
        ),
    ],
)
def test_the_window_is_the_least_limit(tmp_path: Path, files: dict[str, Any], tokens: int) -> None:
    for name, content in files.items():
        write(tmp_path, name, content)
    assert layout.max_tokens(tmp_path) == tokens


@pytest.mark.parametrize(
    ("config", "prompt"),
    [
        ({"prompts": {"query": "query: "}, "default_prompt_name": "query"}, "query: "),
        ({"prompts": {"query": "query: "}, "default_prompt_name": None}, ""),
        ({"prompts": {}, "default_prompt_name": "query"}, ""),
        ({}, ""),
    ],
)
def test_reads_the_default_prompt(tmp_path: Path, config: dict[str, Any], prompt: str) -> None:
    write(tmp_path, "config_sentence_transformers.json", config)
    assert layout.prompt(tmp_path) == prompt


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_file_is_an_embedder_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, "utf-8")
    with pytest.raises(EmbedderError, match=r"config\.json"):
        layout.max_tokens(tmp_path)


def test_files_are_those_that_are_there(tmp_path: Path) -> None:
    assert layout.files(tmp_path) == []
    write(tmp_path, "modules.json", [TRANSFORMER, {**POOLING, "path": "pool"}])
    write(tmp_path, "pool/config.json", {})
    assert layout.files(tmp_path) == [tmp_path / "modules.json", tmp_path / "pool/config.json"]
