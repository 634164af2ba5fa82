"""What a Responses request asks, in the terms of chat completions.

Items: https://platform.openai.com/docs/api-reference/responses/create#responses-create-input
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.wire.dialect import Json

_TEXTS = ("input_text", "output_text", "text")


def items_of(body: Json) -> list[dict[str, Any]]:
    """The input as a list of items: a text is the user's message."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return list(given or ())


def kind_of(item: Json) -> str:
    """An item's type. A message may leave it out, and so may a reference, which is an id alone."""
    return item.get("type") or ("message" if "role" in item else "item_reference")


def messages_of(body: Json) -> list[dict[str, Any]]:
    """The chat messages that instructions and input stand for.

    What has no counterpart becomes a part of its own type, which is not text. Reasoning is left out: it is
    the model's own, and chat completions does not take it back.
    """
    messages: list[dict[str, Any]] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    for item in items_of(body):
        _add(messages, item)
    return messages


def _add(messages: list[dict[str, Any]], item: Json) -> None:
    kind = kind_of(item)
    if kind == "message" and item.get("role") == "assistant":
        said = _assistant(item)
        last = messages[-1] if messages else {}
        if last.get("tool_calls") and last.get("content") is None and last.get("refusal") is None:
            # Said with the calls before it: their outputs must follow the message that has them.
            last.update(said)
        else:
            messages.append(said)
    elif kind == "message":
        _add_message(messages, _message(item))
    elif kind == "function_call":
        call = {
            "id": item.get("call_id"),
            "type": "function",
            "function": {"name": item.get("name"), "arguments": item.get("arguments") or ""},
        }
        # Calls made at once are one message, together with what was said before them.
        if not messages or messages[-1].get("role") != "assistant":
            messages.append({"role": "assistant", "content": None})
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        given = item.get("output")
        content = _content(given) if isinstance(given, list) else given
        output = {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
        messages.insert(_after_call(messages, item.get("call_id")), output)
    elif kind != "reasoning":
        messages.append({"role": "assistant", "content": [{"type": kind}]})


def _after_call(messages: list[dict[str, Any]], call_id: Any) -> int:
    """Where a call's output goes: chat completions takes nothing but outputs between a call and its own."""
    for i in reversed(range(len(messages))):
        if any(call["id"] == call_id for call in messages[i].get("tool_calls") or ()):
            at = i + 1
            while at < len(messages) and messages[at].get("role") == "tool":
                at += 1
            return at
    return len(messages)


def _add_message(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    last = messages[-1] if messages else {}
    texts = last.get("content"), message["content"]
    if message["role"] == last.get("role") == "system" and all(isinstance(text, str) for text in texts):
        # Many chat templates take one system message, the first.
        messages[-1] = {"role": "system", "content": f"{texts[0]}\n\n{texts[1]}"}
    else:
        messages.append(message)


def _message(item: Json) -> dict[str, Any]:
    content = item.get("content")
    # Every chat server knows "system"; OpenAI's own takes it for "developer" where a model wants that.
    role = "system" if item.get("role") == "developer" else item.get("role")
    return {"role": role, "content": _content(content) if isinstance(content, list) else content}


def _assistant(item: Json) -> dict[str, Any]:
    content = item.get("content")
    if not isinstance(content, list):
        return {"role": "assistant", "content": content}
    refusals = [part.get("refusal") or "" for part in content if part.get("type") == "refusal"]
    rest = [part for part in content if part.get("type") != "refusal"]
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if all(part.get("type") in _TEXTS for part in rest):
        # Citations and log-probabilities belong to the answer, not to what was said.
        message["content"] = "".join(part.get("text") or "" for part in rest) if rest else None
    else:
        message["content"] = _content(rest)
    if refusals:
        message["refusal"] = "".join(refusals)
    return message


def _content(parts: list[Any]) -> str | list[dict[str, Any]]:
    converted = [_part(part) for part in parts]
    # One text is written as a text: servers without images take nothing else.
    if len(converted) == 1 and converted[0].keys() == {"type", "text"} and converted[0]["type"] == "text":
        return str(converted[0]["text"])
    return converted


def _part(part: Json) -> dict[str, Any]:
    match part.get("type"):
        case "input_text" | "output_text":
            return {**part, "type": "text"}
        case "input_image" if part.get("image_url"):
            image: dict[str, Any] = {"url": part["image_url"]}
            if part.get("detail"):
                image["detail"] = "high" if part["detail"] == "original" else part["detail"]
            return {"type": "image_url", "image_url": image}
        case "input_file" if part.get("file_data"):
            file = {name: part[name] for name in ("filename", "file_data") if part.get(name)}
            return {"type": "file", "file": file}
        case _:
            return dict(part)


def chat_tools(body: Json) -> list[dict[str, Any]]:
    """Functions as chat completions has them; tools of other kinds as they are."""
    return [_tool(tool) for tool in body.get("tools") or ()]


def _tool(tool: Json) -> dict[str, Any]:
    if tool.get("type") != "function":
        return dict(tool)
    names = ("name", "description", "parameters", "strict")
    return {
        "type": "function",
        "function": {name: tool[name] for name in names if tool.get(name) is not None},
    }


def chat_response_format(body: Json) -> dict[str, Any] | None:
    """`text.format` as chat completions' `response_format`; None for plain text."""
    wanted = (body.get("text") or {}).get("format") or {}
    if wanted.get("type") in (None, "text"):
        return None
    if wanted["type"] != "json_schema":
        return dict(wanted)
    schema = {name: value for name, value in wanted.items() if name != "type"}
    return {"type": "json_schema", "json_schema": schema}


def context_elsewhere(body: Json) -> Iterator[str]:
    """The fields by which a request has context that is not in its body."""
    for name in ("previous_response_id", "conversation", "prompt"):
        if body.get(name) is not None:
            yield name


def wants_logprobs(body: Json) -> bool:
    return "message.output_text.logprobs" in (body.get("include") or ()) or bool(body.get("top_logprobs"))
