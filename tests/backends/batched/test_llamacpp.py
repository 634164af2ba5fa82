"""What is particular to llama.cpp."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.batched.config import BatchedConfig
from backends.batched.engines.llamacpp import LlamaCppEngine
from backends.protocols import EngineInfo, Failure, Job, Piece, Sampling

pytest.importorskip("xllamacpp")
pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[LlamaCppEngine, EngineInfo]]:
    engine = LlamaCppEngine(BatchedConfig(engine="llamacpp", max_batch=2, context_tokens=300))
    yield engine, engine.start()
    engine.close()


def _ask(engine: LlamaCppEngine, job_id: int, content: str, sampling: Sampling) -> tuple[str, Piece]:
    events: queue.Queue[Piece | Failure] = queue.Queue()
    engine.submit(
        Job(id=job_id, messages=[{"role": "user", "content": content}], sampling=sampling), events.put
    )
    text = ""
    while True:
        event = events.get(timeout=120)
        assert isinstance(event, Piece), event
        text += event.text
        if event.finish_reason is not None:
            return text, event


def test_the_context_is_what_llama_cpp_rounds_it_to(started: tuple[LlamaCppEngine, EngineInfo]) -> None:
    assert started[1].context_tokens == 512


def test_an_open_end_stops_at_the_context(started: tuple[LlamaCppEngine, EngineInfo]) -> None:
    """The prompt fills it up to some tens of tokens, and a high repetition keeps the answer going."""
    _, last = _ask(started[0], 1, "Repeat for ever: na na na " + "na " * 440, Sampling(temperature=0.0))
    assert last.prompt_tokens + last.completion_tokens <= 512


def test_no_port_is_opened(started: tuple[LlamaCppEngine, EngineInfo]) -> None:
    mine = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            mine.add(target.removeprefix("socket:[").removesuffix("]"))
    listening = {
        fields[9]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for fields in map(str.split, Path(table).read_text().splitlines()[1:])
        if fields[3] == "0A"
    }
    assert not mine & listening


def test_a_seed_repeats_its_answer(started: tuple[LlamaCppEngine, EngineInfo]) -> None:
    sampling = Sampling(max_tokens=16, temperature=1.5, seed=-5)
    texts = {_ask(started[0], 10 + at, "Write a story.", sampling)[0] for at in range(3)}
    assert len(texts) == 1


def test_without_a_seed_answers_differ(started: tuple[LlamaCppEngine, EngineInfo]) -> None:
    sampling = Sampling(max_tokens=16, temperature=1.5)
    texts = {_ask(started[0], 20 + at, "Write a story.", sampling)[0] for at in range(4)}
    assert len(texts) > 1


def test_a_common_beginning_is_read_once(started: tuple[LlamaCppEngine, EngineInfo]) -> None:
    long = "The list: " + ", ".join(f"item {at}" for at in range(40)) + ". "
    _ask(started[0], 30, long + "Name the first.", Sampling(max_tokens=1, temperature=0.0))
    _, last = _ask(started[0], 31, long + "Name the last.", Sampling(max_tokens=1, temperature=0.0))
    assert last.cached_tokens > 100


def test_penalties_change_the_answer(started: tuple[LlamaCppEngine, EngineInfo]) -> None:
    prompt = "Say the word yes twenty times."
    plain, _ = _ask(started[0], 40, prompt, Sampling(max_tokens=24, temperature=0.0))
    for at, sampling in enumerate(
        (
            Sampling(max_tokens=24, temperature=0.0, repetition_penalty=1.8),
            Sampling(max_tokens=24, temperature=0.0, frequency_penalty=2.0, presence_penalty=2.0),
        )
    ):
        assert _ask(started[0], 41 + at, prompt, sampling)[0] != plain
