"""Identifiers that nobody else has."""

from __future__ import annotations

import os

_ID_BYTES = 16
_IDS_AT_ONCE = 256
_pool: list[str] = []


def random_hex() -> str:
    """32 hexadecimal digits from the system's random source, which is asked once for many."""
    if not _pool:
        digits = os.urandom(_ID_BYTES * _IDS_AT_ONCE).hex()
        width = 2 * _ID_BYTES
        _pool.extend(digits[at : at + width] for at in range(0, len(digits), width))
    return _pool.pop()


os.register_at_fork(after_in_child=_pool.clear)
