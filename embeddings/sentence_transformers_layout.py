"""What the files around a sentence-transformers model say of how to use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from embeddings.protocols import EmbedderError

Pooling = Literal["mean", "cls"]

# Under the unit norm, dividing the sum by the square root of the length is the mean.
_POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean",
    "pooling_mode_cls_token": "cls",
}
_MODULES = {"Transformer", "Pooling", "Normalize"}


def pooling(folder: Path) -> Pooling:
    """How token vectors become one vector; the mean where nothing is said. Raises EmbedderError on a kind
    other than mean and cls, or on layers after the pooling. A missing Normalize layer changes no direction:
    vectors get unit norm in any case."""
    for module in _read(folder / "modules.json", []):
        kind = _kind(module)
        if kind not in _MODULES:
            raise EmbedderError(
                f"{folder / 'modules.json'} has a {kind} layer, which ONNX models here cannot have: "
                'use kind = "sentence-transformers"'
            )
    path = _pooling_config(folder)
    config = _read(path, {})
    modes = [key for key, on in config.items() if key.startswith("pooling_mode_") and on is True]
    if isinstance(config.get("pooling_mode"), str):
        mode = config["pooling_mode"]
        modes.append(f"pooling_mode_{mode}_token" if mode == "cls" else f"pooling_mode_{mode}_tokens")
    if not modes:
        return "mean"
    if len(modes) > 1 or modes[0] not in _POOLINGS:
        raise EmbedderError(
            f"{path} asks for {' and '.join(modes)}: only mean or cls can be done; "
            'use kind = "sentence-transformers"'
        )
    return _POOLINGS[modes[0]]


def max_tokens(folder: Path) -> int:
    """The window the model is meant to be used with: `max_seq_length` of the package, else the tokenizer's
    limit, and never more than the positions it has."""
    model = _read(folder / "config.json", {})
    positions = model.get("max_position_embeddings")
    limits = [
        _read(folder / "sentence_bert_config.json", {}).get("max_seq_length"),
        _read(folder / "tokenizer_config.json", {}).get("model_max_length"),
    ]
    if isinstance(positions, int):
        # RoBERTa's first position is the one after its padding id.
        reserved = int(model.get("pad_token_id", 1)) + 1 if "roberta" in model.get("model_type", "") else 0
        limits.append(positions - reserved)
    known = [limit for limit in limits if isinstance(limit, int) and 0 < limit < 1_000_000]
    return min(known, default=512)


def prompt(folder: Path) -> str:
    """The text the model's authors put before every input by default."""
    config = _read(folder / "config_sentence_transformers.json", {})
    name = config.get("default_prompt_name")
    return str((config.get("prompts") or {}).get(name, "")) if name else ""


def files(folder: Path) -> list[Path]:
    """The files that decide what this module answers."""
    names = ("config.json", "config_sentence_transformers.json", "modules.json", "sentence_bert_config.json")
    paths = [folder / name for name in (*names, "tokenizer_config.json")] + [_pooling_config(folder)]
    return [path for path in paths if path.is_file()]


def _pooling_config(folder: Path) -> Path:
    modules = _read(folder / "modules.json", [])
    path = next((m.get("path") for m in modules if _kind(m) == "Pooling"), "1_Pooling")
    return folder / str(path) / "config.json"


def _kind(module: dict[str, Any]) -> str:
    return str(module.get("type", "")).rpartition(".")[2]


def _read(path: Path, absent: Any) -> Any:
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return absent
    except ValueError as error:
        raise EmbedderError(f"{path} is not JSON: {error}") from error
    if type(content) is not type(absent):
        raise EmbedderError(f"{path} holds a {type(content).__name__}, not a {type(absent).__name__}")
    return content
