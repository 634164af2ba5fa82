"""A row of the ledger: what it is summed by, what it sums, and how many rows there may be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Literal, NamedTuple, Self

PICO = 10**12
"""Money is summed as whole pico-USD (1e-12 USD): a price in USD per million tokens with up to six decimals is
a whole number of them per token, so sums are exact and come out the same in any order."""
MICRO = 10**6
MAX_ROWS_A_DAY = 10_000
MAX_ROWS_OF_A_TENANT = 1_000
MAX_TENANTS_A_DAY = 10_000
MAX_NAME_CHARACTERS = 120
OTHER = "other"
HITS = ("hit-exact", "hit-semantic")

Dimension = Literal["day", "tenant", "key", "route", "model", "api", "cache"]


class LedgerKey(NamedTuple):
    """`day` is a UTC day, YYYY-MM-DD. The others are as in the request's trace; "" where there was none.
    `key` is the name of a key of the config."""

    day: str
    tenant: str
    key: str
    route: str
    model: str
    api: str
    cache: str


@dataclass(slots=True)
class Sums:
    """Whole numbers, all of them. `errors` have a status of 400 or more, or broke off in the middle of a
    stream; 499 (the client left) is none, but `cancelled`. `upstream_calls` counts attempts, `estimated` the
    generations whose tokens are a guess. Tokens up to `cache_write_tokens` were generated; `saved_tokens`
    were served instead of generated. The last three are pico-USD."""

    requests: int = 0
    errors: int = 0
    cancelled: int = 0
    generations: int = 0
    upstream_calls: int = 0
    estimated: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    saved_tokens: int = 0
    embed_us: int = 0
    verify_us: int = 0
    cost_picousd: int = 0
    without_picousd: int = 0
    overhead_picousd: int = 0

    def add(self, other: Sums) -> None:
        for name in SUM_NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def values(self) -> tuple[int, ...]:
        """In the order of SUM_NAMES."""
        return tuple(getattr(self, name) for name in SUM_NAMES)


SUM_NAMES = tuple(column.name for column in fields(Sums))


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """What belongs to one value of a dimension. `hits` are the requests answered from the cache."""

    name: str
    hits: int
    sums: Sums

    @classmethod
    def of(cls, dimension: Dimension, key: LedgerKey, sums: Sums) -> Self:
        hits = sums.requests if key.cache in HITS else 0
        return cls(name=getattr(key, dimension), hits=hits, sums=sums)

    @classmethod
    def total(cls, rows: Iterable[LedgerRow], name: str = "total") -> Self:
        hits, sums = 0, Sums()
        for row in rows:
            hits += row.hits
            sums.add(row.sums)
        return cls(name=name, hits=hits, sums=sums)

    @property
    def cost_usd(self) -> float:
        """What upstream calls cost."""
        return self.sums.cost_picousd / PICO

    @property
    def without_usd(self) -> float:
        """What the same requests would have cost without Lockgate."""
        return self.sums.without_picousd / PICO

    @property
    def overhead_usd(self) -> float:
        """What embedding and verifying cost."""
        return self.sums.overhead_picousd / PICO

    @property
    def saving_usd(self) -> float:
        """Net of embedding and verifying; negative when Lockgate cost more than it saved."""
        sums = self.sums
        return (sums.without_picousd - sums.cost_picousd - sums.overhead_picousd) / PICO


@dataclass(slots=True)
class _Day:
    keys: set[LedgerKey] = field(default_factory=set)
    rows_of: dict[str, int] = field(default_factory=dict)

    def add(self, key: LedgerKey) -> None:
        if key not in self.keys:
            self.keys.add(key)
            self.rows_of[key.tenant] = self.rows_of.get(key.tenant, 0) + 1


class RowLimit:
    """Keeps the rows of a day few: tenants and model names come from clients.

    Beyond a limit a tenant's further rows become one for each of its keys, all else being "other" there: what
    a key spent stays right. Only beyond MAX_TENANTS_A_DAY do further tenants become "other" themselves.
    """

    def __init__(
        self,
        max_rows: int = MAX_ROWS_A_DAY,
        max_rows_of_a_tenant: int = MAX_ROWS_OF_A_TENANT,
        max_tenants: int = MAX_TENANTS_A_DAY,
    ) -> None:
        self._max_rows = max_rows
        self._max_rows_of_a_tenant = max_rows_of_a_tenant
        self._max_tenants = max_tenants
        self._days: dict[str, _Day] = {}

    def know(self, keys: Iterable[LedgerKey]) -> None:
        """Rows that are there already."""
        for key in keys:
            self._day(key.day).add(key)

    def fold(self, key: LedgerKey) -> LedgerKey:
        """The row that a posting with `key` goes to."""
        day = self._day(key.day)
        if key in day.keys:
            return key
        key = LedgerKey(*map(_clean, key))
        if key in day.keys:
            return key
        if key.tenant not in day.rows_of and len(day.rows_of) >= self._max_tenants:
            key = key._replace(tenant=OTHER)
        if (
            len(day.keys) >= self._max_rows or day.rows_of.get(key.tenant, 0) >= self._max_rows_of_a_tenant
        ) and key not in day.keys:
            key = LedgerKey(key.day, key.tenant, key.key, OTHER, OTHER, OTHER, OTHER)
        day.add(key)
        return key

    def _day(self, name: str) -> _Day:
        day = self._days.get(name)
        if day is None:
            day = self._days[name] = _Day()
            while len(self._days) > 2:  # yesterday's last postings come after today's first
                del self._days[min(self._days)]
        return day


def _clean(name: str) -> str:
    """Short, and nothing in it that could move a terminal's cursor or that is not UTF-8."""
    name = name[:MAX_NAME_CHARACTERS]
    return name if name.isprintable() else "".join(c if c.isprintable() else "?" for c in name)
