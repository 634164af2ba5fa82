"""What every Engine does, whatever library is behind it."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count

import pytest

from backends.batched import engines
from backends.batched.config import BatchedConfig
from backends.protocols import Engine, EngineInfo, Failure, Job, Load, Piece, Sampling

pytestmark = pytest.mark.model

CONTEXT_TOKENS = 512
MAX_BATCH = 8
PATIENCE_S = 120.0

_ids = count(1)


class Running:
    """A job that has been submitted, and what came of it."""

    def __init__(self, engine: Engine, prompt: str, sampling: Sampling) -> None:
        self.job = Job(id=next(_ids), messages=[{"role": "user", "content": prompt}], sampling=sampling)
        self.events: queue.Queue[Piece | Failure] = queue.Queue()
        engine.submit(self.job, self.events.put)

    def next(self) -> Piece | Failure:
        return self.events.get(timeout=PATIENCE_S)

    def end(self) -> tuple[str, Piece | Failure]:
        """The whole text and what ended it."""
        text = ""
        while True:
            event = self.next()
            if isinstance(event, Failure):
                return text, event
            text += event.text
            if event.finish_reason is not None:
                return text, event


class Subject:
    """A started engine."""

    def __init__(self, engine: Engine, info: EngineInfo) -> None:
        self.engine = engine
        self.info = info

    def run(self, prompt: str, **sampling: object) -> Running:
        return Running(self.engine, prompt, Sampling(**sampling))  # type: ignore[arg-type]

    def greedy(self, prompt: str, max_tokens: int = 24, stop: Sequence[str] = ()) -> tuple[str, Piece]:
        text, last = self.run(prompt, max_tokens=max_tokens, temperature=0.0, stop=tuple(stop)).end()
        assert isinstance(last, Piece), last
        return text, last

    def settle(self) -> Load:
        """The load once nothing runs."""
        deadline = time.monotonic() + PATIENCE_S
        while (load := self.engine.load()).running and time.monotonic() < deadline:
            time.sleep(0.01)
        return load


@pytest.fixture(scope="module", params=["llamacpp", "transformers"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    pytest.importorskip({"llamacpp": "xllamacpp", "transformers": "transformers"}[request.param])
    engine = engines.build(
        BatchedConfig(engine=request.param, max_batch=MAX_BATCH, context_tokens=CONTEXT_TOKENS)
    )
    info = engine.start()
    yield Subject(engine, info)
    engine.close()


def test_info_says_what_was_asked_for(subject: Subject) -> None:
    assert subject.info.context_tokens == CONTEXT_TOKENS
    assert subject.info.max_batch == MAX_BATCH
    assert subject.info.model == "SmolLM2-135M-Instruct"


def test_text_arrives_in_pieces_with_counts(subject: Subject) -> None:
    running = subject.run("What is the capital of France?", max_tokens=24, temperature=0.0)
    first = running.next()
    assert isinstance(first, Piece)
    assert first.text
    assert first.finish_reason is None
    rest, last = running.end()
    assert isinstance(last, Piece)
    assert "Paris" in first.text + rest
    assert last.finish_reason == "stop"
    assert 20 < last.prompt_tokens < 40
    assert 5 < last.completion_tokens < 24


def test_greedy_says_the_same_twice(subject: Subject) -> None:
    texts = {subject.greedy("Write one sentence about the sea.")[0] for _ in range(3)}
    assert len(texts) == 1


def test_without_sampling_the_model_answers_its_own_way(subject: Subject) -> None:
    text, last = subject.run("Name a fruit.", max_tokens=12).end()
    assert isinstance(last, Piece), last
    assert text


def test_sampling_fields_together(subject: Subject) -> None:
    text, last = subject.run(
        "Name a colour.", max_tokens=12, temperature=1.2, top_p=0.8, top_k=30, min_p=0.05
    ).end()
    assert isinstance(last, Piece), last
    assert text


def test_max_tokens_is_exact_and_finishes_with_length(subject: Subject) -> None:
    _, last = subject.greedy("Write a long story about a dragon.", max_tokens=7)
    assert last.finish_reason == "length"
    assert last.completion_tokens == 7


@pytest.mark.parametrize("words", [1, 2])
def test_stop_string_ends_the_text_before_it(subject: Subject, words: int) -> None:
    """The stop string is taken from the middle of a known answer, begins inside a token and, with two
    words, spans several."""
    prompt = "Write one sentence about the sea."
    whole, _ = subject.greedy(prompt, max_tokens=24)
    stop = " ".join(whole.split()[4 : 4 + words])[1:]
    assert len(stop) > 1
    text, last = subject.greedy(prompt, max_tokens=24, stop=[stop])
    assert text == whole[: whole.index(stop)]
    assert last.finish_reason == "stop"


def test_characters_are_whole(subject: Subject) -> None:
    running = subject.run("Repeat exactly: 안녕하세요 😀 naïve café", max_tokens=32, temperature=0.0)
    while True:
        event = running.next()
        assert isinstance(event, Piece), event
        if event.finish_reason is not None:
            break
        event.text.encode()
        assert "�" not in event.text


def test_a_prompt_longer_than_the_context_is_refused_and_the_engine_lives(subject: Subject) -> None:
    _, failure = subject.run("word " * (2 * CONTEXT_TOKENS), max_tokens=4).end()
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.param) == ("invalid", "messages")
    assert str(CONTEXT_TOKENS) in failure.message
    assert subject.greedy("What is the capital of France?")[0]


def test_prompt_plus_max_tokens_beyond_the_context_is_refused(subject: Subject) -> None:
    _, failure = subject.run("Hello", max_tokens=CONTEXT_TOKENS).end()
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.param) == ("invalid", "max_tokens")


def test_without_max_tokens_the_answer_ends_with_the_context(subject: Subject) -> None:
    """The prompt leaves very little room."""
    prompt = "word " * (CONTEXT_TOKENS - 48) + "Count from one to a thousand."
    _, last = subject.run(prompt, temperature=0.0).end()
    assert isinstance(last, Piece), last
    assert last.prompt_tokens + last.completion_tokens <= CONTEXT_TOKENS


def test_cancel_frees_the_place_at_once_and_says_nothing_more(subject: Subject) -> None:
    running = subject.run("Write a very long story about a dragon.", max_tokens=400, temperature=0.0)
    running.next()
    assert subject.engine.load().running == 1
    subject.engine.cancel(running.job.id)
    started = time.monotonic()
    load = subject.settle()
    assert load.running == 0
    assert time.monotonic() - started < 30
    assert load.kv_usage == 0
    while not running.events.empty():
        event = running.events.get()
        assert isinstance(event, Piece)
        assert event.finish_reason is None


def test_cancel_is_heard_while_the_prompt_is_read(subject: Subject) -> None:
    running = subject.run("word " * (CONTEXT_TOKENS - 60), max_tokens=4)
    subject.engine.cancel(running.job.id)
    assert subject.settle().running == 0
    assert running.events.empty()


def test_cancelling_an_unknown_job_is_no_error(subject: Subject) -> None:
    subject.engine.cancel(10**9)


def test_a_full_batch_runs_at_once_and_every_job_gets_its_own_answer(subject: Subject) -> None:
    capitals = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Germany": "Berlin"}
    runs = {
        country: subject.run(f"What is the capital of {country}?", max_tokens=16, temperature=0.0)
        for country in capitals
    }
    others = [subject.run(f"Write a story about {n} cats.", max_tokens=16, temperature=0.0) for n in range(4)]
    assert subject.engine.load().running == MAX_BATCH
    for country, running in runs.items():
        assert capitals[country] in running.end()[0]
    for running in others:
        text, last = running.end()
        assert isinstance(last, Piece), last
        assert text
    assert subject.settle() == Load(queued=0, running=0, kv_usage=0.0)


def test_jobs_of_one_batch_take_turns(subject: Subject) -> None:
    """Every one of eight jobs has begun before any has ended."""
    order: queue.Queue[tuple[int, bool]] = queue.Queue()
    for at in range(MAX_BATCH):
        job = Job(
            id=next(_ids),
            messages=[{"role": "user", "content": f"Write a long story about {at} dragons."}],
            sampling=Sampling(max_tokens=24, temperature=0.0),
        )
        subject.engine.submit(job, partial(_note, order, at))
    begun: set[int] = set()
    while True:
        at, last = order.get(timeout=PATIENCE_S)
        if last:
            break
        begun.add(at)
    assert begun == set(range(MAX_BATCH))
    subject.settle()


def _note(order: queue.Queue[tuple[int, bool]], at: int, event: Piece | Failure) -> None:
    order.put((at, isinstance(event, Failure) or event.finish_reason is not None))
