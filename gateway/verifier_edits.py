"""Small edits of a question that change what it asks, and small ones that do not, in English and Korean.

A verifier learns from them what an embedding hardly sees. Alone they teach it that a small difference is
always a real one, so the harmless ones and real paraphrases go with them. The word lists are ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np

from policies import opposites

T = TypeVar("T")
Edit = Callable[[str, np.random.Generator], str | None]
"""Gives the edited text, or None where the edit does not apply."""

_DIGITS = re.compile(r"[0-9]+")
_NUMBER_WORDS = "two three four five six seven eight nine ten twelve twenty".split()  # noqa: SIM905
_KOREAN_COUNTS = "한 두 세 네 다섯 여섯 일곱 여덟".split()  # noqa: SIM905
_KOREAN_COUNTED = re.compile(
    rf"(?<![가-힣])({'|'.join(_KOREAN_COUNTS)})(?=\s?(?:시|개|명|번|달|살|잔|마리|시간|장)(?!작))"
)

_NEGATE: Final = (
    (
        r"\b(should|must|would|could|can|will|do|does|did|is|are|was|were) (i|you|we|they|he|she|it)\b",
        r"\1 \2 not",
    ),
    (
        r"\b(how|when|where|why|reason|best|possible|safe|legal|ok|good|bad|important|need|want|try) to\b",
        r"\1 not to",
    ),
    (
        r"\b(can|could|should|would|will|must|is|are|was|were|does|do|did)\b"
        r"(?! (?:not|i|you|we|they|he|she|it)\b)(?=.* )",
        r"\1 not",
    ),
)
_UNNEGATE: Final = (
    (r"\b(do|does|did|is|are|was|were|should|would|could|has|have|had)n['’]t\b", r"\1"),
    (r"\bcan['’]t\b|\bcannot\b", "can"),
    (r"\bwon['’]t\b", "will"),
    (r"\b(?:not|never) ", ""),
    (r"\bwithout\b", "with"),
)
_KOREAN_NEGATE: Final = (
    (r"수 있", "수 없"), (r"수 없", "수 있"), (r"있(?=[가-힣]*\??$)", "없"), (r"없(?=[가-힣]*\??$)", "있"),
    (r"지 마(?:세요|라|요)?", "어"), (r"해\s?(?:줘|주세요)", "하지 마"), (r"하는 ", "하지 않는 "),
    (r"지 않", "고 있"), (r"(?<![가-힣])(?:안|못) (?=[가-힣])", ""),
    (r"(?<= )(?=[가-힣]+(?:해|어|아|여|니|냐|까|나|지|요|가|와|돼|래)[?.!]*$)", "안 "),
    (r"(하|되|가|오|먹|보|사|쓰)면", r"\1지 않으면"),
)  # fmt: skip

# Each line holds names of one sort: any two on it are different things.
_NAMES: Final = """
    india china germany france japan canada australia brazil russia italy spain mexico korea england
    london paris tokyo delhi mumbai berlin sydney toronto chicago boston seattle singapore dubai
    python java javascript ruby rust php golang swift kotlin perl
    google facebook amazon microsoft apple netflix twitter instagram youtube whatsapp
    iphone android ipad macbook windows linux ubuntu
    mysql postgres mongodb redis sqlite oracle
    monday tuesday wednesday thursday friday saturday sunday
    january february march april june july august september october november december
    english french spanish german chinese japanese hindi korean arabic
    john mary david sarah james emma peter laura
    trump obama clinton modi putin
    dog cat horse rabbit hamster parrot
    car bike bus train plane truck
    chicken beef fish pork rice pasta
    mother father brother sister wife husband son daughter
    red blue green yellow purple orange
    math physics chemistry biology history economics
    email phone address password username account
    money time weight energy memory height
    doctor lawyer teacher engineer nurse pilot
    coffee tea water milk beer wine
    kitchen bedroom bathroom garage office
    cancel renew upgrade
    invoice receipt refund contract
    서울 부산 대구 인천 광주 대전 제주 강릉
    월요일 화요일 수요일 목요일 금요일 토요일 일요일
    거실 안방 부엌 주방 화장실 서재 베란다
    에어컨 선풍기 보일러 히터 가습기 제습기 청소기
    엄마 아빠 누나 동생 오빠 언니 할머니 삼촌
    커피 녹차 우유 맥주 소주
    지하철 버스 택시 기차 비행기
    짜장면 짬뽕 라면 김밥 떡볶이
    미국 중국 일본 독일 프랑스 영국
    회사 학교 병원 은행 도서관
    이메일 전화번호 주소 비밀번호
    온도 습도 미세먼지 강수량
