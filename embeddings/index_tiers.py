"""When a partition of the index is searched whole, and how finely a larger one is divided."""

from __future__ import annotations

import msgspec


class Tiers(msgspec.Struct, frozen=True, kw_only=True):
    """Up to `flat_rows` a partition is searched exactly, whole. Above, codes propose `candidates` rows that
    are then measured exactly: all codes up to `one_list_rows`; above, those of the `some_probes` nearest of
    `some_lists` lists, and from `some_lists_rows` on of the `many_probes` nearest of `many_lists`. Measured
    in docs/decisions/007-index.md."""

    flat_rows: int = 2_048
    one_list_rows: int = 40_000
    some_lists: int = 256
    some_probes: int = 48
    some_lists_rows: int = 300_000
    many_lists: int = 768
    many_probes: int = 32
    candidates: int = 32

    def lists(self, rows: int) -> int:
        """How many lists a partition of so many rows should have; 0 for none."""
        if rows <= self.flat_rows:
            return 0
        if rows <= self.one_list_rows:
            return 1
        return self.some_lists if rows <= self.some_lists_rows else self.many_lists

    def probes(self, lists: int) -> int:
        if lists <= 1:
            return 1
        return self.some_probes if lists == self.some_lists else self.many_probes

    def rebuild(self, rows: int, lists: int, codes: int) -> bool:
        """Whether a partition of so many rows should leave its form, of so many lists and codes, for
        another. Not at once when it shrinks, lest one on the border go to and fro; and when a third of the
        codes are of rows that are gone."""
        return (
            self.lists(rows) > lists
            or self.lists(2 * rows) < lists
            or codes > rows + rows // 3 + self.flat_rows
        )
