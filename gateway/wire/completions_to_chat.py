"""Completions answered by a backend that speaks chat completions: the prompt is the user's message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.errors import RequestError
from gateway.wire import chat
from gateway.wire.chat_stream import text_in
from gateway.wire.completions import one_text
from gateway.wire.dialect import Json
from policies.types import Api

DEFAULT_MAX_TOKENS = 16
"""What the completions API has where `max_tokens` is left out."""

_OWN_FIELDS = ("prompt", "suffix", "echo", "best_of", "logprobs", "stream_options")
_FINISHES = {"tool_calls": "stop", "function_call": "stop"}


class CompletionsToChat:
    source: Api = "completions"
    target: Api = "chat"

    def request(self, body: Json) -> dict[str, Any]:
        """One text is translated; what chat completions has no field for is an error."""
        prompt = one_text(body.get("prompt"))
        if prompt is None:
            raise refused("prompt", "this model takes one text, neither several prompts nor tokens")
        for name in ("suffix", "echo"):
            if body.get(name):
                raise refused(name, "this model only continues a prompt")
        if (body.get("best_of") or 1) > 1:
            raise refused("best_of", "this model cannot choose among several completions")
        if body.get("logprobs") is not None:
            raise refused("logprobs", "this model gives no log-probabilities of completions")
        if body.get("max_tokens") == 0:
            raise refused("max_tokens", "this model generates one token at least")
        translated = {name: value for name, value in body.items() if name not in _OWN_FIELDS}
        translated["messages"] = [{"role": "user", "content": prompt}]
        if translated.get("max_tokens") is None:
            translated["max_tokens"] = DEFAULT_MAX_TOKENS
        if body.get("stream"):
            translated["stream_options"] = {"include_usage": True}
        chat.check(translated)  # fields that completions does not have come unseen
        return translated

    def answer(self, answer: Json, asked: Json) -> dict[str, Any]:
        return _translated(answer)

    def events(self, asked: Json) -> _Events:
        return _Events()


class _Events:
    """Each chunk becomes one; of the first, which has a role alone, nothing is left."""

    def feed(self, event: Json) -> Iterator[dict[str, Any]]:
        chunk = _translated(event)
        chunk["choices"] = [
            choice for choice in chunk["choices"] if choice["text"] or choice["finish_reason"]
        ]
        if chunk["choices"] or chunk.get("usage") is not None:
            yield chunk

    def end(self) -> Iterator[dict[str, Any]]:
        yield from ()


def refused(field: str, why: str) -> RequestError:
    """For a field that the API has and the backend's cannot express."""
    return RequestError(f"{field}: {why}.", param=field, code="unsupported_parameter")


def _translated(body: Json) -> dict[str, Any]:
    translated = {name: value for name, value in body.items() if name != "choices"}
    translated["id"] = str(body.get("id") or "").replace("chatcmpl-", "cmpl-")
    translated["object"] = "text_completion"
    translated["choices"] = [_choice(choice) for choice in body.get("choices") or ()]
    return translated


def _choice(choice: Json) -> dict[str, Any]:
    said = choice.get("delta") or choice.get("message") or {}
    finish = choice.get("finish_reason") or None  # "" is what some servers write before the end
    return {
        "index": choice.get("index", 0),
        "text": text_in(said.get("content")) or said.get("refusal") or "",
        "logprobs": None,
        "finish_reason": _FINISHES.get(finish, finish) if finish else None,
    }
