"""Which numbers are an identity or an account: check digits, dates and ranges of each kind."""

from __future__ import annotations

import re

_CARD_ISSUERS = re.compile(
    # Visa; Mastercard; American Express; Diners Club; JCB; Discover and UnionPay; Maestro; Korean domestic
    r"4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})"
    r"|5[1-5][0-9]{14}"
    r"|(?:222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}"
    r"|3[47][0-9]{13}"
    r"|3(?:0[0-5]|6[0-9]|[89][0-9])[0-9]{11,16}"
    r"|35(?:2[89]|[3-8][0-9])[0-9]{12,15}"
    r"|(?:6011|64[4-9][0-9]|65[0-9]{2}|62[0-9]{2})[0-9]{12,15}"
    r"|(?:5018|5020|5038|5893|6304|6759|676[123])[0-9]{9,15}"
    r"|94[0-9]{14}"
)
"""Beginnings and lengths of card numbers (ISO/IEC 7812): without them one long number in ten is a card."""

_IBANS = """
    AD24 AE23 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 CH21 CY28 CZ28 DE22 DK18 EE20 EG29 ES24 FI18 FR27 GB22
    GE22 GI23 GR27 HR21 HU28 IE22 IL23 IS26 IT27 JO30 KW30 KZ20 LB28 LI21 LT20 LU20 LV21 MC27 MD24 ME22
    MK19 MT31 NL18 NO15 PK24 PL28 PT25 QA29 RO24 RS22 SA24 SE24 SI19 SK24 SM27 TN24 TR26 UA29 VA22 XK20
"""
IBAN_LENGTHS = {pair[:2]: int(pair[2:]) for pair in _IBANS.split()}
"""Characters by country (SWIFT IBAN registry)."""

_DOUBLED = str.maketrans("0123456789", "0246813579")
"""Twice a digit, the digits of that added up."""
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_card(number: str) -> bool:
    """A card number, blanks and hyphens allowed: an issuer's beginning and length, and Luhn's check digit."""
    digits = _digits(number)
    return _CARD_ISSUERS.fullmatch(digits) is not None and passes_luhn(digits)


def passes_luhn(digits: str) -> bool:
    """ISO/IEC 7812-1, annex B: every second digit from the right is doubled."""
    doubled = digits[-2::-2].translate(_DOUBLED)
    return (sum(map(int, digits[-1::-2])) + sum(map(int, doubled))) % 10 == 0


def is_iban(text: str) -> bool:
    """Whether the text begins with an IBAN (ISO 13616, check digits by ISO 7064 mod 97-10)."""
    joined = text.replace(" ", "")
    length = IBAN_LENGTHS.get(joined[:2])
    if length is None or len(joined) < length:
        return False
    turned = joined[4:length] + joined[:4]
    return int("".join(str(int(character, 36)) for character in turned)) % 97 == 1


def is_ssn(number: str) -> bool:
    """A US social security number AAA-GG-SSSS of a range that is given out."""
    area, group, serial = number.split("-")
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def is_resident_number(number: str) -> bool:
    """A Korean resident registration number YYMMDD-SNNNNNN by its date. Since October 2020 the last digit is
    no check digit."""
    digits = _digits(number)
    month, day = int(digits[2:4]), int(digits[4:6])
    return 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1]


def _digits(number: str) -> str:
    return number.replace(" ", "").replace("-", "")
