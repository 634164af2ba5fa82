"""OpenAI's embeddings: texts in, one vector each out.

Field types and ranges: https://platform.openai.com/docs/api-reference/embeddings/create
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from gateway.ids import random_hex
from gateway.wire import chat_stream
from gateway.wire.dialect import Asked, Json
from gateway.wire.openai_wire import OpenAIWire
from gateway.wire.validation import checked, field_error
from policies.types import Api, Usage

MAX_INPUTS = 2048
"""Texts in one request: OpenAI's own limit."""

EncodingFormat = Literal["float", "base64"]


class _Fields(Struct):
    """The fields whose type we know. Others pass unseen and are kept."""

    model: Annotated[str, Meta(min_length=1)]
    input: str | Annotated[list[str | int | list[int]], Meta(min_length=1)]
    encoding_format: EncodingFormat | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None
    stream: bool | None = None


class EmbeddingsDialect(OpenAIWire):
    """`POST /v1/embeddings`. An answer is never streamed; as an event it is one, whole."""

    api: Api = "embeddings"
    end = b""

    def check(self, body: dict[str, Any]) -> Asked:
        fields = checked(body, _Fields, choices={"encoding_format": get_args(EncodingFormat)})
        if isinstance(fields.input, list):
            kind = type(fields.input[0])
            for i, text in enumerate(fields.input):
                if type(text) is not kind:
                    raise field_error(f"input[{i}]", "expected all texts, all tokens or all lists of tokens")
        if fields.stream:
            raise field_error("stream", "expected false: embeddings are not streamed")
        return Asked(model=fields.model, include_usage=True)

    def chat_view(self, body: Json) -> Json:
        """The texts, and a part that is not text: a near question has a vector of its own, so embeddings are
        never answered by similarity."""
        given = body.get("input")
        texts = [given] if isinstance(given, str) else given or ()
        parts = [{"type": "text", "text": text} for text in texts if isinstance(text, str)]
        return {
            "model": body.get("model"),
            "messages": [{"role": "user", "content": [*parts, {"type": "input"}]}],
        }

    def without_question(self, body: Json) -> Json:
        return {name: value for name, value in body.items() if name != "input"}

    def assembler(self) -> WholeAnswer:
        return WholeAnswer()

    def usage(self, answer: Json) -> Usage | None:
        return chat_stream.usage_of(answer)

    def why_not_stored(self, answer: Json) -> str:
        return "" if answer.get("data") else "the answer has no embeddings"

    def renewed(self, answer: Json, *, model: str, now: float) -> dict[str, Any]:
        """OpenAI's answers have no id and no time; some servers' have."""
        fresh = {"id": f"embd-{random_hex()}", "created": int(now)}
        return {**answer, **{name: fresh[name] for name in fresh if name in answer}, "model": model}

    def events(self, answer: Json, *, include_usage: bool) -> Iterator[dict[str, Any]]:
        yield dict(answer)


class WholeAnswer:
    """The assembler of an API without streams: the one object that came is the answer."""

    def __init__(self) -> None:
        self._answer: dict[str, Any] = {}

    def add(self, event: Json) -> None:
        self._answer = dict(event)

    def answer(self) -> dict[str, Any]:
        return self._answer


def texts_of(body: Json) -> list[str]:
    """The texts of a checked request, at most MAX_INPUTS. Raises RequestError (400) for tokens, which are of
    another model's vocabulary, and for empty texts."""
    given = body["input"]
    texts = [given] if isinstance(given, str) else list(given)
    if len(texts) > MAX_INPUTS:
        raise field_error("input", f"expected at most {MAX_INPUTS} texts, got {len(texts)}")
    for i, text in enumerate(texts):
        field = "input" if isinstance(given, str) else f"input[{i}]"
        if not isinstance(text, str):
            raise field_error("input", "expected texts: this model does not take tokens")
        if not text:
            raise field_error(field, "expected a text that is not empty")
    return texts


def embedding_answer(
    vectors: npt.NDArray[np.float32],
    token_counts: Sequence[int],
    *,
    model: str,
    encoding_format: EncodingFormat = "float",
) -> dict[str, Any]:
    """The answer for N texts. `vectors` has shape (N, D), `token_counts` length N; base64 is of little-endian
    float32."""
    rows = np.ascontiguousarray(vectors, dtype="<f4")
    encoded: list[Any] = (
        [base64.b64encode(row.tobytes()).decode("ascii") for row in rows]
        if encoding_format == "base64"
        else rows.tolist()
    )
    count = sum(token_counts)
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": i, "embedding": one} for i, one in enumerate(encoded)],
        "model": model,
        "usage": {"prompt_tokens": count, "total_tokens": count},
    }
