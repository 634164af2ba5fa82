"""Messages, completions and streams of both APIs, as examples and as hypothesis makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
from hypothesis import strategies as st

HELLO = [{"role": "user", "content": "hello"}]
USAGE = {"input_tokens": 3, "output_tokens": 5}

said = st.text(min_size=1, max_size=80).filter(str.strip)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
tool_inputs = st.dictionaries(st.sampled_from(["a", "b", "città"]), json_values, max_size=3)
tool_names = st.sampled_from(["f", "g", "look_up"])


def asking(**fields: Any) -> dict[str, Any]:
    """An Anthropic request."""
    return {"model": "auto", "max_tokens": 64, "messages": HELLO, **fields}


def chatting(**fields: Any) -> dict[str, Any]:
    """An OpenAI request."""
    return {"model": "claude-haiku-4-5", "messages": HELLO, **fields}


def message(*content: Mapping[str, Any], stop_reason: str | None = "end_turn", **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": USAGE,
        **more,
    }


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def tool_use(call_id: str, name: str, tool_input: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": dict(tool_input)}


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(fields: Mapping[str, Any], finish_reason: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **fields}, "finish_reason": finish_reason}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        **more,
    }


def chunk(delta: Mapping[str, Any], finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": [choice], **more}


def call_piece(index: int, arguments: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk with one piece of a tool call; `call_id` and `name` begin one."""
    function = {
        name: value
        for name, value in (("name", more.get("name")), ("arguments", arguments))
        if value is not None
    }
    begun = {"id": more["call_id"], "type": "function"} if "call_id" in more else {}
    return chunk({"tool_calls": [{"index": index, **begun, "function": function}]})


@st.composite
def blocks(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Content blocks of an answer, in any order."""
    kinds = draw(st.lists(st.sampled_from(["text", "thinking", "redacted", "tool", "other"]), max_size=4))
    made: list[dict[str, Any]] = []
    for i, kind in enumerate(kinds):
        match kind:
            case "text":
                cited = draw(st.lists(st.fixed_dictionaries({"cited_text": st.text()}), max_size=2))
                citations: list[dict[str, Any]] = [{}, {"citations": None}, {"citations": cited}]
                more = draw(st.sampled_from(citations))
                made.append(text(draw(st.text()), **more))
            case "thinking":
                made.append({"type": "thinking", "thinking": draw(st.text()), "signature": draw(st.text())})
            case "redacted":
                made.append({"type": "redacted_thinking", "data": draw(st.text())})
            case "tool":
                made.append(tool_use(f"toolu_{i}", draw(tool_names), draw(tool_inputs)))
            case _:
                made.append({"type": "later_tool_result", "tool_use_id": "t", "content": draw(json_values)})
    return made


@st.composite
def completions(draw: st.DrawFn) -> dict[str, Any]:
    """Answers as OpenAI-compatible servers give them: reasoning, text, several tool calls."""
    fields: dict[str, Any] = {"content": draw(st.none() | said)}
    if draw(st.booleans()):
        fields["reasoning_content"] = draw(said)
    count = draw(st.integers(0, 3))
    if count:
        fields["tool_calls"] = [
            call(f"call_{i}", draw(tool_names), orjson.dumps(draw(tool_inputs)).decode())
            for i in range(count)
        ]
    reason = "tool_calls" if count else draw(st.sampled_from(["stop", "length", "content_filter"]))
    cached = draw(st.integers(0, 5))
    usage = {"prompt_tokens": 7, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": cached}}
    return completion(fields, reason, usage=usage)


@st.composite
def chunked(draw: st.DrawFn, whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A stream of this completion, cut anywhere, its tool calls begun in order and then interleaved in any
    way, its finish and usage with the last chunk or after it."""
    fields = whole["choices"][0]["message"]
    stream = [chunk({"role": "assistant", "content": draw(st.sampled_from(["", None]))})]
    for name in ("reasoning_content", "content"):
        stream += [chunk({name: piece}) for piece in draw(_cut(fields.get(name) or ""))]
    calls = [
        [
            call_piece(i, "", call_id=one["id"], name=one["function"]["name"]),
            *(call_piece(i, piece) for piece in draw(_cut(one["function"]["arguments"]))),
        ]
        for i, one in enumerate(fields.get("tool_calls") or ())
    ]
    begun = 0
    while any(calls):
        open_calls = [i for i, pieces in enumerate(calls[: begun + 1]) if pieces]
        i = draw(st.sampled_from(open_calls))
        begun = max(begun, i + 1)
        stream.append(calls[i].pop(0))
    if draw(st.booleans()):
        stream.append(chunk({}))
    if draw(st.booleans()):
        stream.append(chunk({}))
    stream[-1]["choices"][0]["finish_reason"] = whole["choices"][0]["finish_reason"]
    if draw(st.booleans()):
        stream[-1] = {**stream[-1], "usage": whole["usage"]}
    else:
        stream.append({**chunk({}), "choices": [], "usage": whole["usage"]})
    return stream


@st.composite
def _cut(draw: st.DrawFn, words: str) -> list[str]:
    """In pieces, empty ones among them."""
    at = sorted(draw(st.lists(st.integers(0, len(words)), max_size=5)))
    return [words[begin:end] for begin, end in zip([0, *at], [*at, len(words)], strict=True)]


def through(translator: Any, events: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """All that an event translator says of a stream."""
    for event in events:
        yield from translator.feed(event)
    yield from translator.end()
