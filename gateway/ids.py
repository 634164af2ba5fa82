"""Identifiers that nobody else has."""

from __future__ import annotations

import os


def random_hex() -> str:
    """32 hexadecimal digits from the system's random source, a third of a UUID's cost."""
    return os.urandom(16).hex()
