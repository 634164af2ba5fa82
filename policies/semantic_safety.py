"""Which requests may be answered by similarity at all. The exact layer may still serve the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FUNCTIONS = (None, "function", "custom")
"""Tools that the client runs. All others are the provider's: what they find changes with time."""
_SEARCHES = ("web_search_options", "search_parameters", "plugins")
"""OpenAI's, xAI's and OpenRouter's fields by which a model searches the web before it answers."""


def message_text(content: Any) -> str | None:
    """The text of a message: a string, or a list of text parts. None when it holds anything else."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        parts = []
        for part in content:
            if not isinstance(part, Mapping) or part.get("type") != "text":
                return None
            text = part.get("text")
            # A part with further fields (cache hints, annotations) is not text alone.
            if not isinstance(text, str) or len(part) != 2:
                return None
            parts.append(text)
        return "\n".join(parts)
    return None


def why_unsafe(body: Mapping[str, Any]) -> tuple[str, str | None]:
    """(reason, None) when a chat request must not be answered by similarity, whatever it asks, else ("", the
    text that is compared: the last message's). Fields are of the APIs' types where a dialect has checked
    them; others may hold anything.
    """
    messages = body.get("messages") or ()
    if not messages:
        return "no messages", None
    if reason := _why_unsafe_fields(body):
        return reason, None
    for message in messages:
        if message.get("role") in ("tool", "function"):
            return "the conversation holds tool results", None
        if message.get("tool_calls") or message.get("function_call"):
            return "the conversation holds tool calls, whose tool results are context", None
        content = message.get("content")
        if message.get("audio") or (content is not None and message_text(content) is None):
            return "the conversation holds images, files or other content that is not text", None
    last = messages[-1]
    if last.get("role") != "user":
        return "the last message is not the user's", None
    text = message_text(last.get("content"))
    if text is None or not text.strip():
        return "the last message has no text", None
    return "", text


def _why_unsafe_fields(body: Mapping[str, Any]) -> str:
    if body.get("n") not in (None, 1):
        return "several choices were asked for"
    if body.get("logprobs") or body.get("top_logprobs"):
        return "log-probabilities were asked for"
    if body.get("modalities") not in (None, [], ["text"]):
        return "an answer that is not text was asked for"
    # An empty `web_search_options` asks for a search too.
    if any(body.get(name) not in (None, []) for name in _SEARCHES):
        return "the model may search the web"
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, Mapping) or tool.get("type") not in _FUNCTIONS:
            return "the model may use the provider's tools, and what they find changes with time"
    return ""