""".strip()
_SWAPPED: Final = (
    r"\b(?P<l>from|between) (?P<a>[\w'-]+) (?P<m>to|into) (?P<b>[\w'-]+)\b",
    r"\b(?P<l>convert|change|transfer|switch|migrate|move|translate|export|import|turn|merge|copy|connect|add)"
    r" (?P<a>[\w'-]+) (?P<m>to|into|from|with) (?P<b>[\w'-]+)\b",
    r"\b(?P<l>is|are|was|does|did|can|do) (?P<a>[\w'-]+) (?P<m>like|love|hate|beat|kill|follow|invade|own"
    r"|affect|cause|hurt|help|teach|marry|defeat|attack|owe|pay|call) (?P<b>[\w'-]+)\b",
    r"(?P<l>^|\s)(?P<a>[가-힣a-zA-Z0-9]+)(?P<m>에서) (?P<b>[가-힣a-zA-Z0-9]+)(?P<r>으로|로|까지)(?![가-힣])",
    r"(?P<l>^|\s)(?P<a>[가-힣a-zA-Z0-9]+?)(?P<m>이|가) (?P<b>[가-힣a-zA-Z0-9]+?)(?P<r>에게|한테)(?![가-힣])",
)  # fmt: skip
_DIRECTIONS: Final = (
    "{text} from {a} to {b}",
    "{text} when I switch from {a} to {b}",
    "{text} to move {a} into {b}",
)
_KOREAN_DIRECTIONS: Final = (
    "{a}에서 {b}까지 {text}",
    "{a}에서 {b}로 갈 때 {text}",
    "{a}에서 {b}로 바꾸면 {text}",
)
_KOREAN_OPPOSITES: Final = """
    많은 적은; 많아 적어; 많이 조금; 높은 낮은; 높여줘 낮춰줘; 켜줘 꺼줘; 켜 꺼; 켜면 끄면; 켤 끌; 큰 작은;
    크게 작게; 늘려 줄여; 열어 닫아; 올려 내려; 좋은 나쁜; 더운 추운; 쉬운 어려운; 비싼 저렴한; 빠른 느린;
    긴 짧은; 먼저 나중에; 오늘 내일; 오늘 어제; 이번주 다음주; 전에 후에; 보내줘 받아줘; 사줘 팔아줘
"""
_SAME_WORDS: Final = """
    buy purchase; get obtain; big large; start begin; quickly fast; fix repair; kids children; movie film;
    picture photo; car automobile; job work; mistake error; smart intelligent; difference differences;
    delete erase; choose pick; cellphone phone; doctor physician; famous popular; help assist; make create;
    learn study; hard difficult; often frequently; earn make; tips advice; benefits advantages;
    알려줘 말해줘; 뭐야 무엇인가요; 어떻게 어찌; 지금 현재; 빨리 서둘러; 해줘 해주세요; 알려줘 알려주세요;
    어때 어떤가요; 할까 할까요; 있어 있나요; 돼 되나요; 뭐가 무엇이; 얼마나 어느정도; 언제야 언제인가요
