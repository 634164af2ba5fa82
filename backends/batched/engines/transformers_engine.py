"""transformers' continuous batching: paged KV cache, prefix sharing, on CPU and GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from backends.batched.config import DEFAULT_MODEL, BatchedConfig
from backends.batched.engines import sampling
from backends.batched.engines.context import overflow
from backends.batched.models import default_hf_folder, habits_of, name_of, with_system
from backends.batched.text import Detokenizer, StopStrings
from backends.errors import EngineUnavailable
from backends.protocols import EngineInfo, Failure, Job, Load, Piece

# Tokens per page of the KV cache. Pages are shared between prompts with the same beginning, whole pages
# only: small ones share more, and waste less on short answers.
_PAGE_TOKENS = 32
# Prefill tokens per step: between steps the other jobs decode and cancels are heard.
_STEP_TOKENS_CPU = 128
_STEP_TOKENS_GPU = 4096

# Values that are legal and, in float32 or int32, end in NaN or an overflow, which end the whole engine:
# colder than this is greedy, a smaller top_p keeps the best token all the same, a larger top_k keeps all.
_COLDEST = 1e-3
_LEAST_TOP_P = 1e-6
_MOST_TOP_K = 2**31 - 1

# What the engine cannot do, and the value that asks for nothing.
_UNSUPPORTED = {
    "seed": None,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
}


@dataclass(slots=True)
class _Running:
    """A job inside the manager. `seen` counts the tokens that have been detokenized."""

    job: Job
    emit: Callable[[Piece | Failure], None]
    prompt_tokens: int
    detokenizer: Detokenizer
    stops: StopStrings
    seen: int = 0


class TransformersEngine:
    """One ContinuousBatchingManager, and a thread that hands out what it generates."""

    def __init__(self, config: BatchedConfig) -> None:
        self._config = config
        self._habits = habits_of(config.model)
        self._context_tokens = config.context_tokens
        self._running: dict[int, _Running] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._manager: Any = None
        self._tokenizer: Any = None
        self._eos: set[int] = set()
        self._death: str | None = None
        self._hand_out_thread = threading.Thread(target=self._hand_out, name="hand-out", daemon=True)

    def start(self) -> EngineInfo:
        try:
            import torch
            import transformers
        except ImportError as error:
            raise EngineUnavailable(
                "engine transformers needs torch and transformers: pip install 'lockgate[transformers]'"
            ) from error
        torch.set_num_threads(self._config.thread_count)
        transformers.logging.disable_progress_bar()
        source = default_hf_folder() if self._config.model == DEFAULT_MODEL else self._config.model
        device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype="auto").to(device)
        except (OSError, ValueError, ImportError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise EngineUnavailable(f"transformers cannot load {self._config.model}: {reason}") from error
        if not self._tokenizer.chat_template:
            raise EngineUnavailable(f"the tokenizer of {self._config.model} has no chat template")
        self._start_manager(model.eval(), device)
        return EngineInfo(
            engine="transformers",
            model=name_of(self._config.model),
            context_tokens=self._context_tokens,
            max_batch=self._config.max_batch,
        )

    def _start_manager(self, model: Any, device: str) -> None:
        from transformers import ContinuousBatchingConfig, GenerationConfig

        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._context_tokens = min(self._config.context_tokens, limit or self._config.context_tokens)
        eos = model.generation_config.eos_token_id
        self._eos = set(eos if isinstance(eos, list) else [eos] if eos is not None else [])
        pages = -(-self._context_tokens // _PAGE_TOKENS)
        self._manager = model.init_continuous_batching(
            generation_config=GenerationConfig(do_sample=True, eos_token_id=sorted(self._eos) or None),
            continuous_batching_config=ContinuousBatchingConfig(
                page_size=_PAGE_TOKENS,
                num_blocks=self._config.max_batch * pages,
                max_batch_tokens=_STEP_TOKENS_GPU if device == "cuda" else _STEP_TOKENS_CPU,
                max_requests_per_batch=self._config.max_batch,
                per_request_processors=True,
            ),
        )
        sampling.install(self._manager)
        try:
            self._manager.warmup()  # allocates the KV cache
        except (RuntimeError, ValueError) as error:
            raise EngineUnavailable(
                f"no room for a KV cache of {self._config.max_batch} x {self._context_tokens} tokens: lower "
                f"max_batch or context_tokens ({error})"
            ) from error
        self._manager.start()
        self._hand_out_thread.start()

    def submit(self, job: Job, emit: Callable[[Piece | Failure], None]) -> None:
        prompt = _refusal(job) or self._prompt(job)
        if isinstance(prompt, Failure):
            emit(prompt)
            return
        running = _Running(
            job=job,
            emit=emit,
            prompt_tokens=len(prompt),
            detokenizer=Detokenizer(self._decode),
            stops=StopStrings(job.sampling.stop),
        )
        with self._lock:
            self._running[job.id] = running
        self._manager.add_request(
            prompt,
            request_id=str(job.id),
            max_new_tokens=job.sampling.max_tokens or self._context_tokens - len(prompt),
            streaming=True,
            **self._sampling(job),
        )

    def cancel(self, job_id: int) -> None:
        with self._lock:
            known = self._running.pop(job_id, None) is not None
        if known:
            self._manager.cancel_request(str(job_id))

    def load(self) -> Load:
        """Raises RuntimeError when generation has died: the worker then ends and is replaced."""
        if self._death is not None or not self._manager.is_running():
            raise RuntimeError(f"generation died: {self._death or 'its thread is gone'}")
        with self._lock:
            used = sum(running.prompt_tokens + running.seen for running in self._running.values())
            pool = self._config.max_batch * self._context_tokens
            return Load(queued=0, running=len(self._running), kv_usage=min(1.0, used / pool))

    def close(self) -> None:
        self._closing.set()
        if self._manager is not None:
            self._manager.stop(block=True, hard_stop=True)

    def _prompt(self, job: Job) -> list[int] | Failure:
        messages = with_system(job.messages, self._habits)
        try:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # noqa: BLE001  a template is a program of the model's authors
            message = f"the model's chat template refuses the messages: {error}"
            return Failure(job_id=job.id, kind="invalid", message=message, param="messages")
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return overflow(job, len(tokens), self._context_tokens) or tokens

    def _sampling(self, job: Job) -> dict[str, float]:
        asked = job.sampling
        wanted = {
            "temperature": asked.temperature if asked.temperature is not None else self._habits.temperature,
            "top_p": asked.top_p if asked.top_p is not None else self._habits.top_p,
            "top_k": asked.top_k if asked.top_k is not None else self._habits.top_k,
            "min_p": asked.min_p if asked.min_p is not None else self._habits.min_p,
        }
        kept = {name: value for name, value in wanted.items() if value is not None}
        if kept.get("temperature", 1.0) < _COLDEST:
            return {"greedy": 1}
        if "top_p" in kept:
            kept["top_p"] = max(kept["top_p"], _LEAST_TOP_P)
        if "top_k" in kept:
            kept["top_k"] = min(kept["top_k"], _MOST_TOP_K)
        return kept

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def _hand_out(self) -> None:
        while not self._closing.is_set():
            output = self._manager.get_result(timeout=0.5)
            if output is None:
                if not self._manager.is_running():
                    return  # load() tells
                continue
            if output.error is not None:
                # One request's error fails them all. Say nothing: the gateway starts them again.
                self._death = output.error
                return
            with self._lock:
                running = self._running.get(int(output.request_id))
            if running is not None:
                self._take(running, output)

    def _take(self, running: _Running, output: Any) -> None:
        tokens: list[int] = output.generated_tokens
        fresh, running.seen = tokens[running.seen :], len(tokens)
        text = running.stops.feed(running.detokenizer.feed(fresh))
        finished = output.is_finished()
        if finished and not running.stops.stopped:
            text += running.stops.feed(running.detokenizer.flush())
            text += running.stops.flush()
        if finished or running.stops.stopped:
            if not finished:
                self._manager.cancel_request(output.request_id)
            by_itself = running.stops.stopped or (bool(tokens) and tokens[-1] in self._eos)
            last = Piece(
                job_id=running.job.id,
                text=text,
                finish_reason="stop" if by_itself else "length",
                prompt_tokens=running.prompt_tokens,
                completion_tokens=len(tokens),
            )
            with self._lock:
                known = self._running.pop(running.job.id, None) is not None
            if known:
                running.emit(last)
        elif text:
            running.emit(Piece(job_id=running.job.id, text=text))


def _refusal(job: Job) -> Failure | None:
    for name, neutral in _UNSUPPORTED.items():
        if getattr(job.sampling, name) not in (None, neutral):
            message = f"{name}: engine transformers does not support it; leave it out, or use engine llamacpp"
            return Failure(job_id=job.id, kind="invalid", message=message, param=name)
    return None
