"""llama.cpp's continuous-batching server, in process, through `xllamacpp`."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.batched.config import BatchedConfig
from backends.batched.engines.context import overflow
from backends.batched.engines.slots import Slots
from backends.batched.gguf import context_length
from backends.batched.models import batchable_gguf, habits_of, name_of, with_system
from backends.errors import EngineUnavailable
from backends.protocols import EngineInfo, Failure, Job, Load, Piece

# Tokens per step. A prompt longer than this is prefilled in several steps, between which the other jobs
# decode and a cancel is heard; on CPUs larger steps are hardly faster.
STEP_TOKENS = 64

# llama.cpp rounds a slot's context up to a multiple of this; so do we, to know where it ends.
_CONTEXT_STEP = 256

# Temperature before the cuts by probability, as in transformers and vLLM, so that the same request means the
# same on every engine; llama.cpp's own order cuts first. Top-k, which temperature does not change, goes ahead
# of it and leaves it fewer tokens.
_SAMPLERS = ("penalties", "top_k", "temperature", "top_p", "min_p")

# llama.cpp takes this seed to mean "none".
_NO_SEED = 0xFFFFFFFF


@dataclass(slots=True)
class _Running:
    """A job inside the server. `tokens` is what it holds of the KV cache."""

    job: Job
    emit: Callable[[Piece | Failure], None]
    cancelled: bool = False
    tokens: int = 0


class LlamaCppEngine:
    """One llama.cpp server with a slot, and a thread of ours, per running job.

    Slots have KV caches of their own: a long prompt cannot starve another job's.
    """

    def __init__(self, config: BatchedConfig) -> None:
        self._config = config
        self._habits = habits_of(config.model)
        self._running: dict[int, _Running] = {}
        self._lock = threading.Lock()
        self._context_tokens = config.context_tokens
        self._slots = Slots(config.max_batch)
        self._server: Any = None

    def start(self) -> EngineInfo:
        path = batchable_gguf(self._config.model)
        try:
            import xllamacpp
        except ImportError as error:
            raise EngineUnavailable(
                "engine llamacpp needs xllamacpp: pip install 'lockgate[local]'"
            ) from error
        try:
            trained_tokens = context_length(path)
        except ValueError as error:
            raise EngineUnavailable(f"cannot read the model: {error}") from error
        wanted_tokens = -(-self._config.context_tokens // _CONTEXT_STEP) * _CONTEXT_STEP
        self._context_tokens = min(wanted_tokens, trained_tokens or wanted_tokens)
        # The server insists on listening: give it a socket in a folder of our own, unlinked at once, and a
        # key that nobody knows, so that no other user of this machine can reach it.
        folder = Path(tempfile.mkdtemp(prefix="lockgate-"))
        try:
            self._server = xllamacpp.Server(self._params(xllamacpp, path, folder))
        except RuntimeError as error:
            raise EngineUnavailable(f"llama.cpp cannot load {path}: {error}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if self._habits.system is not None:
            self._read_ahead(self._server, self._habits.system)
        return EngineInfo(
            engine="llamacpp",
            model=name_of(self._config.model),
            context_tokens=self._context_tokens,
            max_batch=self._config.max_batch,
        )

    def _params(self, xllamacpp: Any, path: Path, folder: Path) -> Any:
        config = self._config
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_parallel = config.max_batch
        params.n_ctx = config.max_batch * self._context_tokens
        params.n_batch = STEP_TOKENS
        params.n_ubatch = STEP_TOKENS
        params.cpuparams.n_threads = config.thread_count
        # One sequence is bound by memory, a batch by arithmetic. Without polling, a thread that waits for
        # another one sleeps: a full house of spinning threads stalls on a busy machine.
        params.cpuparams_batch.n_threads = config.batch_thread_count
        params.cpuparams.poll = params.cpuparams_batch.poll = 0
        params.cache_ram_mib = 0  # its default keeps up to 8 GiB of past prompts
        params.cache_idle_slots = False
        params.reasoning_format = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
        params.force_pure_content_parser = True
        params.fit_params = False
        params.ui = False
        params.verbosity = 0
        params.hostnames = [str(folder / "llama.sock")]
        params.api_keys = [secrets.token_hex(32)]
        return params

    def _read_ahead(self, server: Any, system: str) -> None:
        """Lets every slot read the system line that most conversations begin with; does not wait for it."""
        body = {"messages": [{"role": "system", "content": system}], "max_tokens": 1}
        for slot in range(self._config.max_batch):
            threading.Thread(
                target=server.handle_chat_completions,
                args=(body | {"id_slot": slot}, lambda answer: True),
                name=f"read-ahead-{slot}",
                daemon=True,
            ).start()

    def submit(self, job: Job, emit: Callable[[Piece | Failure], None]) -> None:
        running = _Running(job=job, emit=emit)
        with self._lock:
            self._running[job.id] = running
        threading.Thread(target=self._generate, args=(running,), name=f"job-{job.id}", daemon=True).start()

    def cancel(self, job_id: int) -> None:
        with self._lock:
            if running := self._running.get(job_id):
                running.cancelled = True

    def load(self) -> Load:
        with self._lock:
            jobs = list(self._running.values())
        pool = self._config.max_batch * self._context_tokens
        used = min(1.0, sum(job.tokens for job in jobs) / pool)
        return Load(queued=0, running=len(jobs), kv_usage=used)

    def close(self) -> None:
        with self._lock:
            for running in self._running.values():
                running.cancelled = True
        self._server = None

    def _generate(self, running: _Running) -> None:
        answer = _Answer(running, self._context_tokens)
        body = self._body(running.job)
        slot = self._slots.take("\n".join(message["content"] for message in body["messages"]))
        if slot is not None:
            body["id_slot"] = slot
        try:
            self._server.handle_chat_completions(body, answer.take)
            last = answer.last()
        except Exception as error:  # noqa: BLE001  the thread's boundary: a job must end with a word
            last = Failure(job_id=running.job.id, kind="engine", message=f"llama.cpp failed: {error}")
        self._slots.release(slot)
        with self._lock:
            del self._running[running.job.id]
        if not running.cancelled:
            running.emit(last)

    def _body(self, job: Job) -> dict[str, Any]:
        messages = with_system(job.messages, self._habits)
        sampling = job.sampling
        temperature = _first(sampling.temperature, self._habits.temperature)
        wanted = {
            "max_tokens": sampling.max_tokens,
            "temperature": temperature,
            "top_p": _first(sampling.top_p, self._habits.top_p),
            # Greedy needs one candidate; sorting the whole vocabulary for it costs milliseconds a token.
            "top_k": 1 if temperature == 0 else _first(sampling.top_k, self._habits.top_k),
            "min_p": _first(sampling.min_p, self._habits.min_p),
            "frequency_penalty": sampling.frequency_penalty,
            "presence_penalty": sampling.presence_penalty,
            "repeat_penalty": sampling.repetition_penalty,
            "seed": None if sampling.seed is None else sampling.seed % _NO_SEED,
            "stop": list(sampling.stop) or None,
        }
        body: dict[str, Any] = {key: value for key, value in wanted.items() if value is not None}
        body |= {"messages": messages, "stream": True, "stream_options": {"include_usage": True}}
        body["samplers"] = list(_SAMPLERS)
        # Words during prefill, so that a cancel is heard there too; the first of them, sent before any
        # work, tells the prompt's length.
        body["return_progress"] = True
        return body


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


class _Answer:
    """Reads the server's chunks of one job; `take` is its callback, and returning True stops the job."""

    def __init__(self, running: _Running, context_tokens: int) -> None:
        self._running = running
        self._context_tokens = context_tokens
        self._failure: Failure | None = None
        self._finish: str | None = None
        self._usage: dict[str, Any] | None = None

    def take(self, chunk: dict[str, Any]) -> bool:
        if self._running.cancelled:
            return True
        if error := chunk.get("error"):
            self._failure = self._failure_of(error)
            return True
        if progress := chunk.get("prompt_progress"):
            self._running.tokens = progress["total"]
            self._failure = overflow(self._running.job, progress["total"], self._context_tokens)
            return self._failure is not None
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk["choices"]:
            self._finish = choice["finish_reason"] or self._finish
            if text := choice["delta"].get("content"):
                self._running.tokens += 1
                self._running.emit(Piece(job_id=self._running.job.id, text=text))
        return self._running.cancelled

    def last(self) -> Piece | Failure:
        """What ends the job, once the server has nothing more to say."""
        job_id = self._running.job.id
        if self._failure is not None:
            return self._failure
        if self._finish is None or self._usage is None:
            return Failure(job_id=job_id, kind="engine", message="llama.cpp ended without a finish reason")
        details = self._usage.get("prompt_tokens_details") or {}
        return Piece(
            job_id=job_id,
            finish_reason="length" if self._finish == "length" else "stop",
            prompt_tokens=self._usage["prompt_tokens"],
            completion_tokens=self._usage["completion_tokens"],
            cached_tokens=details.get("cached_tokens", 0),
        )

    def _failure_of(self, error: dict[str, Any]) -> Failure:
        job = self._running.job
        if error.get("type") == "exceed_context_size_error":
            found = overflow(job, error["n_prompt_tokens"], self._context_tokens)
            if found is not None:
                return found
        message = str(error.get("message", "unknown error"))
        if error.get("code") == 400:
            return Failure(job_id=job.id, kind="invalid", message=message, param="messages")
        return Failure(job_id=job.id, kind="engine", message=f"llama.cpp failed: {message}")
