"""An Anthropic request as the chat completion request that asks the same.

What chat completions have no form for stays in as a part (or tool) of its own type: nothing is left out
silently, similarity is not asked about it, and `messages_to_chat` refuses it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway.wire.dialect import Json
from gateway.wire.messages_effort import reasoning_effort
from gateway.wire.messages_tool_input import as_text

BETWEEN_BLOCKS = "\n\n"
"""Between the blocks of a system prompt, which chat templates want as one text."""
MAX_USER_CHARACTERS = 64

_ONLY_ANTHROPICS = frozenset(
    {
        "anthropic_beta",
        "betas",
        "cache_control",
        "context_management",
        "diagnostics",
        "inference_geo",
        "metadata",
        "output_config",
        "output_format",
        "service_tier",
        "speed",
        "stop_sequences",
        "system",
        "thinking",
        "tool_choice",
        "tools",
        "user_profile_id",
        "workspace_id",
    }
)
"""Said otherwise in a chat completion, or a matter of price, speed or place that changes no answer."""

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_view(body: Json) -> dict[str, Any]:
    """Every field that is not null nor Anthropic's alone is kept under its name (`max_tokens`, `top_k`,
    unknown ones). Hints to the prompt cache (`cache_control`) go: they change no answer. Thinking of earlier
    turns goes too: only the model that signed it can read it, and chat templates drop it anyway."""
    view = {n: value for n, value in body.items() if n not in _ONLY_ANTHROPICS and value is not None}
    messages: list[dict[str, Any]] = []
    if system := system_text(body.get("system")):
        messages.append({"role": "system", "content": system})
    for message in body.get("messages") or ():
        messages += _messages(message)
    view["messages"] = messages
    if body.get("stop_sequences"):
        view["stop"] = list(body["stop_sequences"])
    if user := (body.get("metadata") or {}).get("user_id"):
        view["user"] = _user_id(user)
    if effort := reasoning_effort(body):
        view["reasoning_effort"] = effort
    if schema := _schema(body):
        named = {"name": "answer", "schema": schema, "strict": True}
        view["response_format"] = {"type": "json_schema", "json_schema": named}
    if body.get("tools"):
        view["tools"] = [_tool(tool) for tool in body["tools"]]
        view |= _tool_choice(body.get("tool_choice") or {})
    return view


def without_form(block: Json) -> str:
    """Where chat completions have no form for a user's block, the field that says so: "type",
    "source.type" or "citations"; else ""."""
    for part in _parts(block):
        if part["type"] not in ("text", "image_url", "file"):
            if block.get("type") not in ("image", "document", "search_result"):
                return "type"
            return "citations" if _cites(block) else "source.type"
    return ""


def without_question(body: Json) -> Json:
    """The body with the last text of its last message blanked, when that is the user's and text alone. Blocks
    and their other fields stay, and so do the texts before it: they may be documents.

    Any other body comes back as it is: its question stays in the partition, so that it is never taken for
    another.
    """
    messages = list(body.get("messages") or ())
    if not messages or messages[-1].get("role") != "user":
        return body
    content = messages[-1].get("content")
    blank: str | list[dict[str, Any]]
    if isinstance(content, str):
        blank = ""
    elif content and all(block.get("type") == "text" for block in content):
        blank = [*content[:-1], {**content[-1], "text": ""}]
    else:
        return body
    messages[-1] = {**messages[-1], "content": blank}
    return {**body, "messages": messages}


def system_text(system: Any) -> str:
    """A system prompt, a text or text blocks, as one text."""
    if isinstance(system, str):
        return system
    return BETWEEN_BLOCKS.join(block.get("text") or "" for block in system or ())


def _schema(body: Json) -> Any:
    """Of structured outputs; `output_format` is the name the beta had."""
    wanted = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    return wanted.get("schema") if isinstance(wanted, Mapping) else None


def _user_id(user: str) -> str:
    """OpenAI refuses a `user` of more than 64 characters; a hash of it stands for one user too."""
    if len(user) <= MAX_USER_CHARACTERS:
        return user
    return hashlib.blake2b(user.encode("utf-8", "replace"), digest_size=MAX_USER_CHARACTERS // 2).hexdigest()


def _messages(message: Json) -> Iterator[dict[str, Any]]:
    role, content = message.get("role"), message.get("content")
    if role == "system":
        yield {"role": "system", "content": system_text(content)}
    elif isinstance(content, str):
        yield {"role": role, "content": content}
    elif role == "assistant":
        yield _assistant(content or ())
    else:
        yield from _user(content or ())


def _assistant(blocks: Iterable[Json]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    calls = []
    for block in blocks:
        match block.get("type"):
            case "tool_use":
                function = {"name": block.get("name"), "arguments": as_text(block.get("input"))}
                calls.append({"id": block.get("id"), "type": "function", "function": function})
            case "thinking" | "redacted_thinking":
                continue
            case _:
                parts += _parts(block)
    # Blocks of an answer follow each other without a break: citations split a sentence in several.
    text = "".join(part["text"] for part in parts if part["type"] == "text")
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if any(part["type"] != "text" for part in parts):
        message["content"] = parts
    if calls:
        message |= {"content": message["content"] or None, "tool_calls": calls}
    return message


def _user(blocks: Iterable[Json]) -> Iterator[dict[str, Any]]:
    """Tool results first, one message each, since they must follow the calls; then the rest as one."""
    parts: list[dict[str, Any]] = []
    results = []
    for block in blocks:
        if block.get("type") == "tool_result":
            result, others = _tool_result(block)
            results.append(result)
            parts += others
        else:
            parts += _parts(block)
    yield from results
    if parts or not results:
        alone = len(parts) == 1 and parts[0]["type"] == "text"
        yield {"role": "user", "content": parts[0]["text"] if alone else parts or ""}


def _tool_result(block: Json) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A message of role tool can hold text alone. Images and files go to the user's message after it."""
    content = block.get("content")
    parts = [part for inner in content for part in _parts(inner)] if isinstance(content, list) else []
    text = content if isinstance(content, str) else "\n".join(p["text"] for p in parts if p["type"] == "text")
    others = [part for part in parts if part["type"] != "text"]
    if others:
        told = f"What the tool returned for the call {block.get('tool_use_id')}:"
        others.insert(0, {"type": "text", "text": told})
    if block.get("is_error"):
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}, others


