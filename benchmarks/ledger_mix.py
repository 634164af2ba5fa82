"""The mix of the ledger's benchmark: what clients do, one scene after the other, from a seed.

A scene is some requests that belong together: a question and its repetitions, five equal ones at once, a
retry, a failure, a client that leaves. Scenes run at the same time; their questions differ, so that what one
does is the same however the others go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from benchmarks.ledger_client import KEYS, Ask, Client
from benchmarks.ledger_questions import Api, Ending, Question

TOGETHER = 5
_APIS: dict[Api, int] = {"chat": 9, "messages": 4, "responses": 3, "completions": 3}
_TARGETS = {
    ("auto", "small"): 5,
    ("auto", "large"): 4,
    ("auto", ""): 2,
    ("mixed", "small"): 2,
    ("mixed", "large"): 2,
    ("small", ""): 2,
    ("large", ""): 1,
    ("plain", ""): 2,
    ("claude", ""): 2,
}
"""Models and pins, and how often each is asked."""
_PASSING = (("503",), ("503", "503"), ("429",), ("cut",), ("429", "503"))
"""How attempts fail at first, where one more is made."""
_FINAL = (("400",), ("500",), ("429far",), ("503", "503", "503"), ("503", "400"), ("cut", "cut", "cut"))
"""How they fail for good."""
_UNCACHED = ("no-cache", "no-store", "temperature")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """`requests` is how many it sends."""

    name: str
    requests: int
    play: Callable[[Client], Coroutine[Any, Any, None]]


class Mix:
    """Makes scenes. `first_id` is the number of its first question."""

    def __init__(self, seed: int, first_id: int = 1) -> None:
        self._random = Random(seed)
        self._id = first_id - 1

    def scenes(self, requests: int) -> Iterator[Scene]:
        """Scenes that send so many requests together, exactly."""
        makers = {
            self._repeated: 26,
            self._together: 8,
            self._together_and_left: 3,
            self._retried: 5,
            self._failed: 6,
            self._broken: 6,
            self._left_before: 6,
            self._left_midway: 8,
            self._fell_back: 6,
            self._uncached: 8,
            self._embedded: 6,
            self._refused: 4,
        }
        left = requests
        while left > 0:
            (make,) = self._random.choices(list(makers), list(makers.values()))
            scene = make()
            if scene.requests > left:
                scene = _one("single", self._ask())
            left -= scene.requests
            yield scene

    def _repeated(self) -> Scene:
        first = self._ask()
        again = [self._same(first) for _ in range(self._random.randrange(4))]
        asks = [first, *again]
        if self._random.random() < 0.2:  # another tenant's: never an answer of the first one's
            asks.append(replace(first, key="lab" if first.key != "lab" else "web"))
        return _in_turn("repeated", asks)

    def _together(self) -> Scene:
        first = self._ask()
        asks = [first, *(self._same(first) for _ in range(TOGETHER - 1))]

        async def play(client: Client) -> None:
            async with asyncio.TaskGroup() as group:
                for ask in asks:
                    group.create_task(client.ask(ask))

        return Scene(name="together", requests=TOGETHER, play=play)

    def _together_and_left(self) -> Scene:
        """All follow one stream; one leaves, and the others get the rest of it."""
        stays = replace(self._ask(then="pause"), stream=True)
        leaver = replace(self._same(stays), stream=True, leaves="midway")
        others = [replace(self._same(stays), stream=True) for _ in range(TOGETHER - 2)]
        asks = [stays, leaver, *others]
        self._random.shuffle(asks)

        async def play(client: Client) -> None:
            all_follow = asyncio.Barrier(TOGETHER)

            async def ask_one(ask: Ask) -> None:
                await client.ask(ask, all_follow)
                if ask is leaver:
                    await client.go_on(ask.question)

            async with asyncio.TaskGroup() as group:
                for ask in asks:
                    group.create_task(ask_one(ask))

        return Scene(name="together and left", requests=TOGETHER, play=play)

    def _retried(self) -> Scene:
        return _in_turn(
            "retried", [first := self._ask(first=self._random.choice(_PASSING)), self._same(first)]
        )

    def _failed(self) -> Scene:
        direct = [target for target in _TARGETS if target[0] in ("small", "large", "plain", "claude")]
        return _one(
            "failed", self._ask(first=self._random.choice(_FINAL), target=self._random.choice(direct))
        )

    def _broken(self) -> Scene:
        ask = self._ask(then=self._random.choice(("die", "error")))
        return _one("broken", replace(ask, stream=True, uncached=self._maybe_uncached()))

    def _left_before(self) -> Scene:
        first = self._random.choice(((), (), ("503",), ("429",)))
        ask = self._ask(first=first, then="hold")
        return _one("left before", replace(ask, leaves="before", uncached=self._maybe_uncached()))

    def _left_midway(self) -> Scene:
        ask = self._ask(then="stall")
        return _one(
            "left midway", replace(ask, stream=True, leaves="midway", uncached=self._maybe_uncached())
        )

    def _fell_back(self) -> Scene:
        """The small model fails for good, and the large one answers; or begins to."""
        endings: tuple[Ending, ...] = ("ok", "ok", "error", "stall")
        then = self._random.choice(endings)
        target = self._random.choice((("auto", "small"), ("mixed", "small")))
        ask = self._ask(first=self._random.choice((("500",), ("503", "500"))), then=then, target=target)
        if then == "ok":
            return _in_turn("fell back", [ask, self._same(ask)])
        return _one("fell back", replace(ask, stream=True, leaves="midway" if then == "stall" else ""))

    def _uncached(self) -> Scene:
        ask = replace(self._ask(), uncached=self._random.choice(_UNCACHED))
        return _in_turn("uncached", [ask, ask])

    def _embedded(self) -> Scene:
        ask = Ask(question=self._question(), api="embeddings", model="vectors", key=self._key())
        return _in_turn("embedded", [ask] * self._random.randrange(1, 4))

    def _refused(self) -> Scene:
        """By the gateway itself: nothing goes upstream."""
        ask = self._ask()
        faults = (
            replace(ask, body=b"{"),
            replace(ask, body=b'{"model": 5}'),
            replace(ask, model="unheard-of", pin=""),
            replace(ask, key="lg-not-a-key"),
            replace(ask, pin="middling"),
            replace(ask, uncached="only-if-cached"),
        )
        return _one("refused", self._random.choice(faults))

    def _ask(
        self,
        *,
        first: tuple[str, ...] = (),
        then: Ending = "ok",
        target: tuple[str, str] | None = None,
    ) -> Ask:
        (api,) = self._random.choices(list(_APIS), list(_APIS.values()))
        if target is None:
            (target,) = self._random.choices(list(_TARGETS), list(_TARGETS.values()))
        return Ask(
            question=self._question(first=first, then=then),
            api=api,
            model=target[0],
            pin=target[1],
            key=self._key(),
            stream=self._random.random() < 0.5,
            include_usage=self._random.random() < 0.5,
        )

    def _same(self, ask: Ask) -> Ask:
        """The same question of the same tenant, asked in another way perhaps."""
        key = ask.key if ask.key == "lab" else self._random.choice(("web", "app"))
        stream, usage = self._random.random() < 0.5, self._random.random() < 0.5
        return replace(ask, key=key, stream=stream, include_usage=usage)

    def _question(self, *, first: tuple[str, ...] = (), then: Ending = "ok") -> Question:
        self._id += 1
        parts = self._random.randrange(3, 10)
        at = self._random.randrange(1, parts) if then not in ("ok", "hold") else 0
        return Question(id=self._id, parts=parts, first=first, then=then, at=at)

    def _key(self) -> str:
        return self._random.choice(list(KEYS))

    def _maybe_uncached(self) -> str:
        return self._random.choice(("", "", *_UNCACHED))


def _one(name: str, ask: Ask) -> Scene:
    return _in_turn(name, [ask])


def _in_turn(name: str, asks: list[Ask]) -> Scene:
    async def play(client: Client) -> None:
        for ask in asks:
            await client.ask(ask)

    return Scene(name=name, requests=len(asks), play=play)
