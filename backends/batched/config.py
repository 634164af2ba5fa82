"""What the built-in backend is told."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

EngineName = Literal["auto", "llamacpp", "transformers"]

DEFAULT_MODEL = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedConfig:
    """The built-in engine and its bounds.

    `model` is "default" (SmolLM2-135M-Instruct), a .gguf file, or, for transformers, a folder or hub
    name. `engine` "auto" takes llamacpp for a .gguf file, and for the default model on a machine without
    CUDA; else transformers. `max_batch` jobs are inside the engine at once, each with `context_tokens` for
    prompt plus completion, so the KV cache holds `max_batch * context_tokens` tokens (23 KB each for the
    default model: 378 MB as it is). `max_queue` bounds the jobs waiting for a place. `threads` None is half
    of the usable logical CPUs: the gateway and its embedder need the rest, and an engine whose threads spin
    at a barrier for one that was descheduled loses more than the second thread wins.
    """

    engine: EngineName = "auto"
    model: str = DEFAULT_MODEL
    max_batch: int = 8
    threads: int | None = None
    context_tokens: int = 2048
    max_queue: int = 1024

    def __post_init__(self) -> None:
        if self.engine not in ("auto", "llamacpp", "transformers"):
            raise ValueError(f"engine must be auto, llamacpp or transformers, not {self.engine!r}")
        for field, least in (("max_batch", 1), ("context_tokens", 64), ("max_queue", 0)):
            if getattr(self, field) < least:
                raise ValueError(f"{field} must be at least {least}, not {getattr(self, field)}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {self.threads}")

    @property
    def thread_count(self) -> int:
        return self.threads or max(1, len(os.sched_getaffinity(0)) // 2)

    @property
    def batch_thread_count(self) -> int:
        """Of llama.cpp's steps over more than one token."""
        return self.threads or len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """How the worker process is watched. A worker that sends nothing for `hang_s`, though it is pinged
    every `heartbeat_s`, is killed. The pause before restart n is `backoff_s * 2**n`, at most
    `backoff_max_s`. After `patience` failed restarts in a row waiting jobs are refused, not kept."""

    heartbeat_s: float = 1.0
    hang_s: float = 20.0
    start_timeout_s: float = 300.0
    backoff_s: float = 0.25
    backoff_max_s: float = 30.0
    patience: int = 3
