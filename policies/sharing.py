"""What may be done with answers that change with time, and with those to prompts that hold personal data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Literal

import msgspec

from policies.personal_data import personal_data_in
from policies.types import Api, Request
from policies.volatility import VolatileRules

TURNS = 2
"""How many turns of the user are looked at for questions about now."""

VolatileAction = Literal["short-ttl", "bypass", "ignore"]
Share = Literal["tenant", "everyone"]
PersonalDataAction = Literal["exact", "no-store", "off"]


class Restriction(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` says why an answer may not be found by similarity; "" when it may. `max_ttl_s`: the longest it
    may be kept, 0 is not at all, None without a limit."""

    reason: str = ""
    max_ttl_s: float | None = None


UNRESTRICTED = Restriction()


class SharingRules:
    """The restrictions that the configuration asks for. Without `rules` no question counts as volatile."""

    def __init__(
        self,
        *,
        rules: VolatileRules | None,
        share: Share = "tenant",
        volatile: VolatileAction = "short-ttl",
        personal_data: PersonalDataAction = "exact",
    ) -> None:
        self._rules = rules if volatile != "ignore" else None
        self._everyone = share == "everyone"
        self._bypass_volatile = volatile == "bypass"
        self._personal_data = personal_data

    def tenant(self, request: Request) -> str:
        """Who the answer is shared with: "" is everyone, which no tenant is called."""
        if not self._everyone or self._holds_personal_data(request.body):
            return request.tenant
        return ""

    def _holds_personal_data(self, body: Mapping[str, Any]) -> bool:
        return self._personal_data != "off" and personal_data_in(body) is not None

    def restriction(self, api: Api, body: Mapping[str, Any], asked: Iterable[str]) -> Restriction:
        """`asked` are the texts of the user's turns, the last one first."""
        if self._personal_data != "off" and (kind := personal_data_in(body)) is not None:
            max_ttl_s = 0.0 if self._personal_data == "no-store" else None
            return self._volatile(
                api, asked, Restriction(reason=f"the prompt holds {kind}", max_ttl_s=max_ttl_s)
            )
        return self._volatile(api, asked, UNRESTRICTED)

    def _volatile(self, api: Api, asked: Iterable[str], otherwise: Restriction) -> Restriction:
        # The embedding of a question about now is the same tomorrow.
        if self._rules is None or api == "embeddings" or otherwise.max_ttl_s == 0:
            return otherwise
        # "And in Paris?" asks about the weather when that was asked before.
        matches = (self._rules.match(text) for text in islice(asked, TURNS))
        rule = min(filter(None, matches), key=lambda one: one.ttl_s, default=None)
        if rule is None:
            return otherwise
        max_ttl_s = 0.0 if self._bypass_volatile else rule.ttl_s
        return Restriction(reason=f"the question asks about {rule.reason}", max_ttl_s=max_ttl_s)
