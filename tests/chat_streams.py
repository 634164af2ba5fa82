"""Chat completions, and the streams they could have come in, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

HEAD = {"id": "chatcmpl-1a", "created": 7, "model": "upstream"}
USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 4,
    "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


def completion(message: dict[str, Any], finish_reason: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}}
    choices = [{**choice, "finish_reason": finish_reason}]
    return {**HEAD, "object": "chat.completion", "choices": choices, "usage": USAGE, **more}


def chunk(
    delta: dict[str, Any], finish_reason: str | None = None, usage: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason, **more}]
    return {**HEAD, "object": "chat.completion.chunk", "choices": choices, "usage": usage}


def tool_call(number: int, arguments: str = "{}") -> dict[str, Any]:
    function = {"name": f"f{number}", "arguments": arguments}
    return {"id": f"call{number}", "type": "function", "function": function}


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    message: dict[str, Any] = {}
    for name in ("reasoning_content", "content", "refusal"):
        if draw(st.booleans()):
            message[name] = draw(st.text(min_size=1, max_size=20))
    arguments = draw(st.lists(st.text(max_size=12), max_size=3))
    if arguments:
        message["tool_calls"] = [tool_call(i, text) for i, text in enumerate(arguments)]
    return message


@st.composite
def streams(draw: st.DrawFn, whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a completion: texts cut anywhere, pieces of tool calls in any order, the end and the
    usage alone or together with what comes before."""
    message = whole["choices"][0]["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for name in ("reasoning_content", "content", "refusal"):
        deltas += [{name: piece} for piece in draw(cuts(message.get(name) or ""))]
    calls = message.get("tool_calls") or []
    deltas += [
        {"tool_calls": [{"index": i, **call, "function": {**call["function"], "arguments": ""}}]}
        for i, call in enumerate(calls)
    ]
    pieces = [draw(cuts(call["function"]["arguments"])) for call in calls]
    while any(pieces):
        i = draw(st.sampled_from([i for i, left in enumerate(pieces) if left]))
        deltas.append({"tool_calls": [{"index": i, "function": {"arguments": pieces[i].pop(0)}}]})
    chunks = [chunk(delta) for delta in deltas]
    if draw(st.booleans()):
        chunks.append(chunk({}))
    chunks[-1]["choices"][0]["finish_reason"] = whole["choices"][0]["finish_reason"]
    if draw(st.booleans()):
        chunks.append({**HEAD, "object": "chat.completion.chunk", "choices": []})
    chunks[-1]["usage"] = whole["usage"]
    return chunks


@st.composite
def cuts(draw: st.DrawFn, text: str) -> list[str]:
    places = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=4)))
    ends = [place for place in places if place < len(text)]
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)] if text else []
