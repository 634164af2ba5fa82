"""Questions whose right answer changes with time, told by rules: patterns that a person can read and edit."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import msgspec

MAX_SCANNED_CHARACTERS = 1000
"""Of a longer text the first and the last half of that are looked at: what is asked stands at an end of it,
and what lies between is material, which may say "today" without anyone asking about it."""

UNSPACED_LANGUAGES = frozenset({"ja", "ko", "th", "zh"})
"""Languages that write words together: their patterns are found anywhere in a text that is not all ASCII. A
pattern of any other language begins where a word begins."""

_UNESCAPED = re.compile(r"\\.|[^\\]+", re.DOTALL)


class VolatileRule(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of question. `pattern` is a regular expression, looked for without regard to case. `reason`
    completes "the question asks about". `ttl_s`: how long an answer holds, in seconds; 0 is not at all.
    `language` ("en", "ko") says where the pattern is looked for: see UNSPACED_LANGUAGES."""

    name: str
    language: str
    pattern: str
    reason: str
    ttl_s: float


class VolatileRules:
    """`exceptions` are patterns of phrases that only look as if they asked about now ("weather front"): they
    are taken out before the rules are believed. Every pattern must be one that `why_unusable` accepts."""

    def __init__(self, rules: Iterable[VolatileRule], exceptions: Iterable[str] = ()) -> None:
        self.rules = tuple(rules)
        unspaced = [rule for rule in self.rules if rule.language in UNSPACED_LANGUAGES]
        self._spaced = _Scan([rule for rule in self.rules if rule not in unspaced], begins=r"\b")
        self._unspaced = _Scan(unspaced)
        self._exceptions = _any_of(exceptions)

    def match(self, text: str) -> VolatileRule | None:
        """Of the rules that match, the one with the smallest `ttl_s`; None for a text that may be kept."""
        asked = _folded(text)
        scans = [self._spaced] if asked.isascii() else [self._spaced, self._unspaced]
        if not any(scan.any.search(asked) for scan in scans):
            return None
        asked = self._exceptions.sub(" ... ", asked)
        found = [rule for scan in scans for rule, pattern in scan.each if pattern.search(asked)]
        return min(found, key=lambda rule: rule.ttl_s, default=None)


class _Scan:
    """The rules of languages written alike. `any` is all of them at once, and settles most texts."""

    def __init__(self, rules: list[VolatileRule], *, begins: str = "") -> None:
        self.any = _any_of((rule.pattern for rule in rules), begins=begins)
        self.each = [(rule, _any_of([rule.pattern], begins=begins)) for rule in rules]


def why_unusable(pattern: str) -> str:
    """ "" for a pattern that the rules can use, else what is wrong with it."""
    try:
        re.compile(pattern)
        compiled = _any_of([pattern])
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)
    if compiled.groups:
        return "groups that capture, (...), are to be written (?:...)"
    if not pattern or compiled.search(""):
        return "it matches the empty text, and so every text"
    return ""


def _any_of(patterns: Iterable[str], *, begins: str = "") -> re.Pattern[str]:
    """Any of the patterns after `begins`; of none, what matches nothing."""
    either = "|".join(map(_lowered, patterns))
    return re.compile(f"{begins}(?:{either})" if either else "(?!)")


def _lowered(pattern: str) -> str:
    """In lower case but for escapes: \\S is not \\s."""
    return _UNESCAPED.sub(lambda part: part[0] if part[0].startswith("\\") else part[0].lower(), pattern)


def _folded(text: str) -> str:
    """In lower case, with single blanks, plain apostrophes and whole Hangul syllables."""
    if len(text) > MAX_SCANNED_CHARACTERS:
        half = MAX_SCANNED_CHARACTERS // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return unicodedata.normalize("NFC", " ".join(text.replace("’", "'").lower().split()))
