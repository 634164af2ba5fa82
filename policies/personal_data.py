"""What should not be kept: whether a text holds personal data or a secret, told by its form.

Each kind is recognised by its own rules (check digits, dates, prefixes), so that a version, a date or an
order number is not taken for one. Nothing here ever repeats what was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from policies.id_numbers import is_card, is_iban, is_resident_number, is_ssn

SECRET = "a secret key"
EMAIL = "an e-mail address"
ID_NUMBER = "an id number"
CARD = "a card number"
PHONE = "a phone number"

LONG_BASE64 = 256
"""Characters from which a text of nothing but base64 is taken for an image, a sound or a file."""

_ABOUT_THE_CALLER = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "user"})
"""Top-level fields that say who asks. They are no part of what is asked, and are not kept."""

# Each pattern begins with a plain character that is rare, which is what makes a search fast; what must stand
# before it is looked at afterwards. re.ASCII: a Korean ending may follow a number at once.
_SECRET = re.compile(
    r"-(?:(?P<worded>(?:(?<=\bsk-)|(?<=\blg-)|(?<=\bxox[abeoprs]-))[\w-]{16,})"
    r"|(?<=\bglpat-)[\w-]{20}|(?<=\bpypi-)[\w-]{50}|----BEGIN [A-Z ]{0,40}PRIVATE KEY)"
    r"|_(?:(?<=\bgh[opsru]_)[A-Za-z0-9]{36}|(?<=\bgithub_pat_)\w{22}|(?<=\bhf_)[A-Za-z0-9]{30}"
    r"|(?<=\bnpm_)[A-Za-z0-9]{36}|(?<=\b[sr]k_)(?:live|test)_[A-Za-z0-9]{16})"
    r"|A(?<=\bA)(?:(?:KIA|SIA)[A-Z0-9]{16}\b|Iza[\w-]{35})"
    r"|J(?<=eyJ)(?<![\w-]eyJ)[\w-]{8,4000}\.eyJ[\w-]{8,4000}\.[\w-]{8}"
    r"|B(?<=\bB)earer +(?P<upper>[\w.~+/=-]{20,})|b(?<=\bb)earer +(?P<lower>[\w.~+/=-]{20,})",
    re.ASCII,
)
"""Named are those that words may look like, if they have no digit: `sk-` and what follows a "Bearer"."""
_EMAIL = re.compile(
    r"@(?<=[\w.%+-]@)(?<!\bgit@)(?:[A-Za-z0-9-]{1,63}\.){1,8}"
    r"(?!(?:png|jpe?g|gif|svg|webp|js|css|json|t?gz|zip)\b)[A-Za-z]{2,24}(?![\w(])",
    re.ASCII,
)
_LABELLED = re.compile(
    r"p(?<=\bp)assport[^0-9\n]{0,30}?\b[A-Z]{0,2}[0-9]{7,9}\b"
    r"|P(?<=\bP)(?i:assport)[^0-9\n]{0,30}?\b[A-Z]{0,2}[0-9]{7,9}\b"
    r"|여권 ?번호[^0-9\n]{0,12}?[A-Z]{1,2}[0-9]{3}[A-Z0-9][0-9]{4}"
    r"|주민(?:등록)? ?번호[^0-9\n]{0,12}[0-9]{6}[1-8][0-9]{6}(?![0-9])"
    r"|S(?<=\bS)(?:SN|ocial [Ss]ecurity)\b[^0-9\n]{0,20}[0-9]{3}[ -]?[0-9]{2}[ -]?[0-9]{4}\b"
    r"|s(?<=\bs)(?:sn|ocial security)\b[^0-9\n]{0,20}[0-9]{3}[ -]?[0-9]{2}[ -]?[0-9]{4}\b",
    re.ASCII,
)
_IBAN = re.compile(r"[A-Z](?<![\w-].)[A-Z][0-9]{2}(?: ?[A-Z0-9]){11,30}", re.ASCII)
_DIGITS = re.compile(r"[0-9(+][0-9 .()+-]{8,}")
"""Where a number of the kinds below may be: none of them is shorter."""
_NUMBER = re.compile(
    r"(?<![\w-])(?<![0-9][.,])(?:"
    r"(?P<resident>[0-9]{6} ?- ?[1-8][0-9]{6})"
    r"|(?P<ssn>[0-9]{3}-[0-9]{2}-[0-9]{4})"
    r"|(?P<card>[0-9]{13,19}|[0-9]{4}(?:[ -][0-9]{4}){3}(?:[ -][0-9]{3})?|[0-9]{4}[ -][0-9]{6}[ -][0-9]{4,5})"
    # Korean mobile phones and lines, North American numbers
    r"|(?P<phone>01[016789][ .-]?[0-9]{3,4}[ .-]?[0-9]{4}"
    r"|0(?:2|[3-6][1-5]|70|80|50[0-9])(?:[.-]|\) ?)[0-9]{3,4}[.-][0-9]{4}"
    r"|(?:1[ .-])?[2-9][0-9]{2}(?:-[0-9]{3}-|\.[0-9]{3}\.)[0-9]{4})"
    r")(?![\w-]|[.,][0-9])",
    re.ASCII,
)
_MARKED_PHONE = re.compile(
    # An area code in brackets; an international number (E.164: at most 15 digits)
    r"\((?<![\w)]\()(?:0[2-6][1-5]?|[2-9][0-9]{2})\)[ -]?[0-9]{3,4}[ .-][0-9]{4}(?![\w-])"
    r"|\+(?<![\w)=+*/.-]\+)(?<![0-9)] \+)[1-9](?:[ .()-]{0,2}[0-9]){8,14}(?!\w)",
    re.ASCII,
)
_DIGIT = re.compile(r"[0-9]")
_FILE = re.compile(r"(?P<url>data:[^,\s]{0,200},)?[A-Za-z0-9+/_=\r\n-]*")
"""A whole text of base64, as a `data:` URL or alone."""


def find_personal_data(text: str) -> str | None:
    """The kind of the first personal data found, in words that complete "it holds"; None when there is none.
    Takes time linear in the text."""
    if any(not found.lastgroup or _DIGIT.search(found[0]) for found in _SECRET.finditer(text)):
        return SECRET
    if _EMAIL.search(text):
        return EMAIL
    if _LABELLED.search(text) or any(is_iban(found[0]) for found in _all(_IBAN, text, 0, len(text))):
        return ID_NUMBER
    for run in _DIGITS.finditer(text):
        # Two characters beyond the run: what follows a number may tell that it is another.
        start, end = run.start(), run.end() + 2
        if _MARKED_PHONE.search(text, start, end):
            return PHONE
        for found in _all(_NUMBER, text, start, end):
            if kind := _kind_of(found):
                return kind
    return None


def personal_data_in(body: Mapping[str, Any]) -> str | None:
    """As `find_personal_data`, of everything that a parsed request body asks."""
    return next((kind for text in texts_in(body) if (kind := find_personal_data(text))), None)


def texts_in(body: Mapping[str, Any]) -> Iterator[str]:
    """Every text in a parsed request body, at any depth, in order: but for names of fields, who asks (`user`,
    `metadata`), and images, sounds and files in base64."""
    left = [value for name, value in body.items() if name not in _ABOUT_THE_CALLER]
    left.reverse()
    while left:
        value = left.pop()
        if isinstance(value, str):
            if not _is_file(value):
                yield value
        elif isinstance(value, Mapping):
            left.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            left.extend(reversed(value))


def _all(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """As `finditer`, also what begins within another: a number that looks like a card may hide one."""
    while found := pattern.search(text, start, end):
        yield found
        start = found.start() + 1


def _kind_of(found: re.Match[str]) -> str | None:
    group, number = found.lastgroup, found[0]
    if group == "resident":
        return ID_NUMBER if is_resident_number(number) else None
    if group == "ssn":
        return ID_NUMBER if is_ssn(number) else None
    if group == "card":
        return CARD if is_card(number) else None
    return PHONE


def _is_file(text: str) -> bool:
    whole = _FILE.fullmatch(text)
    return whole is not None and (whole["url"] is not None or len(text) >= LONG_BASE64)
