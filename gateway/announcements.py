"""What the start tells of the parts that are ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from gateway.catalog import Catalog, Model

Announce = Callable[[str, str], None]
"""Told of each part that is ready: what it is, and its state in a few words."""


def index_progress(announce: Announce, every_s: float = 1.0) -> Callable[[int, int], None]:
    """Tells how far the index is, once in `every_s` seconds at most: a small one is done before that."""
    told = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= every_s:
            told = time.monotonic()
            announce("index", f"{done:,} of {total:,} vectors read")

    return progress


def route_lines(catalog: Catalog) -> Iterator[str]:
    for route in catalog.routes.values():
        small, large = route.small, route.large
        if small.backend is large.backend and small.upstream_name == large.upstream_name:
            yield (
                f"{route.name}: small and large are both {_shown(small)}; routes are decided and shown all"
                " the same (for a larger one set OPENAI_API_KEY, ANTHROPIC_API_KEY or [models.large])"
            )
        else:
            yield f"{route.name}: small = {_shown(small)}, large = {_shown(large)}"


def _shown(model: Model) -> str:
    return f"{model.upstream_name} at {model.backend.name}"
