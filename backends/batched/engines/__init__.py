"""Continuous-batching engines, and the choice between them."""

from __future__ import annotations

import importlib.util
from typing import Literal

from backends.batched.config import DEFAULT_MODEL, BatchedConfig
from backends.protocols import Engine


def choose(config: BatchedConfig) -> Literal["llamacpp", "transformers"]:
    """The engine that `config` names, or for "auto" the one that suits the model and the machine."""
    if config.engine != "auto":
        return config.engine
    if config.model.endswith(".gguf"):
        return "llamacpp"
    if config.model == DEFAULT_MODEL and not _has_cuda():
        return "llamacpp"
    return "transformers"


def build(config: BatchedConfig) -> Engine:
    """An engine, not yet started."""
    if choose(config) == "llamacpp":
        from backends.batched.engines.llamacpp import LlamaCppEngine

        return LlamaCppEngine(config)
    from backends.batched.engines.transformers_engine import TransformersEngine

    return TransformersEngine(config)


def _has_cuda() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())
