"""OpenAI's (legacy) completions: a prompt and the text that follows it.

Field types and ranges: https://platform.openai.com/docs/api-reference/completions/create
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.ids import random_hex
from gateway.wire import chat_stream
from gateway.wire.chat_deltas import merged_logprobs, put
from gateway.wire.dialect import Asked, Json
from gateway.wire.openai_wire import OpenAIWire
from gateway.wire.pieces import pieces
from gateway.wire.validation import checked, field_error
from policies.types import Api, Usage

_Penalty = Annotated[float, Meta(ge=-2, le=2)]


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _Fields(Struct):
    """The fields whose type we know. Others pass unseen and are kept."""

    model: Annotated[str, Meta(min_length=1)]
    prompt: str | Annotated[list[str | int | list[int]], Meta(min_length=1)] | None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    suffix: str | None = None
    echo: bool | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=128)] | None = None
    logprobs: Annotated[int, Meta(ge=0)] | None = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop: str | list[str] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    seed: int | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None


class CompletionsDialect(OpenAIWire):
    """`POST /v1/completions`; an answer and each event of a stream are `text_completion` objects."""

    api: Api = "completions"
    end = chat_stream.DONE

    def check(self, body: dict[str, Any]) -> Asked:
        fields = checked(body, _Fields)
        if isinstance(fields.prompt, list):
            kind = type(fields.prompt[0])
            for i, prompt in enumerate(fields.prompt):
                if type(prompt) is not kind:
                    raise field_error(f"prompt[{i}]", "expected all texts, all tokens or all lists of tokens")
        if fields.best_of is not None and fields.best_of < (fields.n or 1):
            raise field_error("best_of", f"expected at least n ({fields.n or 1}), got {fields.best_of}")
        return Asked(
            model=fields.model,
            stream=bool(fields.stream),
            include_usage=bool(fields.stream_options and fields.stream_options.include_usage),
        )

    def chat_view(self, body: Json) -> Json:
        """One prompt is the user's message. Several, tokens, or an echo of the prompt (which would be another
        question's) carry a part that is not text: such requests are not answered by similarity."""
        view = {name: body[name] for name in ("model", "n", "max_tokens") if name in body}
        if isinstance(body.get("response_format"), Mapping):  # vLLM's
            view["response_format"] = body["response_format"]
        if body.get("logprobs") is not None:
            view["logprobs"] = True
        prompt = one_text(body.get("prompt"))
        parts = prompt if prompt is not None and not body.get("echo") else list(_parts(body.get("prompt")))
        return {**view, "messages": [{"role": "user", "content": parts}]}

    def without_question(self, body: Json) -> Json:
        return {name: value for name, value in body.items() if name != "prompt"}

    def assembler(self) -> CompletionAssembler:
        return CompletionAssembler()

    def usage(self, answer: Json) -> Usage | None:
        return chat_stream.usage_of(answer)

    def why_not_stored(self, answer: Json) -> str:
        choices = answer.get("choices") or ()
        if not choices:
            return "the answer has no choices"
        for choice in choices:
            reason = choice.get("finish_reason")
            if reason != "stop":
                return f"the answer ended with {reason or 'no finish reason'}"
            if not (choice.get("text") or "").strip():
                return "the answer is empty"
        return ""

    def renewed(self, answer: Json, *, model: str, now: float) -> dict[str, Any]:
        return {**answer, "id": f"cmpl-{random_hex()}", "created": int(now), "model": model}

    def events(self, answer: Json, *, include_usage: bool) -> Iterator[dict[str, Any]]:
        head = {name: value for name, value in answer.items() if name not in ("choices", "usage")}
        for index, choice in chat_stream.indexed(answer.get("choices")):
            for text in pieces(choice.get("text") or ""):
                piece = {"index": index, "text": text, "logprobs": None, "finish_reason": None}
                yield {**head, "choices": [piece]}
            # Log-probabilities, and what is unknown to us, in one piece.
            yield {**head, "choices": [{**choice, "index": index, "text": ""}]}
        if include_usage and answer.get("usage") is not None:
            yield {**head, "choices": [], "usage": answer["usage"]}


class CompletionAssembler:
    """Puts the chunks of a stream together: texts and log-probabilities are joined, choice by choice; the
    rest is kept as last seen. A whole answer stands for itself."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def add(self, event: Json) -> None:
        for name, value in event.items():
            if name not in ("choices", "obfuscation"):
                put(self._head, name, value)
        for index, piece in chat_stream.indexed(event.get("choices")):
            choice = self._choices.setdefault(
                index, {"index": index, "text": "", "logprobs": None, "finish_reason": None}
            )
            for name, value in piece.items():
                if name == "text":
                    choice["text"] += value or ""
                elif name == "logprobs" and isinstance(value, Mapping) and choice.get("logprobs"):
                    choice["logprobs"] = merged_logprobs(choice["logprobs"], value)
                elif name != "index":
                    put(choice, name, value)

    def answer(self) -> dict[str, Any]:
        choices = [self._choices[index] for index in sorted(self._choices)]
        head = {name: value for name, value in self._head.items() if name != "usage" or value is not None}
        return {**head, "choices": choices}


def one_text(prompt: Any) -> str | None:
    """The prompt when it is one text, alone or in a list of its own, as some clients send it."""
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    return prompt if isinstance(prompt, str) else None


def _parts(prompt: Any) -> Iterator[dict[str, Any]]:
    """Texts as text, for the router to read; tokens written out, so that their number shows."""
    prompts = prompt if isinstance(prompt, list) else [prompt or ""]
    if prompts and isinstance(prompts[0], int):
        prompts = [prompts]
    for one in prompts:
        if isinstance(one, str):
            yield {"type": "text", "text": one}
        else:
            yield {"type": "tokens", "text": " ".join(map(str, one))}
    yield {"type": "prompt"}
