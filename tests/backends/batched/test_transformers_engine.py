"""What is particular to transformers: the same tokens as generate, blocks freed, fields it lacks."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.batched.config import BatchedConfig
from backends.batched.engines.transformers_engine import TransformersEngine
from backends.batched.models import default_hf_folder
from backends.protocols import Failure, Job, Piece, Sampling

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.model

PROMPTS = ("What is the capital of France?", "Write one sentence about the sea.", "List three animals.")
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def engine() -> Iterator[TransformersEngine]:
    made = TransformersEngine(BatchedConfig(engine="transformers", max_batch=4, context_tokens=512))
    made.start()
    yield made
    made.close()


def _submit(engine: TransformersEngine, job_id: int, content: str, sampling: Sampling) -> queue.Queue[Any]:
    events: queue.Queue[Piece | Failure] = queue.Queue()
    engine.submit(
        Job(id=job_id, messages=[{"role": "user", "content": content}], sampling=sampling), events.put
    )
    return events


def _text(events: queue.Queue[Any]) -> str:
    text = ""
    while True:
        event = events.get(timeout=120)
        assert isinstance(event, Piece), event
        text += event.text
        if event.finish_reason is not None:
            return text


def test_greedy_is_what_generate_says(tmp_path: Path) -> None:
    """Token for token: all three prompts in one batch against one by one in the library's plain loop. In
    float32: in bfloat16 the last bit of a logit depends on what else is in the batch, and best tokens tie."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(default_hf_folder())
    model = transformers.AutoModelForCausalLM.from_pretrained(default_hf_folder(), dtype="float32").eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    engine = TransformersEngine(BatchedConfig(engine="transformers", model=str(tmp_path), max_batch=4))
    engine.start()
    sampling = Sampling(max_tokens=NEW_TOKENS, temperature=0.0)
    runs = [_submit(engine, at, prompt, sampling) for at, prompt in enumerate(PROMPTS, start=1)]
    for prompt, events in zip(PROMPTS, runs, strict=True):
        messages = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        inputs = tokenizer(text, return_tensors="pt", add_special_tokens=False)
        out = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False)
        expected = tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        assert _text(events) == expected
    engine.close()


def test_greedy_and_sampled_rows_share_a_batch(engine: TransformersEngine) -> None:
    sampling = Sampling(max_tokens=NEW_TOKENS, temperature=0.0)
    alone = _text(_submit(engine, 10, PROMPTS[1], sampling))
    hot = Sampling(max_tokens=NEW_TOKENS, temperature=2.0, top_k=40, top_p=0.95)
    others = [_submit(engine, 20 + at, PROMPTS[1], hot) for at in range(3)]
    beside = _text(_submit(engine, 11, PROMPTS[1], sampling))
    assert beside == alone
    assert any(_text(events) != alone for events in others)


def test_cancel_frees_the_blocks(engine: TransformersEngine) -> None:
    cache = engine._manager.batch_processor.cache
    before = cache.compute_free_capacity()
    events = _submit(engine, 30, "Write a very long story.", Sampling(max_tokens=400, temperature=0.0))
    events.get(timeout=120)
    assert cache.compute_free_capacity() < before
    engine.cancel(30)
    deadline = time.monotonic() + 60
    while cache.compute_free_capacity() < before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert cache.compute_free_capacity() == before


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", 1), ("frequency_penalty", 0.5), ("presence_penalty", 0.5), ("repetition_penalty", 1.2)],
)
def test_what_it_cannot_do_is_refused_by_name(engine: TransformersEngine, field: str, value: float) -> None:
    failure = _submit(engine, 40, "hi", Sampling(**{field: value})).get(timeout=60)  # type: ignore[arg-type]
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.param) == ("invalid", field)


def test_neutral_penalties_pass(engine: TransformersEngine) -> None:
    neutral = Sampling(max_tokens=2, frequency_penalty=0.0, presence_penalty=0.0, repetition_penalty=1.0)
    assert _text(_submit(engine, 50, "hi", neutral))


def test_a_dead_generation_thread_is_told_by_load() -> None:
    made = TransformersEngine(BatchedConfig(engine="transformers", max_batch=1, context_tokens=128))
    made.start()
    made.close()
    with pytest.raises(RuntimeError, match="generation died"):
        made.load()
