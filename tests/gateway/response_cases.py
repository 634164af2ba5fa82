"""Responses, and streams they could have come in, as hypothesis makes them: by no code of the gateway's."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.gateway.stream_cases import cut

HEAD: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "error": None,
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "vendor": {"a": 1},
}
USAGE = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 3,
}
CITATION = {"type": "url_citation", "start_index": 0, "end_index": 1, "url": "http://a", "title": "A"}
LOGPROB = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}

Events = list[dict[str, Any]]


@st.composite
def response_cases(draw: st.DrawFn) -> tuple[dict[str, Any], Events]:
    """A response, complete or not, and its stream."""
    kinds = ["message", "reasoning", "function_call", "custom_tool_call"]
    output: list[dict[str, Any]] = []
    inside: Events = []
    for index, kind in enumerate(draw(st.lists(st.sampled_from(kinds), max_size=4))):
        item, events = _item(draw, kind, index)
        output.append(item)
        inside += events
    complete = draw(st.booleans())
    ending = {
        "status": "completed" if complete else "incomplete",
        "incomplete_details": None if complete else {"reason": "max_output_tokens"},
    }
    answer = {**HEAD, **ending, "output": output, "usage": USAGE}
    blank = {**HEAD, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    # Some servers send the items once, and leave them out of the response that ends the stream.
    last = draw(st.sampled_from([answer, {**answer, "output": []}]))
    stream = [
        {"type": "response.created", "response": blank},
        {"type": "response.in_progress", "response": blank},
        *inside,
        {"type": f"response.{answer['status']}", "response": last},
    ]
    return answer, [{**event, "sequence_number": number} for number, event in enumerate(stream)]


def _item(draw: st.DrawFn, kind: str, index: int) -> tuple[dict[str, Any], Events]:
    item_id = f"item_{index}"
    at = {"item_id": item_id, "output_index": index}
    text = draw(st.text(max_size=60))
    match kind:
        case "message":
            parts = draw(st.lists(st.sampled_from(["text", "cited", "refusal"]), min_size=1, max_size=2))
            made = [_part(draw, part, {**at, "content_index": i}) for i, part in enumerate(parts)]
            item = {"type": kind, "role": "assistant", "content": [part for part, _ in made]}
            began: dict[str, Any] = {"content": [], "status": "in_progress"}
            inside = [event for _, events in made for event in events]
        case "reasoning":
            part = {"type": "summary_text", "text": text}
            item = {"type": kind, "summary": [part], "encrypted_content": "gAAA"}
            began = {"summary": [], "status": "in_progress"}
            at = {**at, "summary_index": 0}
            name = "response.reasoning_summary"
            inside = [
                {"type": f"{name}_part.added", **at, "part": {**part, "text": ""}},
                *({"type": f"{name}_text.delta", **at, "delta": piece} for piece in cut(draw, text)),
                {"type": f"{name}_text.done", **at, "text": text},
                {"type": f"{name}_part.done", **at, "part": part},
            ]
        case _:
            field, name = {
                "function_call": ("arguments", "function_call_arguments"),
                "custom_tool_call": ("input", "custom_tool_call_input"),
            }[kind]
            item = {"type": kind, "call_id": f"call_{index}", "name": "f", field: text}
            began = {field: "", "status": "in_progress"}
            inside = [
                *({"type": f"response.{name}.delta", **at, "delta": piece} for piece in cut(draw, text)),
                {"type": f"response.{name}.done", **at, "name": "f", field: text},
            ]
    item = {"id": item_id, "status": "completed", **item}
    return item, [
        {"type": "response.output_item.added", "output_index": index, "item": {**item, **began}},
        *inside,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _part(draw: st.DrawFn, kind: str, at: dict[str, Any]) -> tuple[dict[str, Any], Events]:
    text = draw(st.text(max_size=60))
    if kind == "refusal":
        part: dict[str, Any] = {"type": "refusal", "refusal": text}
        began = {**part, "refusal": ""}
        inside = [
            *({"type": "response.refusal.delta", **at, "delta": piece} for piece in cut(draw, text)),
            {"type": "response.refusal.done", **at, "refusal": text},
        ]
    else:
        annotations, logprobs = ([CITATION], [LOGPROB]) if kind == "cited" else ([], [])
        part = {"type": "output_text", "text": text, "annotations": annotations, "logprobs": logprobs}
        began = {**part, "text": "", "annotations": [], "logprobs": []}
        name = "response.output_text"
        inside = [
            *({"type": f"{name}.delta", **at, "delta": piece, "logprobs": []} for piece in cut(draw, text)),
            *(
                {"type": f"{name}.annotation.added", **at, "annotation_index": i, "annotation": one}
                for i, one in enumerate(annotations)
            ),
            {"type": f"{name}.done", **at, "text": text, "logprobs": logprobs},
        ]
    return part, [
        {"type": "response.content_part.added", **at, "part": began},
        *inside,
        {"type": "response.content_part.done", **at, "part": part},
    ]
