"""From a chat completion body to a job for an engine, or a refusal that names the field.

Field meanings: https://platform.openai.com/docs/api-reference/chat/create; top_k, min_p and
repetition_penalty are those of vLLM's and llama.cpp's servers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from backends.errors import InvalidCall
from backends.protocols import Sampling

MAX_STOPS = 4
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

# What a text engine cannot do. An empty, null or false value asks for nothing and passes.
_UNSUPPORTED = {
    "tools": "tools",
    "functions": "tools",
    "tool_choice": "tools",
    "function_call": "tools",
    "logprobs": "log-probabilities",
    "top_logprobs": "log-probabilities",
    "logit_bias": "logit bias",
    "audio": "audio",
    "prediction": "predicted outputs",
    "web_search_options": "web search",
}


def messages_of(body: Mapping[str, Any]) -> list[dict[str, str]]:
    """The conversation with plain text content. Raises InvalidCall."""
    messages = body.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise _invalid("messages", "expected a non-empty array of messages")
    return [_message(message, f"messages[{at}]") for at, message in enumerate(messages)]


def sampling_of(body: Mapping[str, Any]) -> Sampling:
    """How to sample. Raises InvalidCall."""
    tokens = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    top_k = _integer(body, "top_k", -1)
    penalty = _number(body, "repetition_penalty", 0, 10)
    if penalty == 0:
        raise _invalid("repetition_penalty", "expected a number above 0")
    top_p = _number(body, "top_p", 0, 1)
    if top_p == 0:
        raise _invalid("top_p", "expected a number above 0 and at most 1")
    return Sampling(
        max_tokens=_integer(body, tokens, 1),
        temperature=_number(body, "temperature", 0, 2),
        top_p=top_p,
        top_k=0 if top_k == -1 else top_k,
        min_p=_number(body, "min_p", 0, 1),
        seed=_integer(body, "seed", -(2**63)),
        frequency_penalty=_number(body, "frequency_penalty", -2, 2),
        presence_penalty=_number(body, "presence_penalty", -2, 2),
        repetition_penalty=penalty,
        stop=_stop(body.get("stop")),
    )


def refuse_unsupported(body: Mapping[str, Any]) -> None:
    """Raises InvalidCall for a field that asks for what a text engine does not do."""
    for field, what in _UNSUPPORTED.items():
        if body.get(field) and body[field] not in ("none", "auto"):
            raise _invalid(field, f"the built-in engine does not support {what}; leave it out")
    if body.get("n") not in (None, 1):
        raise _invalid("n", "the built-in engine gives one choice: expected 1")
    response_format = body.get("response_format")
    if response_format is not None and (
        not isinstance(response_format, Mapping) or response_format.get("type") != "text"
    ):
        raise _invalid("response_format", 'the built-in engine answers in text: expected {"type": "text"}')
    if body.get("modalities") not in (None, [], ["text"]):
        raise _invalid("modalities", 'the built-in engine answers in text: expected ["text"]')


def _message(message: object, path: str) -> dict[str, str]:
    if not isinstance(message, Mapping):
        raise _invalid(path, "expected an object")
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise _invalid(f"{path}.role", f"expected one of {', '.join(_ROLES)}")
    for field in ("tool_calls", "function_call", "audio"):
        if message.get(field):
            raise _invalid(f"{path}.{field}", "the built-in engine takes text only; leave it out")
    return {"role": _ROLES[role], "content": _text(message.get("content"), f"{path}.content")}


def _text(content: object, path: str) -> str:
    if isinstance(content, str):
        return _encodable(content, path)
    if not isinstance(content, Sequence):
        raise _invalid(path, "expected a string or an array of text parts")
    texts: list[str] = []
    for at, part in enumerate(content):
        if not isinstance(part, Mapping):
            raise _invalid(f"{path}[{at}]", "expected an object")
        if part.get("type") != "text":
            raise _invalid(f"{path}[{at}].type", 'the built-in engine takes text only: expected "text"')
        text = part.get("text")
        if not isinstance(text, str):
            raise _invalid(f"{path}[{at}].text", "expected a string")
        texts.append(_encodable(text, f"{path}[{at}].text"))
    return "".join(texts)


def _stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, Sequence) or len(stops) > MAX_STOPS:
        raise _invalid("stop", f"expected a string or an array of at most {MAX_STOPS} strings")
    for stop in stops:
        if not isinstance(stop, str) or not stop:
            raise _invalid("stop", "expected non-empty strings")
        _encodable(stop, "stop")
    return tuple(stops)


def _encodable(text: str, path: str) -> str:
    """`text`, unless it holds half of a surrogate pair, which no tokenizer and no UTF-8 takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _invalid(path, "expected valid Unicode") from None
    return text


def _number(body: Mapping[str, Any], field: str, least: float, most: float) -> float | None:
    value = body.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _invalid(field, "expected a number")
    if not least <= value <= most:
        raise _invalid(field, f"expected a number from {least:g} to {most:g}, not {value:g}")
    return float(value)


def _integer(body: Mapping[str, Any], field: str, least: int) -> int | None:
    value = body.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _invalid(field, "expected an integer")
    if not least <= value < 2**63:
        raise _invalid(field, f"expected an integer of at least {least}, not {value}")
    return value


def _invalid(param: str, message: str) -> InvalidCall:
    return InvalidCall(f"{param}: {message}", param=param)
