"""Anthropic's messages over the model that answers by rule.

It refuses what Anthropic refuses: no key or version, no `max_tokens`, unknown fields, roles that do not take
turns, tool results that do not follow their calls. Events:
https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anthropic.types import message_count_tokens_params, message_create_params

from tests.clients.fake_model import (
    CACHED_TOKENS,
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    SIGNATURE,
    Prompt,
    Said,
    cut,
    described_image,
    error_headers,
    failing_status,
    say,
    streamed,
    whole,
)
from tests.upstreams import Received, Reply

FIELDS = {*message_create_params.MessageCreateParamsBase.__annotations__, "stream"}
COUNT_FIELDS = {*message_count_tokens_params.MessageCountTokensParams.__annotations__}
USAGE = {
    "input_tokens": PROMPT_TOKENS - CACHED_TOKENS,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": CACHED_TOKENS,
    "output_tokens": COMPLETION_TOKENS,
    "service_tier": "standard",
}
COUNTED = 1_234
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Refused(Exception):
    """What Anthropic answers with 400."""


def answer(request: Received) -> Reply:
    path = request.path.partition("?")[0].removeprefix("/v1/")
    if "anthropic-version" not in request.headers:
        return error(400, "anthropic-version: header is required")
    if not (request.headers.get("x-api-key") or request.headers.get("authorization")):
        return error(401, "x-api-key header is required")
    if path == "models":
        row = {
            "type": "model",
            "id": "claude",
            "display_name": "Claude",
            "created_at": "2026-01-01T00:00:00Z",
        }
        return whole("", {"data": [row], "has_more": False, "first_id": "claude", "last_id": "claude"})
    body = request.json()
    if (status := failing_status(str(body.get("model")))) is not None:
        return error(status, f"The model says {status}.")
    try:
        if path == "messages/count_tokens":
            check_fields(body, COUNT_FIELDS)
            return whole("", {"input_tokens": COUNTED})
        if path == "messages":
            return respond(body)
    except Refused as refusal:
        return error(400, str(refusal))
    return error(404, "Not Found")


def error(status: int, message: str) -> Reply:
    kind = _TYPES.get(status, "api_error")
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_up"}
    return Reply(status=status, headers=error_headers(status), pieces=[json.dumps(body).encode()])


def check_fields(body: Mapping[str, Any], known: set[str]) -> None:
    for name in body:
        if name not in known:
            raise Refused(f"{name}: Extra inputs are not permitted")


def respond(body: dict[str, Any]) -> Reply:
    check_fields(body, FIELDS)
    if "max_tokens" not in body:
        raise Refused("max_tokens: Field required")
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "enabled" and not 1_024 <= thinking["budget_tokens"] < body["max_tokens"]:
        raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`")
    check_turns(body["messages"])
    said = say(prompt_of(body))
    message = message_of(body["model"], said)
    if not body.get("stream"):
        return whole(body["model"], message)
    return streamed(body["model"], list(map(_frame, events(message))))


def check_turns(messages: Sequence[Mapping[str, Any]]) -> None:
    asked: list[str] = []
    for i, message in enumerate(messages):
        if message["role"] != ("user", "assistant")[i % 2]:
            raise Refused("messages: roles must alternate between user and assistant")
        blocks = message["content"] if isinstance(message["content"], list) else []
        if not message["content"] or any(b["type"] == "text" and not b["text"].strip() for b in blocks):
            raise Refused(f"messages.{i}: text content blocks must contain non-whitespace text")
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(answered) != sorted(asked):
            raise Refused(f"messages.{i}: tool_use ids {asked} were answered by tool_results {answered}")
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    system = body.get("system") or ""
    content = body["messages"][-1]["content"]
    blocks: list[dict[str, Any]] = (
        [{"type": "text", "text": content}] if isinstance(content, str) else content
    )
    given = [inner for block in blocks for inner in [block, *_within(block)]]
    images = [_described(block["source"]) for block in given if block["type"] == "image"]
    return Prompt(
        model=body["model"],
        system=system if isinstance(system, str) else "".join(block["text"] for block in system),
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        images=images,
        tools=[tool["name"] for tool in body.get("tools") or ()],
        results=[
            (block["tool_use_id"], _text(block.get("content") or ""))
            for block in blocks
            if block["type"] == "tool_result"
        ],
        wants_json=bool((body.get("output_config") or {}).get("format")),
        wants_reasoning=(body.get("thinking") or {}).get("type") in ("enabled", "adaptive"),
    )


def _within(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a tool's result."""
    content = block.get("content") if block["type"] == "tool_result" else None
    return content if isinstance(content, list) else []


def _described(source: Mapping[str, Any]) -> str:
    inline = source["type"] == "base64"
    return described_image(source["media_type"], source["data"]) if inline else str(source["url"])


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content if block["type"] == "text")


def message_of(model: str, said: Said) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if said.reasoning:
        content.append({"type": "thinking", "thinking": said.reasoning, "signature": SIGNATURE})
    if said.text:
        content.append({"type": "text", "text": said.text})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
        for call in said.calls
    ]
    return {
        "id": "msg_up",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if said.calls else "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
    }


def events(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**message, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        match block["type"]:
            case "thinking":
                empty = {**block, "thinking": "", "signature": ""}
                pieces = [
                    *({"type": "thinking_delta", "thinking": piece} for piece in cut(block["thinking"])),
                    {"type": "signature_delta", "signature": block["signature"]},
                ]
            case "text":
                empty = {**block, "text": ""}
                pieces = [{"type": "text_delta", "text": piece} for piece in cut(block["text"])]
            case _:
                empty = {**block, "input": {}}
                text = json.dumps(block["input"], ensure_ascii=False)
                pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *cut(text)]]
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in pieces:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": COMPLETION_TOKENS}}
    yield {"type": "message_stop"}


def _frame(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
