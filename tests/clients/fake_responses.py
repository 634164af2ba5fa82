"""OpenAI's responses over the model that answers by rule.

Events: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from openai.types.responses import response_create_params

from tests.clients.fake_model import (
    CACHED_TOKENS,
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    REASONING_TOKENS,
    Prompt,
    Said,
    cut,
    described_image,
    say,
    streamed,
    whole,
)
from tests.upstreams import Reply

USAGE = {
    "input_tokens": PROMPT_TOKENS,
    "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
    "output_tokens": COMPLETION_TOKENS,
    "output_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
    "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
}
FIELDS = {*response_create_params.ResponseCreateParamsBase.__annotations__, "stream"}


class Refused(Exception):
    """What OpenAI answers with 400."""


def respond(body: dict[str, Any]) -> Reply:
    for name in body:
        if name not in FIELDS:
            raise Refused(f"Unknown parameter: '{name}'.")
    items = output_of(say(prompt_of(body)))
    answer = response_of(body, "completed", items)
    if not body.get("stream"):
        return whole(body["model"], answer)
    return streamed(body["model"], list(map(_frame, numbered(body, items))))


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    last_user = max(i for i, item in enumerate(items) if item.get("role") == "user")
    texts, images = _parts(items[last_user]["content"])
    return Prompt(
        model=body["model"],
        system=body.get("instructions") or "",
        text="".join(texts),
        images=images,
        tools=[tool["name"] for tool in body.get("tools") or ()],
        results=[
            (item["call_id"], item["output"])
            for item in items[last_user + 1 :]
            if item.get("type") == "function_call_output"
        ],
        wants_json=((body.get("text") or {}).get("format") or {}).get("type")
        in ("json_object", "json_schema"),
        wants_reasoning=(body.get("reasoning") or {}).get("effort") not in (None, "none"),
    )


def _parts(content: Any) -> tuple[list[str], list[str]]:
    """(texts, images)"""
    if isinstance(content, str):
        return [content], []
    texts, images = [], []
    for part in content:
        match part["type"]:
            case "input_text":
                texts.append(part["text"])
            case "input_image":
                media, _, data = part["image_url"].removeprefix("data:").partition(";base64,")
                images.append(described_image(media, data))
            case kind:
                raise Refused(f"Invalid value: '{kind}'.")
    return texts, images


def output_of(said: Said) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if said.reasoning:
        summary = [{"type": "summary_text", "text": said.reasoning}]
        items.append({"id": "rs_up", "type": "reasoning", "summary": summary})
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
        message = {"id": "msg_up", "type": "message", "role": "assistant", "status": "completed"}
        items.append({**message, "content": [part]})
    items += [
        {
            "id": f"fc_{call.id}",
            "type": "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.text(),
        }
        for call in said.calls
    ]
    return items


def response_of(body: Mapping[str, Any], status: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "resp_up",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "model": body["model"],
        "output": items,
        "parallel_tool_calls": True,
        "store": body.get("store", True),
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "usage": USAGE if status == "completed" else None,
    }


def numbered(body: Mapping[str, Any], items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    begun = response_of(body, "in_progress", [])
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(items):
        events += _item_events(index, item)
    events.append({"type": "response.completed", "response": response_of(body, "completed", items)})
    for number, event in enumerate(events):
        yield {**event, "sequence_number": number}


def _item_events(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    at = {"output_index": index, "item_id": item["id"]}
    match item["type"]:
        case "reasoning":
            opened: dict[str, Any] = {"summary": []}
            text = item["summary"][0]["text"]
            part = {**at, "summary_index": 0}
            within = [
                {
                    "type": "response.reasoning_summary_part.added",
                    **part,
                    "part": {"type": "summary_text", "text": ""},
                },
                *(
                    {"type": "response.reasoning_summary_text.delta", **part, "delta": piece}
                    for piece in cut(text)
                ),
                {"type": "response.reasoning_summary_text.done", **part, "text": text},
                {"type": "response.reasoning_summary_part.done", **part, "part": item["summary"][0]},
            ]
        case "message":
            opened = {"content": [], "status": "in_progress"}
            text = item["content"][0]["text"]
            part = {**at, "content_index": 0}
            empty = {**item["content"][0], "text": ""}
            within = [
                {"type": "response.content_part.added", **part, "part": empty},
                *(
                    {"type": "response.output_text.delta", **part, "delta": piece, "logprobs": []}
                    for piece in cut(text)
                ),
                {"type": "response.output_text.done", **part, "text": text, "logprobs": []},
                {"type": "response.content_part.done", **part, "part": item["content"][0]},
            ]
        case _:
            opened = {"arguments": "", "status": "in_progress"}
            text = item["arguments"]
            name = "response.function_call_arguments"
            within = [
                *({"type": f"{name}.delta", **at, "delta": piece} for piece in cut(text)),
                {"type": f"{name}.done", **at, "name": item["name"], "arguments": text},
            ]
    yield {"type": "response.output_item.added", "output_index": index, "item": {**item, **opened}}
    yield from within
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _frame(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
