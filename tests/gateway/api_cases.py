"""Each API at work: a request, and what an upstream that speaks it answers, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from backends.sse import SseReader
from policies.types import Api
from tests.gateways import Running, running
from tests.upstreams import DONE, FakeUpstream, Received, Reply, stream_reply

HELLO = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCase:
    """`events` are those of a clean stream, each as bytes; what marks its end is the last."""

    api: Api
    path: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any]
    events: Sequence[bytes]

    @property
    def whole(self) -> Reply:
        return Reply(pieces=[json.dumps(self.answer).encode()])

    @property
    def streamed(self) -> Reply:
        return stream_reply(self.events)

    @property
    def broken(self) -> Reply:
        """Breaks off in the middle of the stream."""
        return stream_reply(self.events[:2], end="reset")


def _named(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _plain(event: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


def _chat() -> ApiCase:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "up-m"}
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _plain({**head, "choices": [choice], "usage": None})

    message = {"role": "assistant", "content": "hello"}
    return ApiCase(
        api="chat",
        path="/v1/chat/completions",
        request={"model": "m", "messages": HELLO},
        answer={
            **head,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage,
        },
        events=[
            chunk({"role": "assistant", "content": ""}),
            chunk({"content": "hel"}),
            chunk({"content": "lo"}),
            chunk({}, "stop"),
            _plain({**head, "choices": [], "usage": usage}),
            DONE,
        ],
    )


def _completions() -> ApiCase:
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "up-m"}
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}

    def chunk(text: str, finish: str | None = None) -> bytes:
        return _plain({**head, "choices": [{"index": 0, "text": text, "finish_reason": finish}]})

    return ApiCase(
        api="completions",
        path="/v1/completions",
        request={"model": "m", "prompt": "hi"},
        answer={**head, "choices": [{"index": 0, "text": "hello", "finish_reason": "stop"}], "usage": usage},
        events=[
            chunk("hel"),
            chunk("lo"),
            chunk("", "stop"),
            _plain({**head, "choices": [], "usage": usage}),
            DONE,
        ],
    )


def _responses() -> ApiCase:
    part = {"type": "output_text", "text": "hello", "annotations": []}
    item = {
        "id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part],
    }  # fmt: skip
    answer = {
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "up-m",
        "error": None, "incomplete_details": None, "output": [item],
        "usage": {"input_tokens": 11, "output_tokens": 3, "total_tokens": 14},
    }  # fmt: skip
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    blank = {**answer, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": blank},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **at, "delta": "hello"},
        {"type": "response.output_text.done", **at, "text": "hello"},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": answer},
    ]
    return ApiCase(
        api="responses",
        path="/v1/responses",
        request={"model": "m", "input": "hi"},
        answer=answer,
        events=[_named({"sequence_number": n, **event}) for n, event in enumerate(events)],
    )


def _messages() -> ApiCase:
    answer = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "up-m",
        "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 3},
    }  # fmt: skip
    started = {
        **answer,
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 11, "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": started},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 3},
        },
        {"type": "message_stop"},
    ]
    return ApiCase(
        api="messages",
        path="/v1/messages",
        request={"model": "claude", "max_tokens": 64, "messages": HELLO},
        answer=answer,
        events=[_named(event) for event in events],
    )


CHAT, COMPLETIONS, RESPONSES, MESSAGES = _chat(), _completions(), _responses(), _messages()
CASES = [CHAT, COMPLETIONS, RESPONSES, MESSAGES]


def said(case: ApiCase, answer: Mapping[str, Any]) -> str:
    """The text of a whole answer."""
    match case.api:
        case "chat":
            text: str = answer["choices"][0]["message"]["content"]
        case "completions":
            text = answer["choices"][0]["text"]
        case "responses":
            text = answer["output"][0]["content"][0]["text"]
        case _:
            text = answer["content"][0]["text"]
    return text


def answering(request: Received) -> Reply:
    """An upstream that speaks every API."""
    for case in CASES:
        if request.path == case.path:
            return case.streamed if request.json().get("stream") else case.whole
    return Reply(status=404, pieces=[b'{"error": {"message": "no such path"}}'])


def beside(answers: Callable[[Received], Reply | None]) -> Callable[[Received], Reply]:
    """`answering`, but where `answers` gives a reply."""
    return lambda request: answers(request) or answering(request)


@asynccontextmanager
async def behind(
    upstream: FakeUpstream, *, resilience: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Running]:
    """A gateway whose model `m` is at an OpenAI server and `claude` at an Anthropic one, both `upstream`;
    the cache is off. `resilience` are further keys of both backends."""
    keys = {"retries": 0, **(resilience or {})}
    own: dict[str, Any] = {
        "cache": {"enabled": False},
        "backends": {
            "fake": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"},
            "up": {"kind": "openai", "base_url": upstream.base_url, "api_key": "sk-own-secret", **keys},
            "ant": {"kind": "anthropic", "base_url": upstream.base_url, "api_key": "sk-ant-secret", **keys},
        },
        "models": {
            "m": {"backend": "up", "name": "up-m", "input_usd_per_mtok": 1.0, "output_usd_per_mtok": 2.0},
            "claude": {"backend": "ant", "name": "claude-m", "input_usd_per_mtok": 3.0},
        },
        "routes": {},
    }
    async with running(**{**own, **settings}) as test:
        yield test


EACH_API = pytest.mark.parametrize("case", CASES, ids=lambda case: case.api)
OF_OPENAI = pytest.mark.parametrize("case", [CHAT, COMPLETIONS, RESPONSES], ids=lambda case: case.api)


async def ask(
    test: Running, case: ApiCase, headers: Mapping[str, str] | None = None, **fields: Any
) -> httpx.Response:
    return await test.http.post(
        case.path, json={**case.request, **fields}, headers={"authorization": "Bearer k", **(headers or {})}
    )


def error_of(case: ApiCase, response: httpx.Response) -> dict[str, Any]:
    """The error in the shape of the API that was called."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    error: dict[str, Any] = body["error"]
    if case.api == "messages":
        assert body["type"] == "error"
        assert set(error) >= {"type", "message"}
    else:
        assert "type" not in body
        assert set(error) >= {"message", "type", "param", "code"}
    return error


def events_of(response: httpx.Response) -> list[tuple[str, Any]]:
    """(name, JSON) of each event."""
    return [
        (event.name, json.loads(event.data) if event.data != b"[DONE]" else "[DONE]")
        for event in SseReader().feed(response.content)
        if event.data is not None
    ]


def said_in(test: Running, case: ApiCase, response: httpx.Response) -> str:
    assembler = test.gateway.pipeline.generation.dialects.of(case.api).assembler()
    for _, event in events_of(response):
        if event != "[DONE]":
            assembler.add(event)
    return said(case, assembler.answer())
