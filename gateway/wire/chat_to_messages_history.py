"""The messages of a chat completion request as Anthropic's system prompt and turns."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any

from gateway.errors import RequestError
from gateway.wire.dialect import Json
from gateway.wire.messages_tool_input import as_input

JSON_ALONE = "Answer with one JSON object and nothing else: no code fence, no words around it."
"""What stands for `response_format` json_object."""

_DATA_URL = re.compile(r"^data:(?P<media>[^;,]*)(?:;[^;,]*)*;base64,(?P<data>.*)$", re.DOTALL)
_READABLE = "expected text, an image or a file: the model that answers this can read no other part"


def history(messages: Iterable[Json]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(system, messages): system and developer messages as text blocks, wherever they stand, and the
    others in turns: neighbours of one role are one message; tool results are the user's, and come first.

    Left out are texts of white space alone, which Anthropic refuses, `name`s of speakers, and reasoning
    without the signed `thinking_blocks` that an answer had. Raises RequestError (400) that names the field.
    """
    system: list[dict[str, Any]] = []
    turns: list[tuple[str, list[dict[str, Any]]]] = []
    for i, message in enumerate(messages):
        role, path = str(message.get("role")), f"messages[{i}]"
        if role in ("system", "developer"):
            system += _blocks(message.get("content"), f"{path}.content")
            continue
        if role == "function":
            raise unreadable(f"{path}.role", "functions are not known there; use tools")
        blocks = list(_assistant(message, path) if role == "assistant" else _users(message, path))
        if not blocks:
            continue
        role = "assistant" if role == "assistant" else "user"
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    if not turns:
        raise unreadable("messages", "expected a message of the user's that is not empty")
    role, blocks = turns[-1]
    if role == "assistant" and blocks[-1]["type"] == "text":
        # Anthropic refuses white space at the end of a text that the model shall go on with.
        blocks[-1]["text"] = blocks[-1]["text"].rstrip()
    return system, [{"role": role, "content": _content(blocks)} for role, blocks in turns]


def unreadable(field: str, problem: str) -> RequestError:
    return RequestError(f"{field}: {problem}.", param=field, code="unsupported_value")


def _content(blocks: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    blocks.sort(key=lambda block: block["type"] != "tool_result")
    alone = len(blocks) == 1 and blocks[0]["type"] == "text" and len(blocks[0]) == 2
    return blocks[0]["text"] if alone else blocks


def _users(message: Json, path: str) -> Iterator[dict[str, Any]]:
    if message.get("role") != "tool":
        yield from _blocks(message.get("content"), f"{path}.content")
        return
    content = message.get("content")
    if not isinstance(content, str):
        content = _blocks(content, f"{path}.content")
    yield {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": content}


def _assistant(message: Json, path: str) -> Iterator[dict[str, Any]]:
    for name in ("function_call", "audio"):
        if message.get(name):
            raise unreadable(f"{path}.{name}", "the model that answers this knows no such thing")
    for block in message.get("thinking_blocks") or ():
        if block.get("signature") or block.get("type") == "redacted_thinking":
            yield dict(block)
    yield from _blocks(message.get("content"), f"{path}.content")
    if message.get("refusal"):
        yield {"type": "text", "text": message["refusal"]}
    for i, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function")
        if not isinstance(function, dict):
            raise unreadable(f"{path}.tool_calls[{i}].type", "expected the call of a function")
        tool_input = as_input(function.get("arguments") or "")
        yield {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": tool_input}


def _blocks(content: Any, path: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    blocks = []
    for i, part in enumerate(content or ()):
        block = _block(part, f"{path}[{i}]")
        if block is None:
            continue
        if part.get("cache_control"):
            block["cache_control"] = part["cache_control"]
        blocks.append(block)
    return blocks


def _block(part: Json, path: str) -> dict[str, Any] | None:
    """None for a text that is empty or white space."""
    match part.get("type"):
        case "text" | "refusal" as kind:
            text = part.get(kind) or ""
            return {"type": "text", "text": text} if text.strip() else None
        case "image_url":
            url = part.get("image_url")
            url = url.get("url") if isinstance(url, dict) else url
            return {"type": "image", "source": _image(str(url), f"{path}.image_url.url")}
        case "file":
            return _document(part.get("file") or {}, f"{path}.file")
    raise unreadable(f"{path}.type", _READABLE)


def _image(url: str, path: str) -> dict[str, Any]:
    if found := _DATA_URL.match(url):
        return {"type": "base64", "media_type": found["media"], "data": found["data"]}
    if url.startswith(("https://", "http://")):
        return {"type": "url", "url": url}
    raise unreadable(path, "expected an http(s) URL, or a data URL in base64")


def _document(file: Json, path: str) -> dict[str, Any]:
    found = _DATA_URL.match(str(file.get("file_data") or ""))
    if found is None:
        field = "file_id" if file.get("file_id") else "file_data"
        raise unreadable(f"{path}.{field}", "expected `file_data` with a data URL in base64")
    document: dict[str, Any] = {"type": "document"}
    if found["media"] == "application/pdf":
        document["source"] = {"type": "base64", "media_type": "application/pdf", "data": found["data"]}
    elif found["media"].startswith("text/"):
        try:
            text = base64.b64decode(found["data"], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise unreadable(f"{path}.file_data", "expected text of UTF-8 in base64") from None
        document["source"] = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        raise unreadable(f"{path}.file_data", "expected a PDF or a text")
    return document | ({"title": file["filename"]} if file.get("filename") else {})
