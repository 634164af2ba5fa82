"""Answers, and streams they could have come in, as hypothesis makes them: cut and mixed as servers do, and
by no code of the gateway's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 4,
    "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
CHAT_HEAD = {"id": "chatcmpl-1", "created": 7, "model": "up", "system_fingerprint": "fp", "vendor": {"a": 1}}
COMPLETION_HEAD = {"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "up"}
CITATION = {"type": "url_citation", "url_citation": {"url": "http://a", "start_index": 0, "end_index": 1}}

said = st.text(min_size=1, max_size=60)


def cut(draw: st.DrawFn, text: str) -> list[str]:
    """In pieces, empty ones among them."""
    at = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[begin:end] for begin, end in zip([0, *at], [*at, len(text)], strict=True)]


def mixed(draw: st.DrawFn, rows: Sequence[Sequence[Any]]) -> list[Any]:
    """All that is in the rows, each row in its order."""
    left = [list(row) for row in rows]
    taken: list[Any] = []
    while any(left):
        taken.append(draw(st.sampled_from([row for row in left if row])).pop(0))
    return taken


def call(number: int, arguments: str) -> dict[str, Any]:
    return {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": f"f{number}", "arguments": arguments},
    }


@st.composite
def chat_messages(draw: st.DrawFn) -> dict[str, Any]:
    """Every part of an answer, together with any other."""
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": draw(said)}]},
        {"type": "text", "text": draw(said)},
    ]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": draw(st.sampled_from([None, "", parts]) | st.text(max_size=120)),
    }
    further = {
        "reasoning_content": said,
        "reasoning": said,
        "refusal": st.none() | said,
        "annotations": st.just([]) | st.just([CITATION, CITATION]),
        "function_call": st.builds(lambda text: {"name": "old", "arguments": text}, st.text(max_size=40)),
        "tool_calls": st.lists(st.text(max_size=60), min_size=1, max_size=3).map(
            lambda texts: [call(number, text) for number, text in enumerate(texts)]
        ),
        "audio": st.builds(lambda text: {"id": "audio_1", "data": "UklGRg", "transcript": text}, said),
        "later": st.sampled_from([None, 7, "new words", {"a": [1]}, ["a"]]),
    }
    return message | {name: draw(made) for name, made in further.items() if draw(st.booleans())}


def _deltas(draw: st.DrawFn, message: Mapping[str, Any]) -> list[dict[str, Any]]:
    begun: dict[str, Any] = {"role": "assistant", "content": "" if message["content"] == "" else None}
    deltas: list[dict[str, Any]] = []
    for name, value in message.items():
        if name == "content" and isinstance(value, list):
            thought, text = value
            deltas += [
                {"content": [{**thought, "thinking": [{"type": "text", "text": piece}]}]}
                for piece in cut(draw, thought["thinking"][0]["text"])
            ]
            as_list = draw(st.booleans())
            deltas += [
                {"content": [{"type": "text", "text": piece}] if as_list else piece}
                for piece in cut(draw, text["text"])
            ]
        elif name == "tool_calls":
            deltas += _call_deltas(draw, value)
        elif name == "function_call":
            deltas.append({name: {**value, "arguments": ""}})
            deltas += [{name: {"arguments": piece}} for piece in cut(draw, value["arguments"])]
        elif name == "audio":
            deltas.append({name: {"id": value["id"]}})
            deltas += [{name: {"transcript": piece}} for piece in cut(draw, value["transcript"])]
            deltas.append({name: {"data": value["data"]}})
        elif name == "annotations" and value:
            deltas += [{name: [one]} for one in value]
        elif isinstance(value, str) and name != "role":
            deltas += [{name: piece} for piece in cut(draw, value) if piece]
        elif name not in ("role", "content"):
            begun[name] = value
    return [begun, *deltas, {}]


def _call_deltas(draw: st.DrawFn, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Numbered and mixed; told apart by their ids alone; or all with the same number."""
    style = draw(st.sampled_from(["numbered", "unnumbered", "all 0"]))
    blank: dict[str, Any] = draw(st.sampled_from([{}, {"id": ""}, {"id": None, "type": "function"}]))
    rows = []
    for number, one in enumerate(calls):
        at: dict[str, Any] = {"numbered": {"index": number}, "unnumbered": {}, "all 0": {"index": 0}}[style]
        opened = {**at, **one, "function": {**one["function"], "arguments": ""}}
        grown = [
            {**at, **blank, "function": {"arguments": piece}}
            for piece in cut(draw, one["function"]["arguments"])
        ]
        rows.append([{"tool_calls": [piece]} for piece in [opened, *grown]])
    return mixed(draw, rows) if style == "numbered" else [piece for row in rows for piece in row]


@st.composite
def chat_cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A completion of one to three choices, and its stream, the choices' chunks mixed."""
    choices, rows = [], []
    for index, message in enumerate(draw(st.lists(chat_messages(), min_size=1, max_size=3))):
        reason = draw(st.sampled_from(["stop", "tool_calls", "length"]))
        choice = {"index": index, "message": message, "finish_reason": reason}
        with_logprobs = draw(st.booleans())
        tokens = []
        row = []
        for delta in _deltas(draw, message):
            more: dict[str, Any] = {}
            if with_logprobs and isinstance(delta.get("content"), str) and delta["content"]:
                tokens.append({"token": delta["content"], "logprob": -0.5, "bytes": None, "top_logprobs": []})
                more = {"logprobs": {"content": tokens[-1:], "refusal": None}}
            row.append({"index": index, "delta": delta, "finish_reason": None, **more})
        row[-1] |= {"finish_reason": reason}
        if tokens:
            choice["logprobs"] = {"content": tokens, "refusal": None}
        choices.append(choice)
        rows.append(row)
    head = {**CHAT_HEAD, "object": "chat.completion.chunk"}
    stream: list[dict[str, Any]] = [
        {**head, "obfuscation": "x4", "choices": [piece]} for piece in mixed(draw, rows)
    ]
    whole = {**CHAT_HEAD, "object": "chat.completion", "choices": choices}
    return _with_usage(draw, whole, stream, head)


