"""Postings for the ledger's tests, and a clock that stands still."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.ledger import GenerationPosting, Ledger, RequestPosting
from gateway.ledger_rows import LedgerRow, Sums
from gateway.ledger_store import LedgerStore
from policies.types import Usage

NOON = 1_800_014_400.0  # 2027-01-15 12:00 UTC
DAY_S = 86_400.0


class FakeClock:
    now = NOON

    def __call__(self) -> float:
        return self.now


def asked(**changes: Any) -> RequestPosting:
    fields: dict[str, Any] = {
        "tenant": "shop", "route": "small", "model": "m", "api": "chat", "cache": "miss", "status": 200
    }  # fmt: skip
    fields["key"] = changes.get("tenant", "shop")  # one key for each tenant
    return RequestPosting(**{**fields, **changes})


def generated(**changes: Any) -> GenerationPosting:
    fields = {"tenant": "shop", "route": "small", "model": "m", "api": "chat", "cache": "miss"}
    fields["key"] = changes.get("tenant", "shop")
    return GenerationPosting(**{**fields, "usage": Usage(), "cost_usd": 0.0, **changes})


def total(ledger: Ledger) -> Sums:
    return LedgerRow.total(ledger.by("day")).sums


def reopened(path: Path, clock: FakeClock | None = None, **options: Any) -> Ledger:
    return Ledger(LedgerStore(path), clock=clock or FakeClock(), **options)
