"""Numbers, dates, times, money, measures, versions and ids of a text, in one spelling each.

"1,000 mg", "1000mg" and "1 g" are one quantity, as are "2023-01-05", "Jan 5, 2023" and "2023년 1월 5일";
"5 km" and "5 miles" are two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec


class Quantity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`kind`: number, measure, money, date, time or id. `value`: its one spelling. `unit`: of measures the
    unit all of its kind are counted in (m for mm and km), of money the currency, else ""."""

    kind: str
    value: str
    unit: str = ""


_MEASURES: Final = """
    1000 m: km kms kilometer kilometers kilometre kilometres 킬로미터; 1 m: meter meters metre metres 미터;
    0.01 m: cm centimeter centimeters centimetre centimetres 센티미터 센티 센치; 0.001 m: mm millimeter
    millimeters millimetre millimetres 밀리미터; 1 mile: mile miles mi 마일; 1 foot: foot feet ft 피트; 1
    inch: inch inches 인치; 1 yard: yard yards yd; 1000 g: kg kgs kilo kilos kilogram kilograms 킬로그램
    킬로; 1 g: g gram grams 그램; 0.001 g: mg milligram milligrams 밀리그램; 0.000001 g: mcg µg μg ug
    microgram microgram 마이크로그램; 1 pound: lb lbs pound pounds 파운드; 1 ounce: oz ounce ounces 온스; 1
    ton: ton tons tonne tonnes 톤; 1 l: l liter liters litre litres 리터; 0.001 l: ml milliliter milliliters
    millilitre millilitres cc 밀리리터; 1 gallon: gallon gallons gal 갤런; 1 cup: cup cups 컵; 1 tbsp: tbsp
    tablespoon tablespoons 큰술; 1 tsp: tsp teaspoon teaspoons 작은술; 0.001 s: ms millisecond milliseconds
    밀리초; 1 s: s sec secs second seconds 초; 60 s: min mins minute minutes 분; 3600 s: h hr hrs hour hours
    시간; 86400 s: day days 일; 604800 s: week weeks wk wks 주 주일; 1 month: month months 개월 달; 12
    month: year years yr yrs 년; 1 %: % percent pct 퍼센트 프로; 1 celsius: °c celsius centigrade 섭씨 도; 1
    fahrenheit: °f fahrenheit 화씨; 1 kelvin: kelvin; 1 byte: byte bytes 바이트; 1000 byte: kb 킬로바이트;
    1000000 byte: mb 메가바이트 메가; 1000000000 byte: gb 기가바이트 기가; 1000000000000 byte: tb 테라바이트
    테라; 1 mph: mph; 1 kmh: kph km/h kmh; 1 watt: w watt watts 와트; 1000 watt: kw; 1 volt: v volt volts
    볼트; 1 kcal: kcal cal calorie calories 칼로리 킬로칼로리; 1 acre: acre acres; 1 pyeong: 평; 1 item: 개
    가지; 1 person: 명 사람; 1 time: 번 회 times; 1 age: 살 세; 1 floor: 층; 1 night: 박 night nights
"""
_CURRENCIES: Final = """
    usd: $ usd dollar dollars 달러 불; eur: € eur euro euros 유로; gbp: £ gbp sterling; jpy: ¥ jpy yen 엔;
    krw: ₩ krw won 원; cny: cny rmb yuan 위안; inr: ₹ inr rupee rupees
"""
_SCALES: Final = {
    "k": 1e3, "hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12,
    "백": 1e2, "천": 1e3, "만": 1e4, "십만": 1e5, "백만": 1e6, "천만": 1e7, "억": 1e8, "조": 1e12,
}  # fmt: skip
_ONES = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_MONTH_NAMES = "january february march april may june july august september october november december"
_ENGLISH_NUMBERS: Final = {word: value for value, word in enumerate(_ONES.split())} | {
    word: 10 * value for value, word in enumerate(_TENS.split(), 2)
}
_KOREAN_NUMBERS: Final = {
    "한": 1, "하나": 1, "두": 2, "둘": 2, "세": 3, "셋": 3, "네": 4, "넷": 4, "다섯": 5, "여섯": 6, "일곱": 7,
    "여덟": 8, "아홉": 9, "열": 10, "스무": 20, "서른": 30, "일주": 1, "이주": 2,
}  # fmt: skip
_HALVES: Final = frozenset({"오전", "오후", "아침", "저녁", "밤", "새벽"})
"""Of the day."""
_MONTHS: Final = {
    name[:length]: number for number, name in enumerate(_MONTH_NAMES.split(), 1) for length in (3, len(name))
} | {"sept": 9}


def _measures() -> dict[str, tuple[float, str]]:
    found: dict[str, tuple[float, str]] = {}
    for line in _MEASURES.split(";"):
        head, names = line.split(":")
        factor, unit = head.split()
        found.update({name: (float(factor), unit) for name in names.split()})
    return found


