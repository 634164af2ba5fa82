"""Which entries a full cache keeps: those that save most for the room they take."""

from __future__ import annotations

from typing import Protocol

import msgspec

NOMINAL_USD_PER_TOKEN = 1e-6
"""What a token of an answer that cost nothing in money is taken to be worth: it still took work and time."""
COMPLETION_WEIGHT = 4
"""Tokens of the prompt that are as dear as one of the completion, where there is no price: as in most price
lists, where output costs three to five times as much as input."""


class EntryWorth(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry saves each time it is served, and the share of the capacity that it takes: its bytes of
    the most there may be, plus one of the most entries."""

    cost_usd: float
    prompt_tokens: int
    completion_tokens: int
    room: float


class EvictionPolicy(Protocol):
    """Gives entries a priority; who has the lowest leaves first, the older of two alike. The store keeps
    `clock`, the highest priority that was evicted so far: what is stored or served later stands above it, so
    an entry that was once worth much leaves in the end if nobody asks for it."""

    def density(self, worth: EntryWorth) -> float:
        """What an entry saves for its room; kept with it."""
        ...

    def priority(self, clock: float, density: float, hits: int) -> float:
        """When an entry is stored (`hits` 0) or has been served `hits` times by now."""
        ...


class GreedyDual:
    """Greedy-dual-size-frequency (Cherkasova, "Improving WWW Proxies Performance with
    Greedy-Dual-Size-Frequency Caching Policy", HP Labs 98-69R1, 1998): value x frequency / size, aged by the
    clock."""

    def density(self, worth: EntryWorth) -> float:
        tokens = worth.prompt_tokens + COMPLETION_WEIGHT * worth.completion_tokens
        saved_usd = max(worth.cost_usd, NOMINAL_USD_PER_TOKEN * tokens)
        return saved_usd / worth.room

    def priority(self, clock: float, density: float, hits: int) -> float:
        return clock + density * (1 + hits)
