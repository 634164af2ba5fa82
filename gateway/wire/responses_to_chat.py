"""Responses answered by a backend that speaks chat completions.

What the backend keeps no state for (previous responses, conversations, prompt templates, background work)
and the tools OpenAI runs itself are refused, never left out.
"""

from __future__ import annotations

from typing import Any

from gateway.wire import chat
from gateway.wire.chat_as_response import ResponseWriter, response_of
from gateway.wire.completions_to_chat import refused
from gateway.wire.dialect import Json
from gateway.wire.responses_input import (
    chat_response_format,
    chat_tools,
    context_elsewhere,
    items_of,
    kind_of,
    messages_of,
    wants_logprobs,
)
from policies.types import Api

_TRANSLATED = frozenset(
    {
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "text",
        "reasoning",
        "max_output_tokens",
        "stream_options",
    }
)
_WITHOUT_EFFECT = frozenset(
    {
        "access_programs",
        "background",  # false, or it is refused
        "background_options",
        "client_metadata",
        "context_management",
        "conversation",
        "image",
        "include",  # log-probabilities are asked for below; the rest is of tools that are refused
        "max_tool_calls",  # of the tools OpenAI runs
        "metadata",  # OpenAI takes it only with what it stores; the answer has it
        "moderation",
        "previous_response_id",
        "prompt",
        "prompt_cache_options",
        "store",
        "truncation",  # without it, too long an input is an error of the backend's
    }
)
"""Fields that do not go to the backend: refused, or of no effect on its answer."""

_TEXT_PARTS = ("input_text", "output_text", "text", "refusal")
_FORMATS = ("text", "json_object", "json_schema")


class ResponsesToChat:
    source: Api = "responses"
    target: Api = "chat"

    def request(self, body: Json) -> dict[str, Any]:
        """Fields of the same name, unknown ones too, go on as they are. Nothing is stored, whatever `store`
        says, and the answer says so."""
        _check(body)
        handled = _TRANSLATED | _WITHOUT_EFFECT
        translated = {
            name: value for name, value in body.items() if name not in handled and value is not None
        }
        translated["messages"] = messages_of(body)
        if not translated["messages"]:
            raise refused("input", "expected at least one message")
        if body.get("tools"):
            translated["tools"] = chat_tools(body)
        else:
            translated.pop("parallel_tool_calls", None)  # an error without tools
        if body.get("tool_choice") is not None and body.get("tools"):
            translated["tool_choice"] = _tool_choice(body["tool_choice"])
        if (wanted := chat_response_format(body)) is not None:
            translated["response_format"] = wanted
        if (verbosity := (body.get("text") or {}).get("verbosity")) is not None:
            translated["verbosity"] = verbosity
        if (effort := (body.get("reasoning") or {}).get("effort")) is not None:
            translated["reasoning_effort"] = effort
        if body.get("max_output_tokens") is not None:
            translated["max_completion_tokens"] = body["max_output_tokens"]
        if wants_logprobs(body):
            translated["logprobs"] = True
        else:
            translated.pop("top_logprobs", None)
        if body.get("stream"):
            translated["stream_options"] = {"include_usage": True}
        chat.check(translated)  # fields that Responses does not have come unseen
        return translated

    def answer(self, answer: Json, asked: Json) -> dict[str, Any]:
        return response_of(answer, asked)

    def events(self, asked: Json) -> ResponseWriter:
        return ResponseWriter(asked)


def _check(body: Json) -> None:
    """Raises RequestError (400) for the first thing that has no counterpart."""
    for name in context_elsewhere(body):
        raise refused(name, "this model's backend keeps no context; send the whole of it as input")
    if body.get("background"):
        raise refused("background", "this model answers in the foreground only")
    if body.get("moderation") is not None:
        raise refused("moderation", "this model's answers are not moderated")
    if (body.get("reasoning") or {}).get("mode") not in (None, "standard"):
        raise refused("reasoning.mode", "this model has the standard mode only")
    kind = ((body.get("text") or {}).get("format") or {}).get("type", "text")
    if kind not in _FORMATS:
        raise refused("text.format.type", f"expected one of {', '.join(_FORMATS)}, got '{kind}'")
    for i, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") != "function":
            raise refused(f"tools[{i}].type", f"this model has function tools only, not '{tool.get('type')}'")
    for i, item in enumerate(items_of(body)):
        _check_item(item, f"input[{i}]")


def _check_item(item: Json, path: str) -> None:
    kind = kind_of(item)
    if kind == "message":
        _check_parts(item.get("content"), f"{path}.content", images=item.get("role") == "user")
    elif kind == "function_call_output":
        _check_parts(item.get("output"), f"{path}.output", images=False)
    elif kind not in ("function_call", "reasoning"):
        raise refused(f"{path}.type", f"this model's backend does not take '{kind}'")


def _check_parts(parts: Any, path: str, *, images: bool) -> None:
    for i, part in enumerate(parts if isinstance(parts, list) else ()):
        kind = part.get("type")
        if kind in _TEXT_PARTS:
            continue
        if not images or kind not in ("input_image", "input_file", "input_audio"):
            raise refused(f"{path}[{i}].type", f"expected text, got '{kind}'")
        if part.get("file_id"):
            raise refused(
                f"{path}[{i}].file_id", "this model's backend has no files; send the content itself"
            )
        needed = {"input_image": "image_url", "input_file": "file_data"}.get(kind)
        if needed is not None and not part.get(needed):
            raise refused(f"{path}[{i}].{needed}", "the content itself is needed; the field is missing")


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return choice
    if choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if choice.get("type") == "allowed_tools":
        tools = [
            {"type": "function", "function": {"name": tool.get("name")}} for tool in choice.get("tools") or ()
        ]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": tools}}
    raise refused("tool_choice.type", f"this model has function tools only, not '{choice.get('type')}'")
