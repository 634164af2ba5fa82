"""An OpenAI client answered by a backend that speaks Anthropic's messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from gateway.errors import RequestError
from gateway.wire.chat_to_messages_answer import MessageStreamAsChat, completion_of
from gateway.wire.chat_to_messages_history import JSON_ALONE, history
from gateway.wire.chat_to_messages_model import takes_sampling, thinks_adaptively
from gateway.wire.dialect import Json
from gateway.wire.messages_effort import BUDGET_TOKENS, LEAST_BUDGET_TOKENS
from policies.types import Api

DEFAULT_MAX_TOKENS = 4_096
"""Anthropic wants a limit and OpenAI's clients often give none. Thinking gets its budget beside it."""

_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_TRANSLATED = frozenset(
    {
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "parallel_tool_calls",
        "reasoning_effort",
        "response_format",
        "stop",
        "temperature",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
        "user",
    }
)
_REFUSED = ("logprobs", "top_logprobs", "logit_bias", "functions", "audio", "web_search_options")
"""Unless they are false or empty."""
_LEFT_OUT = frozenset(
    {
        *_REFUSED,
        "n",
        "function_call",
        "modalities",
        "frequency_penalty",  # Anthropic has no penalties; many clients send them as a habit
        "presence_penalty",
        "seed",  # promises best effort only, and Anthropic has none
        "metadata",  # labels for OpenAI's dashboard
        "prediction",  # speeds up, changes nothing
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",  # its values mean other contracts there
        "store",
        "stream_options",  # usage is always there
        "verbosity",
    }
)
_NOT_KEPT = _TRANSLATED | _LEFT_OUT


class ChatToMessages:
    """`clock` gives Unix seconds: a completion has a time, a message has none.

    What both APIs know under other names is translated. What is Anthropic's own (`thinking`, `top_k`,
    `cache_control` on parts and tools, unknown fields) goes through, so that an OpenAI client can use it.
    """

    source: Api = "chat"
    target: Api = "messages"

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def request(self, body: Json) -> dict[str, Any]:
        """Raises RequestError (400) for several choices, log-probabilities, biases, audio, the old
        functions, tools that are not functions, and parts that Anthropic cannot read.

        `temperature` is at most 1 there, and what is above becomes 1. Penalties and `seed` are left out. For
        JSON without a schema there is only a word to the model, at the end of the system prompt.
        """
        for field in _refused(body):
            raise unsupported(field)
        system, messages = history(body.get("messages") or ())
        asked = {n: value for n, value in body.items() if n not in _NOT_KEPT and value is not None}
        asked["messages"] = messages
        wanted = body.get("response_format") or {}
        if wanted.get("type") == "json_object":
            system.append({"type": "text", "text": JSON_ALONE})
        elif schema := _schema(wanted):
            config = {
                **(body.get("output_config") or {}),
                "format": {"type": "json_schema", "schema": schema},
            }
            asked["output_config"] = config
        if system:
            plain = len(system) == 1 and len(system[0]) == 2
            asked["system"] = system[0]["text"] if plain else system
        if stop := body.get("stop"):
            asked["stop_sequences"] = _stop_sequences(stop)
        user = body.get("user") or body.get("safety_identifier")
        if user:
            asked["metadata"] = {"user_id": user}
        asked |= _tools(body)
        asked |= _room_to_think(body, asked)
        asked |= _sampling(body, thinks="thinking" in asked)
        return asked

    def answer(self, answer: Json, asked: Json) -> dict[str, Any]:
        return completion_of(answer, created=int(self._clock()))

    def events(self, asked: Json) -> MessageStreamAsChat:
        return MessageStreamAsChat(created=int(self._clock()))


def unsupported(
    field: str, why: str = "the API of the model that answers this cannot express it"
) -> RequestError:
    return RequestError(f"{field}: {why}.", param=field, code="unsupported_parameter")


def _refused(body: Json) -> Iterator[str]:
    """The fields that Anthropic has nothing for, and that would change the answer."""
    if (body.get("n") or 1) > 1:
        yield "n"
    for name in _REFUSED:
        if body.get(name):
            yield name
    if "audio" in (body.get("modalities") or ()):
        yield "modalities"
    if body.get("function_call") not in (None, "auto", "none"):
        yield "function_call"
    for i, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") != "function":
            yield f"tools[{i}].type"


