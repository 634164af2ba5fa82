"""What the upstream of the ledger's benchmark is asked: questions that say themselves how they are answered.

A question's text holds its terms between double brackets, `[[id=17 parts=5 first=503.503 then=ok at=0]]`,
so that the upstream knows from the request alone what to do, and how many tokens it counts for it. Money is
whole pico-USD (1e-12 USD), as the ledger has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

Api = Literal["chat", "messages", "responses", "completions", "embeddings"]
PATHS: dict[Api, str] = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
}
Ending = Literal["ok", "hold", "die", "error", "stall", "pause"]
"""After the failures that come first: answer; wait for the client to leave and answer nothing; or, in a
stream after `at` words, break off, send an error, wait for the client to leave, or wait to be told to go
on."""
_TERMS = re.compile(rb"\[\[id=(\d+) parts=(\d+) first=([\w.]*) then=(\w+) at=(\d+)\]\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """`prompt` holds `cached` and `written`, as OpenAI counts."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    written: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            prompt=self.prompt + other.prompt,
            completion=self.completion + other.completion,
            cached=self.cached + other.cached,
            written=self.written + other.written,
        )


NO_TOKENS = Tokens()


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Prices are pico-USD for one token, which is micro-USD for a million."""

    backend: str
    upstream_name: str
    input: int
    output: int
    cached: int
    written: int

    def picousd(self, tokens: Tokens) -> int:
        plain = tokens.prompt - tokens.cached - tokens.written
        return (
            plain * self.input
            + tokens.cached * self.cached
            + tokens.written * self.written
            + tokens.completion * self.output
        )


MODELS = {
    # The prices have all the decimals that a price may have: sums of floats would show.
    "small": Model(
        backend="fleet",
        upstream_name="fleet-8b",
        input=137_513,
        output=611_027,
        cached=13_751,
        written=171_893,
    ),
    "large": Model(
        backend="openai",
        upstream_name="large-400b",
        input=2_500_003,
        output=10_000_019,
        cached=250_007,
        written=3_125_011,
    ),
    "claude": Model(
        backend="claude",
        upstream_name="claude-like",
        input=3_000_017,
        output=15_000_029,
        cached=300_007,
        written=3_750_019,
    ),
    "plain": Model(
        backend="plain",
        upstream_name="plain-13b",
        input=203_381,
        output=811_057,
        cached=101_693,
        written=203_381,
    ),
    "vectors": Model(
        backend="fleet", upstream_name="vectors-1", input=20_011, output=0, cached=20_011, written=20_011
    ),
}
ROUTES = {"auto": ("small", "large"), "mixed": ("plain", "claude")}
"""The small and the large model of each; the large one answers when the small one fails."""
BY_UPSTREAM_NAME = {model.upstream_name: model for model in MODELS.values()}


def reference(asked_model: str) -> Model:
    """Who would answer without a gateway that routes."""
    return MODELS[ROUTES[asked_model][1] if asked_model in ROUTES else asked_model]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`parts` is how many words the answer has, `first` how the first attempts at it fail, in order: a
    status, `429` with a short and `429far` with a long `retry-after`, or `cut` in the middle of a whole
    answer."""

    id: int
    parts: int
    first: tuple[str, ...] = ()
    then: Ending = "ok"
    at: int = 0

    @property
    def text(self) -> str:
        first = ".".join(self.first)
        return f"[[id={self.id} parts={self.parts} first={first} then={self.then} at={self.at}]] What now?"

    @property
    def whole(self) -> Tokens:
        """What a whole answer takes: one token more than its words, for its end."""
        told = self.told(self.parts)
        return told + Tokens(completion=1)

    def told(self, pieces: int) -> Tokens:
        """What a stream has told of after so many words."""
        prompt = 40 + self.id * 37 % 400
        return Tokens(
            prompt=prompt,
            completion=pieces * (1 + self.id % 3),
            cached=prompt // 2 if self.id % 4 == 0 else 0,
            written=prompt // 3 if self.id % 8 in (4, 5) else 0,
        )

    @property
    def vectors(self) -> Tokens:
        """What embedding it takes."""
        return Tokens(prompt=self.told(0).prompt)


def question_in(body: bytes) -> Question:
    """Raises ValueError for a request that holds none."""
    found = _TERMS.search(body)
    if found is None:
        raise ValueError("the request holds no question")
    number, parts, first, then, at = found.groups()
    ending = next(name for name in get_args(Ending) if name == then.decode())
    return Question(
        id=int(number),
        parts=int(parts),
        first=tuple(first.decode().split(".")) if first else (),
        then=ending,
        at=int(at),
    )


def word(number: int) -> str:
    """The words of every answer, in order."""
    return f"word{number} "
