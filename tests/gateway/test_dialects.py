"""Which translator joins two APIs, and streams through one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from backends.errors import UpstreamCut, UpstreamInvalid
from backends.protocols import Chunk
from backends.sse import SseReader
from gateway.errors import RequestError
from gateway.parts import dialects
from policies.types import Api, Request
from tests.gateway.api_cases import CASES, CHAT, COMPLETIONS, MESSAGES, RESPONSES, ApiCase, said

ALL = dialects()
OPENAI: frozenset[Api] = frozenset({"chat", "completions", "responses", "embeddings"})


def parsed(frames: Sequence[bytes]) -> list[dict[str, Any]]:
    events = [event.data for event in SseReader().feed(b"".join(frames)) if event.data]
    return [json.loads(data) for data in events if data != b"[DONE]"]


def chunks_of(case: ApiCase) -> list[Chunk]:
    return [Chunk(data=b"", events=[event]) for event in parsed(case.events)]


def request_of(case: ApiCase) -> Request:
    return Request(api=case.api, model="m", body=case.request, tenant="t", stream=True)


class Source:
    """A backend's chunks, that knows whether it was closed."""

    def __init__(self, chunks: Sequence[Chunk | Exception]) -> None:
        self._chunks = chunks
        self.closed = False

    async def stream(self) -> AsyncIterator[Chunk]:
        try:
            for chunk in self._chunks:
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
        finally:
            self.closed = True


async def translated(case: ApiCase, target: Api, chunks: Sequence[Chunk | Exception]) -> list[Chunk]:
    translator = ALL.translator(case.api, frozenset({target}))
    assert translator is not None
    return [chunk async for chunk in ALL.translated(Source(chunks).stream(), translator, request_of(case))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.api)
def test_a_backend_of_the_same_api_needs_no_translation(case: ApiCase) -> None:
    assert ALL.translator(case.api, frozenset({case.api})) is None
    assert ALL.answers(case.api, frozenset({case.api}))


@pytest.mark.parametrize(
    ("source", "spoken", "target"),
    [
        ("chat", {"messages"}, "messages"),
        ("messages", {"chat"}, "chat"),
        ("messages", OPENAI, "chat"),
        ("responses", {"chat"}, "chat"),
        ("responses", {"messages"}, "messages"),
        ("responses", {"messages", "chat"}, "chat"),
        ("completions", {"chat"}, "chat"),
        ("completions", {"messages"}, "messages"),
    ],
)
def test_ways_between_apis(source: Api, spoken: set[Api], target: Api) -> None:
    translator = ALL.translator(source, frozenset(spoken))
    assert translator is not None
    assert (translator.source, translator.target) == (source, target)


@pytest.mark.parametrize(
    ("source", "spoken"),
    [
        ("embeddings", {"chat", "messages"}),
        ("chat", {"embeddings"}),
        ("messages", {"responses"}),
        ("chat", set()),
    ],
)
def test_where_there_is_no_way(source: Api, spoken: set[Api]) -> None:
    assert ALL.translator(source, frozenset(spoken)) is None
    assert not ALL.answers(source, frozenset(spoken))


@pytest.mark.parametrize("case", [RESPONSES, COMPLETIONS], ids=lambda case: case.api)
def test_two_in_a_row_make_one_request(case: ApiCase) -> None:
    translator = ALL.translator(case.api, frozenset({"messages"}))
    assert translator is not None
    body = translator.request({**case.request, "stream": True})
    assert (body["model"], body["stream"]) == ("m", True)
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert body["max_tokens"] > 0


@pytest.mark.parametrize("case", [CHAT, RESPONSES, COMPLETIONS], ids=lambda case: case.api)
async def test_an_answer_of_anthropic_for_each_api_of_openai(case: ApiCase) -> None:
    chunk = Chunk(data=b"", events=[MESSAGES.answer], whole=True)
    (told,) = await translated(case, "messages", [chunk])
    assert told.whole
    assert json.loads(told.data) == told.events[0]
    assert said(case, told.events[0]) == "hello"
    assert ALL.of(case.api).usage(told.events[0]) is not None


@pytest.mark.parametrize("case", [CHAT, RESPONSES, COMPLETIONS], ids=lambda case: case.api)
async def test_a_stream_of_anthropic_for_each_api_of_openai(case: ApiCase) -> None:
    dialect = ALL.of(case.api)
    told = await translated(case, "messages", chunks_of(MESSAGES))
    assembler = dialect.assembler()
    for event in (event for chunk in told for event in chunk.events):
        assembler.add(event)
    assert said(case, assembler.answer()) == "hello"
    usage = dialect.usage(assembler.answer())
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (11, 3)
    assert b"".join(chunk.data for chunk in told) == b"".join(
        dialect.frame(event) for chunk in told for event in chunk.events
    )