def _schema(wanted: Json) -> dict[str, Any] | None:
    """Of Anthropic's structured output, which takes the same schemas."""
    match wanted.get("type"):
        case None | "text":
            return None
        case "json_schema":
            schema = (wanted.get("json_schema") or {}).get("schema")
            if not isinstance(schema, dict):
                raise unsupported("response_format.json_schema.schema", "expected a JSON schema")
            return schema
        case _:
            raise unsupported("response_format.type")


def _stop_sequences(stop: str | list[str]) -> list[str]:
    sequences = [stop] if isinstance(stop, str) else stop
    for i, sequence in enumerate(sequences):
        if not sequence.strip():
            raise unsupported(
                "stop" if isinstance(stop, str) else f"stop[{i}]",
                "the API of the model that answers this takes no stop sequence of white space alone",
            )
    return list(sequences)


def _tools(body: Json) -> dict[str, Any]:
    if not body.get("tools"):
        return {}
    said: dict[str, Any] = {"tools": [_tool(tool) for tool in body["tools"]]}
    choice = body.get("tool_choice")
    match choice:
        case None | "auto":
            chosen: dict[str, Any] = {"type": "auto"}
        case "none":
            return {**said, "tool_choice": {"type": "none"}}
        case "required":
            chosen = {"type": "any"}
        case {"type": "function", "function": {"name": str(name)}}:
            chosen = {"type": "tool", "name": name}
        case _:
            raise unsupported("tool_choice")
    if body.get("parallel_tool_calls") is False:
        return {**said, "tool_choice": {**chosen, "disable_parallel_tool_use": True}}
    return said if choice is None else {**said, "tool_choice": chosen}


def _tool(tool: Json) -> dict[str, Any]:
    function = tool.get("function") or {}
    schema = {"type": "object", **(function.get("parameters") or {"properties": {}})}
    said = {"name": function.get("name"), "input_schema": schema}
    said |= {name: function[name] for name in ("description", "strict") if function.get(name)}
    return said | ({"cache_control": tool["cache_control"]} if tool.get("cache_control") else {})


def _room_to_think(body: Json, asked: Json) -> dict[str, Any]:
    """`max_tokens`, and thinking for a `reasoning_effort`: an effort for the models that think adaptively,
    a budget (`BUDGET_TOKENS`) for older ones. No thinking where Anthropic refuses it: with a tool that must
    be called, a last message of the assistant's, calls whose thinking the client did not send back, or a
    limit that leaves no room."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    said: dict[str, Any] = {"max_tokens": limit or DEFAULT_MAX_TOKENS}
    effort = body.get("reasoning_effort")
    if effort not in BUDGET_TOKENS or "thinking" in body:
        return said
    can_think = _can_think(asked)
    if thinks_adaptively(str(body.get("model"))):
        level = "low" if effort == "minimal" else effort
        said["output_config"] = {"effort": level, **(asked.get("output_config") or {})}
        if can_think:
            # Without `display` the newer models leave the text of their thinking out.
            said["thinking"] = {"type": "adaptive", "display": "summarized"}
    elif can_think and (limit is None or limit > LEAST_BUDGET_TOKENS):
        budget = BUDGET_TOKENS[str(effort)]
        if limit is None:
            said["max_tokens"] += budget
        else:
            budget = min(budget, limit - 1)
        said["thinking"] = {"type": "enabled", "budget_tokens": budget}
    return said


def _can_think(asked: Json) -> bool:
    if (asked.get("tool_choice") or {}).get("type") in ("any", "tool"):
        return False
    messages: list[Json] = asked["messages"]
    if messages[-1]["role"] == "assistant":
        return False
    # Within one turn of calls and results, the calls must come with their thinking.
    if "tool_result" not in _types(messages[-1]):
        return True
    return any(not _types(message).isdisjoint(_THOUGHTS) for message in messages[-2:-1])


def _types(message: Json) -> set[str]:
    content = message["content"]
    return set() if isinstance(content, str) else {block["type"] for block in content}


def _sampling(body: Json, *, thinks: bool) -> dict[str, Any]:
    """Nothing for models that refuse it. With thinking `temperature` is 1 and `top_k` is refused; and of
    `temperature` and `top_p` newer models take one: the first, unless it is 1, which is the default."""
    if not takes_sampling(str(body.get("model"))):
        return {}
    said: dict[str, Any] = {}
    temperature, top_p = body.get("temperature"), body.get("top_p")
    if temperature is not None and not thinks:
        said["temperature"] = min(temperature, 1)
    if top_p is not None and top_p < 1 and not thinks and said.get("temperature", 1) == 1:
        said = {"top_p": top_p}
    if body.get("top_k") is not None and not thinks:
        said["top_k"] = body["top_k"]
    return said
