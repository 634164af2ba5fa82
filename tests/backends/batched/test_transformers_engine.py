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


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TransformersEngine, Path]]:
    """An engine in float32, and its model's folder. In bfloat16 the last bit of a logit depends on what else
    is in the batch, and best tokens tie."""
    folder = tmp_path_factory.mktemp("float32")
    transformers.AutoTokenizer.from_pretrained(default_hf_folder()).save_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(default_hf_folder(), dtype="float32")
    model.save_pretrained(folder)
    made = TransformersEngine(BatchedConfig(engine="transformers", model=str(folder), max_batch=4))
    made.start()
    yield made, folder
    made.close()


def test_greedy_is_what_generate_says(exact: tuple[TransformersEngine, Path]) -> None:
    """Token for token: all three prompts in one batch against one by one in the library's plain loop."""
    engine, folder = exact
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    sampling = Sampling(max_tokens=NEW_TOKENS, temperature=0.0)
    runs = [_submit(engine, at, prompt, sampling) for at, prompt in enumerate(PROMPTS, start=1)]
    for prompt, events in zip(PROMPTS, runs, strict=True):
        messages = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        inputs = tokenizer(text, return_tensors="pt", add_special_tokens=False)
        out = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False)
        expected = tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        assert _text(events) == expected


def test_greedy_and_sampled_rows_share_a_batch(exact: tuple[TransformersEngine, Path]) -> None:
    engine, _ = exact
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


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=2, temperature=5e-324),
        Sampling(max_tokens=2, temperature=1e-30, top_p=5e-324),
        Sampling(max_tokens=2, temperature=1.0, top_p=5e-324, min_p=1.0),
        Sampling(max_tokens=2, temperature=2.0, top_k=2**62),
        Sampling(max_tokens=2, temperature=1.0, top_p=1.0, top_k=0, min_p=0.0),
    ],
)
def test_extreme_sampling_does_not_kill_it(engine: TransformersEngine, sampling: Sampling) -> None:
    assert _text(_submit(engine, 60, "What is the capital of France?", sampling))
    assert engine.load().running == 0


def test_an_error_in_a_step_is_told_by_load_and_not_blamed_on_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a NaN does: the library fails every request of the batch and stops."""

    def broken() -> None:
        raise RuntimeError("probability tensor contains nan")

    made = TransformersEngine(BatchedConfig(engine="transformers", max_batch=1, context_tokens=128))
    made.start()
    try:
        monkeypatch.setattr(made._manager, "_generation_step", broken)
        events = _submit(made, 1, "hi", Sampling(max_tokens=2))
        made._manager._generation_thread.join(timeout=60)
        made._hand_out_thread.join(timeout=60)
        with pytest.raises(RuntimeError, match="contains nan"):
            made.load()
        assert events.empty()
    finally:
        made.close()


def test_a_dead_generation_thread_is_told_by_load() -> None:
    made = TransformersEngine(BatchedConfig(engine="transformers", max_batch=1, context_tokens=128))
    made.start()
    made.close()
    with pytest.raises(RuntimeError, match="generation died"):
        made.load()