@pytest.mark.parametrize("case", [MESSAGES, RESPONSES, COMPLETIONS], ids=lambda case: case.api)
async def test_a_chat_stream_for_each_other_api(case: ApiCase) -> None:
    told = await translated(case, "chat", chunks_of(CHAT))
    assembler = ALL.of(case.api).assembler()
    for event in (event for chunk in told for event in chunk.events):
        assembler.add(event)
    assert said(case, assembler.answer()) == "hello"


@pytest.mark.parametrize(
    ("case", "target"), [(CHAT, "messages"), (COMPLETIONS, "chat"), (COMPLETIONS, "messages")]
)
async def test_usage_comes_in_a_chunk_of_its_own(case: ApiCase, target: Api) -> None:
    """So that it can be left out for a client that did not ask."""
    told = await translated(case, target, chunks_of(CHAT if target == "chat" else MESSAGES))
    with_usage = [chunk for chunk in told if any("usage" in event for event in chunk.events)]
    assert [chunk.tells_usage for chunk in with_usage] == [True] * len(with_usage)
    assert len([chunk for chunk in told if any(event.get("usage") for event in chunk.events)]) == 1


async def test_events_come_as_soon_as_they_can_be_told() -> None:
    translator = ALL.translator("chat", frozenset({"messages"}))
    assert translator is not None
    chunks = chunks_of(MESSAGES)
    answer = ALL.translated(Source(chunks).stream(), translator, request_of(CHAT))
    texts = []
    async for chunk in answer:
        texts += [c["delta"].get("content") for e in chunk.events for c in e["choices"]]
        if "hel" in texts:
            break
    assert "lo" not in texts
    await answer.aclose()


async def test_leaving_a_translated_stream_closes_its_source() -> None:
    translator = ALL.translator("chat", frozenset({"messages"}))
    assert translator is not None
    source = Source(chunks_of(MESSAGES))
    answer = ALL.translated(source.stream(), translator, request_of(CHAT))
    await anext(answer)
    await answer.aclose()
    assert source.closed


async def test_an_error_in_mid_stream_is_passed_on() -> None:
    error = UpstreamCut("broke off")
    with pytest.raises(UpstreamCut) as caught:
        await translated(CHAT, "messages", [*chunks_of(MESSAGES)[:3], error])
    assert caught.value is error


BROKEN: list[Mapping[str, Any]] = [
    {"type": "message", "content": 5},
    {"type": "message", "content": [5]},
    {"type": "message", "content": [{"type": "text", "text": {}}], "usage": "many"},
    {"type": "message", "content": [{"type": "tool_use", "id": 1}]},
]


@pytest.mark.parametrize("answer", BROKEN)
async def test_an_answer_of_another_form_is_the_upstreams_fault(answer: Mapping[str, Any]) -> None:
    for case in (CHAT, RESPONSES, COMPLETIONS):
        try:
            told = await translated(case, "messages", [Chunk(data=b"", events=[answer], whole=True)])
        except UpstreamInvalid:
            continue
        assert isinstance(told[0].events[0], dict)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": "x", "delta": 5},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": 5}},
        {"type": "content_block_start", "content_block": []},
        {"type": "message_delta", "delta": 5, "usage": []},
        {"type": 5},
    ],
)
async def test_an_event_of_another_form_is_the_upstreams_fault_and_frees_it(event: Mapping[str, Any]) -> None:
    translator = ALL.translator("chat", frozenset({"messages"}))
    assert translator is not None
    source = Source([*chunks_of(MESSAGES)[:2], Chunk(data=b"", events=[event]), *chunks_of(MESSAGES)[2:]])
    try:
        async for _ in ALL.translated(source.stream(), translator, request_of(CHAT)):
            pass
    except UpstreamInvalid as error:
        assert "another form than its API says" in str(error)  # noqa: PT017 - some are read over instead
    assert source.closed


def test_what_the_second_cannot_express_is_refused_by_the_two_together() -> None:
    translator = ALL.translator("responses", frozenset({"messages"}))
    assert translator is not None
    with pytest.raises(RequestError):
        translator.request({**RESPONSES.request, "previous_response_id": "resp_0"})
