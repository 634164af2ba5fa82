"""What a request needs of a model, whatever its difficulty: hard rules that come before the score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from policies.types import Api

Capability = Literal["tools", "vision", "json"]

BYTES_PER_TOKEN = 3
"""English averages about 4 bytes of UTF-8 a token, Korean about 3 to 4: dividing by 3 errs on the side of
the model that has room."""
TOKENS_PER_MESSAGE = 6
DEFAULT_COMPLETION_TOKENS = 256
"""Room left for an answer whose length the client does not bound."""

_FRAME = frozenset(
    {
        "call_id",
        "finish_reason",
        "id",
        "instructions",
        "metadata",
        "model",
        "object",
        "role",
        "service_tier",
        "signature",
        "status",
        "stop_reason",
        "system_fingerprint",
        "tools",
        "type",
    }
)
"""Fields of answers that hold no generated text."""


def needed_capabilities(body: Mapping[str, Any]) -> frozenset[Capability]:
    """From a chat completion body: tools or functions, image parts, a JSON response format."""
    needed: set[Capability] = set()
    if body.get("tools") or body.get("functions"):
        needed.add("tools")
    if (body.get("response_format") or {}).get("type") in ("json_object", "json_schema"):
        needed.add("json")
    if any(part.get("type") in ("image_url", "input_image", "image") for part in _parts(body)):
        needed.add("vision")
    return frozenset(needed)


def is_repeatable(api: Api, body: Mapping[str, Any]) -> bool:
    """Whether the upstream may get a request twice. A response that joins a `conversation`, or runs in the
    `background`, changes what the upstream keeps."""
    return not (api == "responses" and (body.get("background") or body.get("conversation") is not None))


def estimated_tokens(body: Mapping[str, Any]) -> int:
    """Prompt and completion together, from the text's length: no tokenizer is asked."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_COMPLETION_TOKENS
    return estimated_prompt_tokens(body) + int(limit)


def estimated_prompt_tokens(body: Mapping[str, Any]) -> int:
    """Of a chat completion body, from the text's length."""
    size = 0
    for message in body.get("messages") or ():
        size += TOKENS_PER_MESSAGE * BYTES_PER_TOKEN
        content = message.get("content")
        if isinstance(content, str):
            size += len(content.encode("utf-8", "replace"))
    for part in _parts(body):
        text = part.get("text")
        if isinstance(text, str):
            size += len(text.encode("utf-8", "replace"))
    return size // BYTES_PER_TOKEN


def estimated_text_tokens(answer: Any) -> int:
    """Of an answer of any API: from the length of the strings in it that are not its frame."""
    return sum(len(text.encode("utf-8", "replace")) for text in spoken_texts(answer)) // BYTES_PER_TOKEN


def spoken_texts(answer: Any) -> Iterator[str]:
    """Of an answer of any API, in order: the strings in it that are not its frame."""
    return _texts(answer, "")


def _texts(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, str):
        if key not in _FRAME:
            yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if name not in _FRAME:
                yield from _texts(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)


def _parts(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for message in body.get("messages") or ():
        content = message.get("content")
        if isinstance(content, list):
            yield from (part for part in content if isinstance(part, Mapping))