def _parts(block: Json) -> list[dict[str, Any]]:
    """A block as parts of a chat message; one of its own type where there is no such part."""
    source = block.get("source") or {}
    match block.get("type"), source.get("type") if isinstance(source, Mapping) else None:
        case "text", _:
            return [_text(block.get("text") or "")]
        case "image", "base64":
            url = f"data:{source.get('media_type')};base64,{source.get('data')}"
            return [{"type": "image_url", "image_url": {"url": url}}]
        case "image", "url":
            return [{"type": "image_url", "image_url": {"url": source.get("url")}}]
        case "document", ("text" | "content" | "base64") as kind if not _cites(block):
            return _document(block, source, kind)
        case "search_result", _ if not _cites(block):
            heading = "\n".join(str(block[name]) for name in ("title", "source") if block.get(name))
            texts = [inner.get("text") or "" for inner in block.get("content") or ()]
            return [_text("\n".join([heading, *texts]))]
    return [{**block, "type": str(block.get("type"))}]


def _document(block: Json, source: Json, kind: str) -> list[dict[str, Any]]:
    heading = "\n".join(str(block[name]) for name in ("title", "context") if block.get(name))
    if kind == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
        file = {"filename": block.get("title") or "document.pdf", "file_data": url}
        context = [_text(str(block["context"]))] if block.get("context") else []
        return [*context, {"type": "file", "file": file}]
    content = source.get("data") if kind == "text" else source.get("content")
    inner = [_text(content)] if isinstance(content, str) else [p for b in content or () for p in _parts(b)]
    return [_text(heading), *inner] if heading else inner


def _cites(block: Json) -> bool:
    """Citations are a part of the answer that chat completions do not have."""
    return bool((block.get("citations") or {}).get("enabled"))


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _tool(tool: Json) -> dict[str, Any]:
    """Anthropic's own tools stay as they are."""
    if tool.get("type") not in (None, "custom"):
        return dict(tool)
    function = {"name": tool.get("name"), "parameters": tool.get("input_schema")}
    function |= {name: tool[name] for name in ("description", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _tool_choice(choice: Json) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if choice.get("type") == "tool":
        said["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif choice.get("type") in _CHOICES:
        said["tool_choice"] = _CHOICES[choice["type"]]
    if choice.get("disable_parallel_tool_use"):
        said["parallel_tool_calls"] = False
    return said
