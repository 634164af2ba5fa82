"""Upstreams with answers of every kind, each asked for by its name, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

from tests.clients.fake_model import cut
from tests.upstreams import DONE, Received, Reply, stream_reply

TEXT = "Naïve café:\n\n  1. 日本語のテキストには空白がありません\n  2. 한국어 🚀 and so on. " * 4
USAGE = {"prompt_tokens": 9, "completion_tokens": 40, "total_tokens": 49}
ARGUMENTS = json.dumps({"city": "Zürich", "note": 'a "quoted" 날씨', "days": list(range(30))})
CALLS = [
    {"id": f"call_{i}", "type": "function", "function": {"name": f"f{i}", "arguments": ARGUMENTS}}
    for i in range(3)
]
URL = {
    "type": "url_citation",
    "url_citation": {"url": "http://a", "title": "A", "start_index": 0, "end_index": 5},
}
LOGPROBS: dict[str, Any] = {
    "content": [{"token": token, "logprob": -0.5, "bytes": None, "top_logprobs": []} for token in ("a", "b")],
    "refusal": None,
}


def choice(index: int = 0, finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, **message}
    return {"index": index, "message": message, "finish_reason": finish_reason}


CHATS: dict[str, list[dict[str, Any]]] = {
    "plain": [choice(content=TEXT)],
    "reasoning": [choice(content=TEXT, reasoning_content=TEXT)],
    "reasoning, the other name": [choice(content="42", reasoning=TEXT)],
    "a call and no text": [choice(finish_reason="tool_calls", content="", tool_calls=CALLS[:1])],
    "parallel calls": [choice(finish_reason="tool_calls", content=TEXT, tool_calls=CALLS)],
    "the old form of a call": [choice(finish_reason="function_call", function_call=CALLS[0]["function"])],
    "refusal": [choice(refusal=TEXT)],
    "annotations and logprobs": [{**choice(content="ab", annotations=[URL, URL]), "logprobs": LOGPROBS}],
    "three choices": [choice(i, content=TEXT[i:]) for i in range(3)],
    "choices of several kinds": [
        choice(0, content=TEXT),
        choice(1, "tool_calls", tool_calls=CALLS),
        choice(2, refusal=TEXT),
    ],
}


def chat_deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": "" if message["content"] is not None else None}
    for name, value in message.items():
        if name == "tool_calls":
            begun = [
                {"index": i, **call, "function": {**call["function"], "arguments": ""}}
                for i, call in enumerate(value)
            ]
            yield {name: begun}
            for pieces in zip(*(cut(call["function"]["arguments"]) for call in value), strict=True):
                for i, piece in enumerate(pieces):
                    yield {name: [{"index": i, "function": {"arguments": piece}}]}
        elif name == "function_call":
            yield {name: {**value, "arguments": ""}}
            yield from ({name: {"arguments": piece}} for piece in cut(value["arguments"]))
        elif isinstance(value, list):
            yield {name: value}
        elif isinstance(value, str) and name != "role":
            yield from ({name: piece} for piece in cut(value))


def answer_chat(body: Mapping[str, Any]) -> Reply:
    choices = CHATS[body["messages"][-1]["content"]]
    head = {"id": "chatcmpl-up", "created": 1, "model": "gpt", "system_fingerprint": "fp"}
    if not body.get("stream"):
        return whole({**head, "object": "chat.completion", "choices": choices, "usage": USAGE})
    rows = []
    for one in choices:
        at = {"index": one["index"], "finish_reason": None}
        ending = {name: value for name, value in one.items() if name != "message"}
        rows.append(
            [*({**at, "delta": delta} for delta in chat_deltas(one["message"])), {**ending, "delta": {}}]
        )
    turns = [piece for turn in zip_longest(*rows) for piece in turn if piece is not None]
    chunk = {**head, "object": "chat.completion.chunk"}
    sent = [{**chunk, "choices": [piece]} for piece in turns]
    return streamed([*sent, {**chunk, "choices": [], "usage": USAGE}])


COMPLETION: dict[str, Any] = {
    "id": "cmpl-up",
    "object": "text_completion",
    "created": 1,
    "model": "gpt",
    "choices": [{"index": i, "text": TEXT[i:], "logprobs": None, "finish_reason": "stop"} for i in range(2)],
    "usage": USAGE,
}


def answer_completion(body: Mapping[str, Any]) -> Reply:
    if not body.get("stream"):
        return whole(COMPLETION)
    head = {name: value for name, value in COMPLETION.items() if name not in ("choices", "usage")}
    pieces = [
        {**one, "text": piece, "finish_reason": None}
        for one in COMPLETION["choices"]
        for piece in cut(one["text"])
    ]
    ends = [{**one, "text": ""} for one in COMPLETION["choices"]]
    sent = [{**head, "choices": [piece]} for piece in [*pieces, *ends]]
    return streamed([*sent, {**head, "choices": [], "usage": USAGE}])


def output_text(**more: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": TEXT, "annotations": [], "logprobs": [], **more}


def item(kind: str, number: int = 0, **fields: Any) -> dict[str, Any]:
    return {"id": f"{kind}_{number}", "type": kind, "status": "completed", **fields}


CITED = {"type": "url_citation", "url": "http://a", "title": "A", "start_index": 0, "end_index": 5}
FUNCTION_CALLS = [
    item("function_call", i, call_id=f"call_{i}", name=f"f{i}", arguments=ARGUMENTS) for i in range(2)
]
REASONING = item("reasoning", summary=[{"type": "summary_text", "text": TEXT}], encrypted_content="gAAA")
RESPONSES: dict[str, list[dict[str, Any]]] = {
    "plain": [item("message", role="assistant", content=[output_text()])],
    "cited": [
        item(
            "message",
            role="assistant",
            content=[
                output_text(
                    annotations=[CITED],
                    logprobs=[{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}],
                )
            ],
        )
    ],
    "reasoning": [REASONING, item("message", role="assistant", content=[output_text()])],
    "calls": [REASONING, *FUNCTION_CALLS],
    "refusal": [item("message", role="assistant", content=[{"type": "refusal", "refusal": TEXT}])],
}


def answer_response(body: Mapping[str, Any]) -> Reply:
    items = RESPONSES[body["input"]]
    head = {
        "id": "resp_up", "object": "response", "created_at": 1, "model": "gpt", "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True,
        "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "store": False,
    }  # fmt: skip
    usage = {
        "input_tokens": 9, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 40, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 49,
    }  # fmt: skip
    answer = {**head, "status": "completed", "output": items, "usage": usage}
    if not body.get("stream"):
        return whole(answer)
    sent: list[dict[str, Any]] = [
        {
            "type": "response.created",
            "response": {**head, "status": "in_progress", "output": [], "usage": None},
        }
    ]
    for index, one in enumerate(items):
        sent.append({"type": "response.output_item.added", "output_index": index, "item": one})
        sent.append({"type": "response.output_item.done", "output_index": index, "item": one})
    sent.append({"type": "response.completed", "response": answer})
    return streamed([{**event, "sequence_number": number} for number, event in enumerate(sent)])


SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "날씨 " * 20}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "http://a",
            "title": "A",
            "encrypted_content": "x",
            "page_age": None,
        }
    ],
}
CITATION = {
    "type": "char_location", "cited_text": "x", "document_index": 0, "document_title": None, "file_id": None,
    "start_char_index": 0, "end_char_index": 1,
}  # fmt: skip
SAID = {"type": "text", "text": TEXT}
THOUGHT = {"type": "thinking", "thinking": TEXT, "signature": "c2lnbmVk/+=="}
TOOL_USES = [
    {"type": "tool_use", "id": f"toolu_{i}", "name": f"f{i}", "input": given}
    for i, given in enumerate([json.loads(ARGUMENTS), {}])
]
MESSAGES: dict[str, dict[str, Any]] = {
    "plain": {"content": [SAID]},
    "cited": {"content": [SAID, {**SAID, "citations": [CITATION, CITATION]}]},
    "thinking and calls": {"content": [THOUGHT, SAID, *TOOL_USES], "stop_reason": "tool_use"},
    "redacted": {"content": [{"type": "redacted_thinking", "data": "x" * 400}, SAID]},
    "searched": {"content": [SEARCH, FOUND, SAID]},
    "stopped": {"content": [SAID], "stop_reason": "stop_sequence", "stop_sequence": "END"},
}


def answer_message(body: Mapping[str, Any]) -> Reply:
    head = {"id": "msg_up", "type": "message", "role": "assistant", "model": "claude"}
    counts = {"input_tokens": 3, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 2}
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    answer = {
        **head,
        **ending,
        **MESSAGES[body["messages"][-1]["content"]],
        "usage": {**counts, "output_tokens": 40},
    }
    if not body.get("stream"):
        return whole(answer)
    opening: dict[str, Any] = {
        **head,
        "content": [],
        **dict.fromkeys(ending),
        "usage": {**counts, "output_tokens": 1},
    }
    sent: list[dict[str, Any]] = [{"type": "message_start", "message": opening}, {"type": "ping"}]
    for index, block in enumerate(answer["content"]):
        begun, deltas = block_deltas(block)
        sent.append({"type": "content_block_start", "index": index, "content_block": begun})
        sent += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        sent.append({"type": "content_block_stop", "index": index})
    delta = {name: answer[name] for name in ending}
    sent += [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 40}},
        {"type": "message_stop"},
    ]
    return streamed(sent)


def block_deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(what the block begins with, its deltas)"""
    match block["type"]:
        case "text":
            cited = block.get("citations", [])
            begun = {**block, "text": "", "citations": []} if cited else {**block, "text": ""}
            citations = [{"type": "citations_delta", "citation": one} for one in cited]
            return begun, [
                *citations,
                *({"type": "text_delta", "text": piece} for piece in cut(block["text"])),
            ]
        case "thinking":
            thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in cut(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*thoughts, signed]
        case "tool_use" | "server_tool_use":
            text = json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
            pieces = ["", *cut(text)]
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": one} for one in pieces
            ]
    return block, []


def whole(answer: Mapping[str, Any]) -> Reply:
    return Reply(pieces=[json.dumps(answer, ensure_ascii=False).encode()])


def streamed(events: Iterable[Mapping[str, Any]]) -> Reply:
    """With their names, where they have types, and without [DONE]."""
    sent = []
    named = False
    for event in events:
        data = json.dumps(event, ensure_ascii=False)
        named = "type" in event
        sent.append((f"event: {event['type']}\n" if named else "").encode() + f"data: {data}\n\n".encode())
    return stream_reply(sent if named else [*sent, DONE])


def answer(request: Received) -> Reply:
    body = request.json()
    match request.path:
        case "/v1/chat/completions":
            return answer_chat(body)
        case "/v1/completions":
            return answer_completion(body)
        case "/v1/responses":
            return answer_response(body)
        case "/v1/messages":
            return answer_message(body)
    return Reply(status=404, pieces=[b"{}"])