"""
_REPHRASED: Final = (
    (r"^how (?:do|can|should) i ", ("how to ", "what is the best way to ", "how would one ", "ways to ")),
    (r"^how to ", ("how can i ", "how do i ", "what's the way to ", "can you explain how to ")),
    (r"^what is ", ("what's ", "can you tell me what is ", "please explain ", "what exactly is ")),
    (r"^what are ", ("which are ", "tell me ", "what're ", "could you list ")),
    (r"^why ", ("for what reason ", "can you explain why ", "why exactly ")),
    (r"^(?=(?:is|are|can|do|does|should|will|which|who|when|where) )",
     ("hi, ", "please tell me, ", "quick question: ")),
    (r"(?<=[가-힣])\?$", ("", "요?", " 알려줘", "?? 궁금해")),
    (r"^(?=[가-힣])", ("저기 ", "혹시 ", "그런데 ", "야 ")),
)  # fmt: skip


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((a, b) for a, b in (pair.split() for pair in text.split(";")))


# Prepositions and question words mean the opposite in few places only; of Korean, whole words are needed.
_NOT_SWAPPED: Final = frozenset("to from in out into who where when how why light like all".split())  # noqa: SIM905
_OPPOSITES: Final = (
    *(pair for pair in _pairs(opposites.ENGLISH) if not _NOT_SWAPPED.intersection(pair)),
    *(pair for pair in _pairs(opposites.KOREAN) if min(map(len, pair)) > 1),
    *_pairs(_KOREAN_OPPOSITES),
)
_NO_SIDES: Final = frozenset(
    "it the a an be is of to what there this that you i we 어디 언제 누가 뭐 바 만나기".split()  # noqa: SIM905
)
_SAME: Final = _pairs(_SAME_WORDS)
_SORTS: Final = tuple(tuple(line.split()) for line in _NAMES.splitlines())


def change_number(text: str, rng: np.random.Generator) -> str | None:
    """Another number in place of one of the text's: near by, or with a nought more."""
    words = re.compile(rf"\b({'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)
    found = [*_DIGITS.finditer(text), *words.finditer(text), *_KOREAN_COUNTED.finditer(text)]
    if not found:
        return None
    match = _pick(found, rng)
    old = match.group()
    if old.isdigit():
        value = int(old)
        new = str(_pick([value + 1, value * 10, value + int(rng.integers(2, 60)), max(value - 1, 0)], rng))
    else:
        new = _other(_NUMBER_WORDS if old.isascii() else _KOREAN_COUNTS, old.lower(), rng)
    return _replaced(text, match, new) if new != old else None


def negate(text: str, rng: np.random.Generator) -> str | None:
    """The text with a negation more or less."""
    if _korean(text):
        return _first_rule(text, _KOREAN_NEGATE, rng)
    return _first_rule(text, _UNNEGATE, rng, in_order=True) or _first_rule(text, _NEGATE, rng)


def oppose(text: str, rng: np.random.Generator) -> str | None:
    """A word replaced by its opposite."""
    found = []
    for pair in _OPPOSITES:
        for old, new in (pair, pair[::-1]):
            if old not in text.lower():  # cheaper than a search for each of some hundred words
                continue
            end = r"\b" if old.isascii() else r"(?=[가-힣\s?.!]|$)"
            start = r"\b" if old.isascii() else r"(?<![가-힣])"
            found += [(m, new) for m in re.finditer(start + old + end, text, re.IGNORECASE)]
    return _replaced(text, *_pick(found, rng)) if found else None


def rename(text: str, rng: np.random.Generator, names: Sequence[str] = ()) -> str | None:
    """Another name or thing in place of one of the text's: of the same sort where the sort is known, else,
    for a capitalised word, one of `names`."""
    found: list[tuple[re.Match[str], str]] = []
    lower = text.lower()
    for sort in _SORTS:
        for old in sort:
            if old in lower:
                start, end = (r"\b", r"\b") if old.isascii() else (r"(?<![가-힣])", "")
                found += [
                    (m, _other(sort, old, rng)) for m in re.finditer(start + old + end, text, re.IGNORECASE)
                ]
    if not found and names:
        found = [
            (m, _other(names, m.group(), rng)) for m in re.finditer(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b", text)
        ]
    if not found:
        return None
    match, new = _pick(found, rng)
    return _replaced(text, match, new.capitalize() if match.group()[0].isupper() else new)


def swap(text: str, rng: np.random.Generator) -> str | None:
    """The two sides of a direction or of a deed in each other's place."""
    found = [m for pattern in _SWAPPED for m in re.finditer(pattern, text, re.IGNORECASE)]
    found = [m for m in found if len(set(_sides(m))) == 2 and not _NO_SIDES.intersection(_sides(m))]
    if not found:
        return None
    match = _pick(found, rng)
    (a, end_a), (b, end_b) = match.span("a"), match.span("b")
    return text[:a] + match["b"] + text[end_a:b] + match["a"] + text[end_b:]


def direct(text: str, rng: np.random.Generator) -> str:
    """The text with a direction added, between two names of one sort: few questions have one to swap."""
    sorts = [sort for sort in _SORTS if _korean(sort[0]) == _korean(text)]
    sort = _pick(sorts, rng)
    a = _pick(sort, rng)
    b = _other(sort, a, rng)
    if _korean(text):
        return _pick(_KOREAN_DIRECTIONS, rng).format(a=a, b=b, text=text)
    bare = text.rstrip(" ?.!")
    return _pick(_DIRECTIONS, rng).format(a=a, b=b, text=bare) + text[len(bare) :]


def _sides(match: re.Match[str]) -> tuple[str, str]:
    return match["a"].lower(), match["b"].lower()


def reword(text: str, rng: np.random.Generator) -> str | None:
    """The same question in a few other words: a synonym, another opening, a slip of the pen, politeness."""
    choices = [edited for edit in (_rephrase, _synonym, _mistype, _restyle) if (edited := edit(text, rng))]
    return _pick(choices, rng) if choices else None


CHANGES: Final[Mapping[str, Edit]] = {
    "number": change_number,
    "negation": negate,
    "opposite": oppose,
    "name": rename,
    "direction": swap,
}
"""The edits after which another answer is due, by the name of their kind."""


def names_in(texts: Sequence[str]) -> list[str]:
    """The capitalised words inside `texts`, each once, in order: what `rename` may put in."""
    found = (word for text in texts for word in re.findall(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b", text))
    return list(dict.fromkeys(found))


def _rephrase(text: str, rng: np.random.Generator) -> str | None:
    return _first_rule(text, [(pattern, _pick(openings, rng)) for pattern, openings in _REPHRASED], rng)


def _synonym(text: str, rng: np.random.Generator) -> str | None:
    found = []
    for pair in _SAME:
        for old, new in (pair, pair[::-1]):
            found += [(m, new) for m in re.finditer(rf"(?<!\w){old}(?!\w)", text, re.IGNORECASE)]
    return _replaced(text, *_pick(found, rng)) if found else None


def _mistype(text: str, rng: np.random.Generator) -> str | None:
    words = list(re.finditer(r"\b[a-z]{6,}\b", text))
    if not words:
        return None
    word = _pick(words, rng)
    at = int(rng.integers(1, len(word.group()) - 2))
    letters = word.group()
    typed = letters[:at] + letters[at + 1] + letters[at] + letters[at + 2 :]
    return _replaced(text, word, typed) if typed != letters else None


def _restyle(text: str, rng: np.random.Generator) -> str | None:
    bare = text.rstrip(" ?.!")
    styles = [bare, text.lower(), text + "?", text.upper()]
    if _korean(text):
        styles += [bare.replace(" ", "", 1), bare + " 부탁해"]
    else:
        styles += ["Please: " + text, bare + ", thanks", "Hello! " + text]
    changed = [style for style in styles if style != text]
    return _pick(changed, rng) if changed else None


def _first_rule(
    text: str, rules: Sequence[tuple[str, str]], rng: np.random.Generator, *, in_order: bool = False
) -> str | None:
    order = range(len(rules)) if in_order else rng.permutation(len(rules))
    for number in order:
        pattern, new = rules[int(number)]
        edited = re.sub(pattern, new, text, count=1, flags=re.IGNORECASE)
        if edited != text:
            return edited
    return None


def _replaced(text: str, match: re.Match[str], new: str) -> str:
    return text[: match.start()] + new + text[match.end() :]


def _other(words: Sequence[str], than: str, rng: np.random.Generator) -> str:
    others = [word for word in words if word.lower() != than.lower()]
    return _pick(others, rng) if others else than


def _pick(items: Sequence[T], rng: np.random.Generator) -> T:
    return items[int(rng.integers(len(items)))]


def _korean(text: str) -> bool:
    return any("가" <= character <= "힣" for character in text)
