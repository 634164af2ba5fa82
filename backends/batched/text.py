"""From tokens to text: characters split over tokens, and stop strings split over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# What a tokenizer decodes the first bytes of an unfinished character to.
_UNFINISHED = "�"


class Detokenizer:
    """Text of one answer, token by token, never half a character.

    Decodes a short window, not the whole answer each time: from the tokens whose text is out already, which
    give the next ones their context (a leading space, say), to the end.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._context = 0
        self._out = 0

    def feed(self, tokens: Sequence[int]) -> str:
        """The text that `tokens` complete."""
        self._tokens.extend(tokens)
        text = self._pending()
        if text.endswith(_UNFINISHED):
            return ""
        self._context, self._out = self._out, len(self._tokens)
        return text

    def flush(self) -> str:
        """What is left, an unfinished character included."""
        text = self._pending()
        self._context = self._out = len(self._tokens)
        return text

    def _pending(self) -> str:
        known = self._decode(self._tokens[self._context : self._out])
        return self._decode(self._tokens[self._context :])[len(known) :]


class StopStrings:
    """Cuts a text before the first stop string, holding back what may be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """The text that may go out. After a stop string, `stopped` is true and nothing more goes out."""
        if self.stopped:
            return ""
        text = self._held + text
        found = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=None)
        if found is not None:
            self.stopped = True
            self._held = ""
            return text[:found]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back, when the text ended without a stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` with which `stop` begins."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