@st.composite
def completion_cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    choices, rows = [], []
    for index, text in enumerate(draw(st.lists(st.text(max_size=80), min_size=1, max_size=3))):
        texts = cut(draw, text)
        whole_logprobs = None
        row: list[dict[str, Any]] = [
            {"index": index, "text": piece, "logprobs": None, "finish_reason": None} for piece in texts
        ]
        if draw(st.booleans()):
            for piece in row:
                piece["logprobs"] = {"tokens": [piece["text"]], "token_logprobs": [-1.0], "text_offset": [0]}
            count = len(texts)
            whole_logprobs = {
                "tokens": texts,
                "token_logprobs": [-1.0] * count,
                "text_offset": [0] * count,
            }
        ending: dict[str, Any] = {"finish_reason": "stop", "stop_reason": 7}
        row.append({"index": index, "text": "", "logprobs": None, **ending})
        rows.append(row)
        choices.append({"index": index, "text": text, "logprobs": whole_logprobs, **ending})
    stream: list[dict[str, Any]] = [{**COMPLETION_HEAD, "choices": [piece]} for piece in mixed(draw, rows)]
    return _with_usage(draw, {**COMPLETION_HEAD, "choices": choices}, stream, COMPLETION_HEAD)


def _with_usage(
    draw: st.DrawFn, whole: dict[str, Any], stream: list[dict[str, Any]], head: Mapping[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Told in the last chunk, after it, or not at all."""
    match draw(st.sampled_from(["not", "with", "after"])):
        case "not":
            return whole, stream
        case "with":
            stream[-1] = {**stream[-1], "usage": USAGE}
        case _:
            stream = [
                *({**chunk, "usage": None} for chunk in stream),
                {**head, "choices": [], "usage": USAGE},
            ]
    return {**whole, "usage": USAGE}, stream


@st.composite
def message_cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """An Anthropic message with blocks of every kind, and its stream."""
    content: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    kinds = ["text", "cited", "thinking", "redacted", "tool_use", "server_tool_use", "result"]
    for index, kind in enumerate(draw(st.lists(st.sampled_from(kinds), max_size=5))):
        block, begun, deltas = _block(draw, index, kind)
        content.append(block)
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x"}
    counts = {"input_tokens": 3, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 2}
    ends: list[dict[str, Any]] = [
        {"stop_reason": "end_turn", "stop_sequence": None},
        {"stop_reason": "stop_sequence", "stop_sequence": "END"},
        {"stop_reason": "refusal", "stop_sequence": None, "stop_details": {"type": "refusal"}},
        {"stop_reason": "end_turn", "stop_sequence": None, "container": {"id": "c"}},
    ]
    ending: dict[str, Any] = draw(st.sampled_from(ends))
    beside = draw(st.sampled_from([{}, {"context_management": {"applied_edits": [{"type": "clear"}]}}]))
    output = {"output_tokens": 40, "server_tool_use": {"web_search_requests": 1}}
    opening: dict[str, Any] = {**head, "content": [], "stop_reason": None, "stop_sequence": None}
    usage = {**counts, "service_tier": "standard", "output_tokens": 1}
    stream: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**opening, "usage": usage}},
        {"type": "ping"},
        *events,
        {"type": "message_delta", "delta": ending, "usage": output, **beside},
        {"type": "message_stop"},
    ]
    return {**head, "content": content, **ending, **beside, "usage": {**usage, **output}}, stream


def _block(
    draw: st.DrawFn, index: int, kind: str
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """(block, what it begins with, deltas)"""
    text = draw(st.text(max_size=80))
    block: dict[str, Any]
    deltas: list[dict[str, Any]]
    match kind:
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in cut(draw, text)]
            return {"type": "text", "text": text}, {"type": "text", "text": ""}, deltas
        case "cited":
            cited = {"type": "char_location", "cited_text": "x", "document_index": 0}
            deltas = [{"type": "text_delta", "text": piece} for piece in cut(draw, text)]
            deltas[:0] = [{"type": "citations_delta", "citation": cited}] * 2
            block = {"type": "text", "text": text, "citations": [cited] * 2}
            return block, {**block, "text": "", "citations": []}, deltas
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in cut(draw, text)]
            deltas.append({"type": "signature_delta", "signature": "c2ln"})
            block = {"type": "thinking", "thinking": text, "signature": "c2ln"}
            return block, {**block, "thinking": "", "signature": ""}, deltas
        case "redacted":
            block = {"type": "redacted_thinking", "data": text}
        case "result":
            block = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"title": text}]}
        case _:
            given = draw(st.sampled_from([{}, {"query": text}, {"a": [1, 2.5, None], "città": {"b": text}}]))
            written = json.dumps(given, ensure_ascii=False) if given else ""
            block = {"type": kind, "id": f"toolu_{index}", "name": "search", "input": given}
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in ["", *cut(draw, written)]
            ]
            return block, {**block, "input": {}}, deltas
    return block, block, []
