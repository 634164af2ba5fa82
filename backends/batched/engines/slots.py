"""Which of llama.cpp's slots a job takes."""

from __future__ import annotations

import threading

# What a slot has read already counts in steps of this many characters, some 64 tokens or one step of the
# engine: to save less is not worth leaving the neighbours for.
_WORTH_REUSING = 256


class Slots:
    """The lowest free slot, or the free one that has read most of the prompt already.

    Slots have a KV cache each, and llama.cpp computes neighbouring slots as one batch: eight jobs scattered
    over sixteen slots are several small batches, and half as fast. Left to itself it takes the slot that has
    been idle longest, which scatters them.
    """

    def __init__(self, count: int) -> None:
        self._prompts = [""] * count
        self._free = set(range(count))
        self._lock = threading.Lock()

    def take(self, prompt: str) -> int | None:
        """None when all are taken."""
        with self._lock:
            if not self._free:
                return None
            slot = max(sorted(self._free), key=lambda free: self._reusable(free, prompt))
            self._free.remove(slot)
            self._prompts[slot] = prompt
            return slot

    def release(self, slot: int | None) -> None:
        if slot is not None:
            with self._lock:
                self._free.add(slot)

    def _reusable(self, slot: int, prompt: str) -> int:
        """How many steps' worth of `prompt` the slot has read."""
        known = self._prompts[slot]
        steps = min(len(known), len(prompt)) // _WORTH_REUSING
        for step in range(steps):
            part = slice(step * _WORTH_REUSING, (step + 1) * _WORTH_REUSING)
            if known[part] != prompt[part]:
                return step
        return steps