UNITS: Final = _measures()
"""Of each name of a unit: how many of the unit that its kind is counted in, and that unit."""
CURRENCIES: Final = {
    name: line.split(":")[0].strip() for line in _CURRENCIES.split(";") for name in line.split(":")[1].split()
}


def _either(words: object) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))  # type: ignore[call-overload]


_MONTH: Final = _either(_MONTHS)
_UNIT_NAMES: Final = [*UNITS, *(name for name in CURRENCIES if len(name) > 1 or not name.isascii())]
_UNIT: Final = (
    rf"(?:{_either(n for n in _UNIT_NAMES if n.isascii() or n[0] in '°µμ')})(?![a-z0-9])"
    rf"|(?:{_either(n for n in _UNIT_NAMES if n[0] >= '가')})"
)
_COUNTED: Final = "개|명|사람|번|회|시간|살|달|주|가지|박|잔|병|시|층"
_DIGITS: Final = re.compile(
    r"(?P<y>\d{4})(?:[-/.]|년 ?)(?P<m>\d{1,2})(?:[-/.]|월 ?)(?P<d>\d{1,2})(?![\d.])일?"
    r"|(?P<us_m>\d{1,2})/(?P<us_d>\d{1,2})/(?P<us_y>\d{4})(?!\d)"
    r"|(?P<k_m>\d{1,2})월 ?(?P<k_d>\d{1,2})일"
    rf"|(?P<e_m>{_MONTH})\.? (?P<e_d>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<e_y>\d{{4}}))?(?!\d)"
    rf"|(?P<f_d>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<f_m>{_MONTH})\b\.?(?:,? (?P<f_y>\d{{4}}))?(?!\d)"
    rf"|(?:(?P<half>{_either(_HALVES)}) ?)?(?P<k_h>\d{{1,2}})시(?!간)"
    r"(?: ?(?P<k_min>\d{1,2})분| ?(?P<k_half>반))?"
    r"|(?P<h>\d{1,2})(?::(?P<min>\d{2})(?::\d{2})?)? ?(?P<ampm>[ap])\.?m\b\.?"
    r"|(?P<h24>\d{1,2}):(?P<min24>\d{2})(?!\d)"
    r"|(?P<id>[a-z]+(?:[-_][a-z]+){0,4}[-_]?\d(?:[\w.-]*\w)?)"
    r"|(?P<sign>[$€£₩¥₹] ?)?(?P<n>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)*)"
    rf"(?: ?(?P<scale>{_either(_SCALES)})(?![a-z])(?!분|월))?"
    rf"(?:[ -]?(?:degrees? )?(?P<unit>{_UNIT}))?(?P<rest>[a-z]\w*)?",
    re.ASCII,
)
"""Matched where a run of digits begins, or the word or sign in front of it."""
_WORDED: Final = re.compile(
    rf"\b(?P<word>(?:{_either(_ENGLISH_NUMBERS)})"
    rf"(?:[ -](?:and )?(?:{_either(_ENGLISH_NUMBERS)}|hundred|thousand|million|billion))*)\b"
    rf"(?:[ -](?P<unit>{_UNIT}))?"
)
_KOREAN_WORDED: Final = re.compile(
    rf"(?<![가-힣])(?P<word>{_either(_KOREAN_NUMBERS)}) ?(?P<unit>{_COUNTED})"
    r"(?=$|[^가-힣]|[은는이가을를의에도만간])"
)
_RUN: Final = re.compile(r"[0-9]+")
_LETTERS: Final = re.compile(r"[a-z]+")


def quantities(text: str) -> tuple[tuple[Quantity, ...], str]:
    """The quantities of a text in lower case, and the text with blanks in their place.

    A day and month are read month first where slashes leave it open. "one" counts only before a unit:
    "which one" counts nothing.
    """
    found: list[Quantity] = []
    if _RUN.search(text):
        text = _take_digits(text, found)
    if not _ENGLISH_NUMBERS.keys().isdisjoint(_LETTERS.findall(text)):
        text = _take_words(_WORDED, _worded, text, found)
    if not text.isascii():
        text = _take_words(_KOREAN_WORDED, _korean_worded, text, found)
    return tuple(found), text


def _take_digits(text: str, found: list[Quantity]) -> str:
    kept: list[str] = []
    end = 0
    for run in _RUN.finditer(text):
        if run.start() < end:
            continue
        match = _DIGITS.match(text, _beginning(text, run.start(), end)) or _DIGITS.match(text, run.start())
        if match is None or match.end() <= run.start():
            continue
        found.append(_read(match))
        kept += (text[end : match.start()], " ")
        end = match.end()
    return "".join((*kept, text[end:]))


