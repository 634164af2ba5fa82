"""What is known of single entries: how the answers they gave turned out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

PER_ENTRY = 8
"""Older outcomes of an entry are forgotten: the latest tell what it is now."""

RIGHT = 0.25
"""How much a right answer counts, where a wrong one counts 1. That most are right is in the shared risk, and
an entry's right ones are often one question asked again. Counted in full they were believed too much: where
entries did not differ, .91 of the allowed error was made, and .74 so, when .85 was to be spent."""

Outcome = tuple[float, bool]
"""The verifier's probability when the entry was looked at, and whether its answer was right."""


class EntryEvidence:
    """Turns the risk that an entry shares with all others at this probability into its own.

    A beta distribution whose mean is the shared risk and which weighs as much as `strength` outcomes, updated
    by the entry's own: those that tell something here. Right at a lower probability speaks for it at a higher
    one, wrong at a higher one against it at a lower one, and the others say nothing. An entry without
    outcomes has the shared risk; one wrong answer makes it a fifth or so, for as long as it is remembered.

    The `max_entries` entries looked at last are remembered, of those that have outcomes.
    """

    def __init__(self, *, strength: float = 4.0, max_entries: int = 20_000) -> None:
        self._strength = strength
        self._max_entries = max_entries
        self._outcomes: OrderedDict[int, tuple[Outcome, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._outcomes)

    def risk(self, entry_id: int, probability: float, shared: float) -> float:
        outcomes = self._outcomes.get(entry_id)
        if outcomes is None:
            return shared
        self._outcomes.move_to_end(entry_id)
        wrong = sum(1 for at, right in outcomes if not right and at >= probability)
        right = sum(1 for at, right in outcomes if right and at <= probability)
        return (self._strength * shared + wrong) / (self._strength + wrong + RIGHT * right)

    def learn(self, entry_id: int, probability: float, *, right: bool) -> None:
        outcomes = self._outcomes.get(entry_id, ())
        self._outcomes[entry_id] = (*outcomes, (probability, right))[-PER_ENTRY:]
        self._outcomes.move_to_end(entry_id)
        if len(self._outcomes) > self._max_entries:
            self._outcomes.popitem(last=False)

    def forget(self, entry_ids: Iterable[int]) -> None:
        """Entries that are gone."""
        for entry_id in entry_ids:
            self._outcomes.pop(entry_id, None)

    def state(self) -> dict[int, tuple[Outcome, ...]]:
        """What `restore` takes: the entries looked at longest ago first."""
        return dict(self._outcomes)

    def restore(self, state: Mapping[int, Sequence[Outcome]]) -> None:
        kept = list(state.items())[-self._max_entries :]
        self._outcomes = OrderedDict((entry_id, tuple(outcomes[-PER_ENTRY:])) for entry_id, outcomes in kept)
