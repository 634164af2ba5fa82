"""How much a store may hold, and what an entry is worth of it."""

from __future__ import annotations

from dataclasses import dataclass

from embeddings.entry_record import EntryRecord
from embeddings.protocols import StoreError
from policies.eviction import EntryWorth, EvictionPolicy, GreedyDual

MAX_BYTES = 4_000_000_000
EVICTION = GreedyDual()


@dataclass(frozen=True, slots=True)
class Capacity:
    """`max_bytes` counts `stored_bytes`. Raises ValueError when either is less than 1."""

    max_entries: int
    max_bytes: int = MAX_BYTES
    eviction: EvictionPolicy = EVICTION

    def __post_init__(self) -> None:
        for name in ("max_entries", "max_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    def check(self, record: EntryRecord) -> None:
        """Raises StoreError when the entry alone is more than may be held."""
        if record.stored_bytes > self.max_bytes:
            raise StoreError(
                f"the entry cannot be stored: it alone takes {record.stored_bytes} bytes, the cache may hold "
                f"{self.max_bytes}"
            )

    def is_exceeded(self, entries: int, stored_bytes: int) -> bool:
        return entries > self.max_entries or stored_bytes > self.max_bytes

    def density(
        self, cost_usd: float, prompt_tokens: int, completion_tokens: int, stored_bytes: int
    ) -> float:
        """What an entry saves for its room, by the policy."""
        return self.eviction.density(
            EntryWorth(
                cost_usd=cost_usd,
                prompt_tokens=prompt_tokens,
                completion_tokens=completion_tokens,
                room=stored_bytes / self.max_bytes + 1 / self.max_entries,
            )
        )

    def density_of(self, record: EntryRecord) -> float:
        return self.density(
            record.cost_usd, record.prompt_tokens, record.completion_tokens, record.stored_bytes
        )
