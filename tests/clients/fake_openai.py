"""OpenAI's chat completions, completions, embeddings and models over the model that answers by rule.

It refuses what OpenAI refuses: no key, unknown fields, tool results without their call.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params

from tests.clients import fake_responses
from tests.clients.fake_model import (
    CACHED_TOKENS,
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    REASONING_TOKENS,
    Prompt,
    Said,
    ToolCall,
    cut,
    described_image,
    error_headers,
    failing_status,
    say,
    streamed,
    whole,
)
from tests.upstreams import DONE, Received, Reply, frame

DIMENSION = 8
USAGE = {
    "prompt_tokens": PROMPT_TOKENS,
    "completion_tokens": COMPLETION_TOKENS,
    "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
    "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": REASONING_TOKENS, "audio_tokens": 0},
}
CHAT_FIELDS = {*chat_create_params.CompletionCreateParamsBase.__annotations__, "stream"}
COMPLETION_FIELDS = {*completion_create_params.CompletionCreateParamsBase.__annotations__, "stream"}
EMBEDDING_FIELDS = {*embedding_create_params.EmbeddingCreateParams.__annotations__}
ALL_APIS = ("chat/completions", "completions", "responses", "embeddings")


class Refused(Exception):
    """What OpenAI answers with 400."""


class FakeOpenAI:
    """The answers of a server that has `apis`, by their paths below /v1."""

    def __init__(self, apis: Collection[str] = ALL_APIS) -> None:
        self._apis = apis

    def __call__(self, request: Received) -> Reply:
        path = request.path.partition("?")[0].removeprefix("/v1/")
        if path == "models":
            rows = [{"id": "upstream-model", "object": "model", "created": 1_700_000_000, "owned_by": "fake"}]
            return whole("", {"object": "list", "data": rows})
        if path not in self._apis:
            return error(404, f"Invalid URL (POST {request.path})")
        if not request.headers.get("authorization", "").startswith("Bearer "):
            return error(401, "You didn't provide an API key.", code="invalid_api_key")
        body = request.json()
        if (status := failing_status(str(body.get("model")))) is not None:
            return error(status, f"The model says {status}.", code=f"says_{status}")
        try:
            match path:
                case "chat/completions":
                    return chat(body)
                case "completions":
                    return complete(body)
                case "responses":
                    return fake_responses.respond(body)
                case _:
                    return embed(body)
        except (Refused, fake_responses.Refused) as refusal:
            return error(400, str(refusal))


def error(status: int, message: str, code: str | None = None) -> Reply:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return Reply(status=status, headers=error_headers(status), pieces=[json.dumps(body).encode()])


def check_fields(body: Mapping[str, Any], known: Collection[str]) -> None:
    for name in body:
        if name not in known:
            raise Refused(f"Unrecognized request argument supplied: {name}")


def chat(body: dict[str, Any]) -> Reply:
    check_fields(body, CHAT_FIELDS)
    check_calls(body["messages"])
    said = say(prompt_of(body))
    model, head = body["model"], {"id": "chatcmpl-up", "created": 1_700_000_000, "model": body["model"]}
    count = body.get("n") or 1
    if not body.get("stream"):
        choices = [
            {"index": i, "message": message_of(said), "logprobs": None, "finish_reason": finish_of(said)}
            for i in range(count)
        ]
        return whole(model, {**head, "object": "chat.completion", "choices": choices, "usage": USAGE})
    asked_usage = (body.get("stream_options") or {}).get("include_usage")
    more = {"usage": None} if asked_usage else {}
    sent = [
        frame(
            {
                **head,
                "object": "chat.completion.chunk",
                "choices": [{"index": i, "delta": delta, "logprobs": None, "finish_reason": finish}],
                **more,
            }
        )
        for i in range(count)
        for delta, finish in deltas(said)
    ]
    if asked_usage:
        sent.append(frame({**head, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}))
    return streamed(model, [*sent, DONE])


def check_calls(messages: Sequence[Mapping[str, Any]]) -> None:
    """Each call has its result right after it, and each result its call."""
    open_ids: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_ids:
                raise Refused("messages with role 'tool' must be a response to a preceding message")
            open_ids.remove(message["tool_call_id"])
            continue
        if open_ids:
            raise Refused(f"tool_call_ids did not have response messages: {open_ids}")
        open_ids = [call["id"] for call in message.get("tool_calls") or ()]
        for call in message.get("tool_calls") or ():
            json.loads(call["function"]["arguments"])


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    messages = body["messages"]
    last_user = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=-1)
    texts, images = _parts(messages[last_user]["content"]) if last_user >= 0 else ([], [])
    return Prompt(
        model=body["model"],
        system="".join(_text(m["content"]) for m in messages if m["role"] in ("system", "developer")),
        text="".join(texts),
        images=images,
        tools=[tool[tool["type"]]["name"] for tool in body.get("tools") or ()],
        results=[
            (message["tool_call_id"], _text(message["content"]))
            for message in messages[last_user + 1 :]
            if message["role"] == "tool"
        ],
        wants_json=(body.get("response_format") or {}).get("type") in ("json_object", "json_schema"),
        wants_reasoning=body.get("reasoning_effort") not in (None, "none"),
    )


def _text(content: Any) -> str:
    return "".join(_parts(content)[0])


def _parts(content: Any) -> tuple[list[str], list[str]]:
    """(texts, images)"""
    if isinstance(content, str):
        return [content], []
    texts, images = [], []
    for part in content:
        match part["type"]:
            case "text":
                texts.append(part["text"])
            case "image_url":
                url = part["image_url"]["url"]
                media, _, data = url.removeprefix("data:").partition(";base64,")
                images.append(described_image(media, data) if data else url)
            case kind:
                raise Refused(f"Invalid value: '{kind}'. Supported values are: 'text', 'image_url'.")
    return texts, images


def finish_of(said: Said) -> str:
    return "tool_calls" if said.calls else "stop"


def message_of(said: Said) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None, "refusal": None}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["tool_calls"] = [_call(call) for call in said.calls]
    return message


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text()}}


def deltas(said: Said) -> list[tuple[dict[str, Any], str | None]]:
    """(delta, finish reason) of a stream, tool calls one after the other, as OpenAI sends them."""
    found: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    found += [({"reasoning_content": piece}, None) for piece in cut(said.reasoning)]
    found += [({"content": piece}, None) for piece in cut(said.text)]
    for index, call in enumerate(said.calls):
        start = _call(call)
        start["function"]["arguments"] = ""
        found.append(({"tool_calls": [{"index": index, **start}]}, None))
        found += [
            ({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, None)
            for piece in cut(call.text())
        ]
    return [*found, ({}, finish_of(said))]


def complete(body: dict[str, Any]) -> Reply:
    check_fields(body, COMPLETION_FIELDS)
    prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
    texts = [say(Prompt(model=body["model"], text=prompt)).text for prompt in prompts]
    model = body["model"]
    head = {"id": "cmpl-up", "object": "text_completion", "created": 1_700_000_000, "model": model}
    if not body.get("stream"):
        choices = [
            {"index": i, "text": text, "logprobs": None, "finish_reason": "stop"}
            for i, text in enumerate(texts)
        ]
        return whole(model, {**head, "choices": choices, "usage": USAGE})
    sent = [
        frame({**head, "choices": [{"index": i, "text": piece, "logprobs": None, "finish_reason": finish}]})
        for i, text in enumerate(texts)
        for piece, finish in [*((piece, None) for piece in cut(text)), ("", "stop")]
    ]
    if (body.get("stream_options") or {}).get("include_usage"):
        sent.append(frame({**head, "choices": [], "usage": USAGE}))
    return streamed(model, [*sent, DONE])


def vector_of(text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(len(text)).standard_normal(DIMENSION).astype(np.float32)


def embed(body: dict[str, Any]) -> Reply:
    check_fields(body, EMBEDDING_FIELDS)
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    rows = []
    for i, text in enumerate(texts):
        vector = vector_of(text)
        in_base64 = body.get("encoding_format") == "base64"
        value = base64.b64encode(vector.tobytes()).decode() if in_base64 else vector.tolist()
        rows.append({"object": "embedding", "index": i, "embedding": value})
    usage = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS}
    return whole(body["model"], {"object": "list", "data": rows, "model": body["model"], "usage": usage})