def _beginning(text: str, digit: int, end: int) -> int:
    """Where what the digit belongs to begins: at the letters or the sign it is glued to, at the name of the
    month or half of the day in front of it, or at itself. Never before `end`."""
    begin = max(text.rfind(" ", end, digit) + 1, end)
    while begin < digit and not (text[begin].isalnum() or text[begin] in CURRENCIES):
        begin += 1
    if begin < digit or begin == end:
        return begin
    before = max(text.rfind(" ", end, begin - 1) + 1, end)
    word = text[before : begin - 1]
    return before if word in _HALVES or word in CURRENCIES or word.rstrip(".") in _MONTHS else begin


def _take_words(
    pattern: re.Pattern[str],
    read: Callable[[str, str | None], Quantity | None],
    text: str,
    found: list[Quantity],
) -> str:
    def take(match: re.Match[str]) -> str:
        quantity = read(match["word"], match["unit"])
        if quantity is None:
            return match[0]
        found.append(quantity)
        return " "

    return pattern.sub(take, text)


def _read(match: re.Match[str]) -> Quantity:
    if match["n"] is not None:
        return _number(match)
    name = match["id"]
    if name is None:
        return _time(match) or _date(match)
    if name[0] == "v" and name[1] in "0123456789":
        return Quantity(kind="number", value=name[1:])
    return Quantity(kind="id", value=name.replace("-", "").replace("_", ""))


def _number(match: re.Match[str]) -> Quantity:
    digits, scale, unit = match["n"].replace(",", ""), match["scale"], match["unit"]
    if len(digits) > 15:  # beyond what a float tells apart
        return Quantity(kind="number", value=digits)
    if match["rest"]:  # 2fa, 4o, 3d
        return Quantity(kind="id", value=f"{digits}{scale or ''}{unit or ''}{match['rest']}")
    if digits.count(".") > 1:
        return Quantity(kind="number", value=digits)
    value = float(digits) * (_SCALES[scale] if scale else 1)
    if match["sign"]:
        return Quantity(kind="money", value=_plain(value), unit=CURRENCIES[match["sign"].strip()])
    if unit and not (unit == "년" and value >= 1000):  # a year, which English names by its number alone
        return _measured(value, unit)
    # As it stands: Python 3.10 is not 3.1.
    return Quantity(kind="number", value=_plain(value) if scale or "." not in digits else digits)


def _worded(words: str, unit: str | None) -> Quantity | None:
    if words == "one" and not unit:
        return None
    total = part = 0.0
    for word in words.replace("-", " ").split():
        if word in _ENGLISH_NUMBERS:
            part += _ENGLISH_NUMBERS[word]
        elif word == "hundred":
            part *= 100
        elif word != "and":
            total, part = total + part * _SCALES[word], 0
    return _measured(total + part, unit)


def _korean_worded(word: str, unit: str | None) -> Quantity:
    if unit == "시":
        return Quantity(kind="time", value=f"{_KOREAN_NUMBERS[word]}:00")
    return _measured(_KOREAN_NUMBERS[word], unit)


def _measured(value: float, unit: str | None) -> Quantity:
    if unit in CURRENCIES:
        return Quantity(kind="money", value=_plain(value), unit=CURRENCIES[unit])
    factor, base = UNITS.get(unit, (1.0, unit)) if unit else (1.0, "")
    return _measure(value * factor, base)


def _measure(value: float, unit: str) -> Quantity:
    """As a mere number where what is counted says little: "3개" is "3"."""
    if unit in ("", "item"):
        return Quantity(kind="number", value=_plain(value))
    return Quantity(kind="measure", value=_plain(value), unit=unit)


def _time(match: re.Match[str]) -> Quantity | None:
    hour = match["h"] or match["h24"] or match["k_h"]
    if hour is None:
        return None
    minute = match["min"] or match["min24"] or match["k_min"] or ("30" if match["k_half"] else "0")
    at = int(hour)
    late = match["ampm"] == "p" or match["half"] in ("오후", "저녁", "밤")
    early = match["ampm"] == "a" or match["half"] in ("오전", "아침", "새벽")
    if late and at < 12:
        at += 12
    elif early and at == 12:
        at = 0
    return Quantity(kind="time", value=f"{at}:{int(minute):02}")


def _date(match: re.Match[str]) -> Quantity:
    if match["y"]:
        year, month, day = match["y"], match["m"], match["d"]
    elif match["us_y"]:
        year, month, day = match["us_y"], match["us_m"], match["us_d"]
    elif match["k_m"]:
        year, month, day = "", match["k_m"], match["k_d"]
    elif match["e_m"]:
        year, month, day = match["e_y"] or "", str(_MONTHS[match["e_m"]]), match["e_d"]
    else:
        year, month, day = match["f_y"] or "", str(_MONTHS[match["f_m"]]), match["f_d"]
    return Quantity(kind="date", value=f"{year}-{int(month)}-{int(day)}")


def _plain(value: float) -> str:
    return f"{value:.15g}"
