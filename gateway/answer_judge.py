"""Whether two answers to a question agree: cheaply where that can be told, by a model where not."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import numpy as np

from embeddings.protocols import EncodedText
from gateway.catalog import Catalog, Model
from gateway.generating import ClientContext
from gateway.generation import Generation
from gateway.ids import random_hex
from gateway.lookup import Lookup
from gateway.trace import Trace
from policies.answer_comparison import compare
from policies.requirements import spoken_texts
from policies.types import Generate, Query, Request

Ask = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Generates the answer to a chat completion body. Raises RequestError."""
Embed = Callable[[str], Awaitable[EncodedText]]

MEASURED_FOR: Final = "multilingual-e5-small"
"""What the spaces begin with in which `policies.answer_comparison` knows what a cosine means."""
_LONGEST: Final = 20_000  # characters of an answer that is embedded or shown to a model
_PROMPT: Final = """\
Two assistants answered the same request. Would a user be equally well served by either answer? They must
agree on every fact, number, name, instruction and conclusion that the request is about; wording, order,
length and style do not matter.

REQUEST:
{asked}

ANSWER 1:
{kept}

ANSWER 2:
{fresh}

Reply with one word: SAME or DIFFERENT."""
_SAID: Final = re.compile(r"\b(same|different)\b", re.IGNORECASE)


class AnswerJudge:
    """`embed` gives vectors in `space`; those of another embedder than MEASURED_FOR are not compared. `ask`
    asks the model that judges; None: what is left open stays open."""

    def __init__(self, embed: Embed | None, space: str | None, ask: Ask | None = None) -> None:
        self._embed = embed if space is not None and space.startswith(MEASURED_FOR) else None
        self._ask = ask

    async def agree(self, asked: str, fresh: Mapping[str, Any], kept: Mapping[str, Any]) -> bool | None:
        """Whether two answers of one API say the same; None when that cannot be told. Raises EmbedderError
        and RequestError."""
        first, second = ("\n".join(spoken_texts(answer)) for answer in (fresh, kept))
        found = compare(first, second, None)
        if found is None:
            found = compare(first, second, await self._cosine(first, second))
        if found is None and self._ask is not None:
            found = _read(await self._ask(_question(asked, first, second)))
        return found

    async def _cosine(self, a: str, b: str) -> float | None:
        if self._embed is None or max(len(a), len(b)) > _LONGEST:
            return None
        first, second = await self._embed(a), await self._embed(b)
        if first.truncated or second.truncated:
            return None
        return float(np.dot(first.vector, second.vector))


def asked_of(catalog: Catalog, generation: Generation, model: str) -> Ask:
    """Asks a model of the catalog, with the backend's own credential."""

    async def ask(body: Mapping[str, Any]) -> Mapping[str, Any]:
        target = catalog.find(model)
        assert isinstance(target, Model)  # the settings name one
        request = Request(api="chat", model=model, body={**body, "model": model}, tenant="")
        trace = Trace(request_id=f"judge_{random_hex()}", asked_model=model)
        decision = Generate(cache="bypass", reason="a judgement", ttl_s=0.0)
        query = Query(text="", vector=None, space=None)
        lookup = Lookup(decision=decision, query=query, chat=body)
        return await generation.ask(request, lookup, [target], ClientContext(), trace)

    return ask


def _question(asked: str, fresh: str, kept: str) -> dict[str, Any]:
    content = _PROMPT.format(asked=asked[:_LONGEST], kept=kept[:_LONGEST], fresh=fresh[:_LONGEST])
    return {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 200}


def _read(answer: Mapping[str, Any]) -> bool | None:
    """What the model's last word on it was."""
    said = _SAID.findall("\n".join(spoken_texts(answer)))
    return said[-1].lower() == "same" if said else None
