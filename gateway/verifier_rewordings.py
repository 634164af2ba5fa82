"""The same question in other words, made by rule: other openings, contractions, synonyms, styles, in English
and Korean, several of them at once.

What users ask again is mostly this near. The word lists are ours; British and American words, short and long
forms, and formal and plain ones stand for each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np

T = TypeVar("T")
Rewording = Callable[[str, np.random.Generator], str | None]
"""Gives the reworded text, or None where the rule does not apply."""

_MOST_AT_ONCE: Final = 3

_HOW: Final = re.compile(
    r"^(?:how (?:do|can|would) (?:i|you|we|one)|how to|what(?:'s| is) the way to"
    r"|can you (?:tell|show) me how to) "
    r"(?P<rest>[^?.!]+)[?.!]*$",
    re.IGNORECASE,
)
_HOW_FRAMES: Final = (
    "How do I {rest}?",
    "How can I {rest}?",
    "how to {rest}",
    "How would I {rest}?",
    "What's the way to {rest}?",
    "What do I have to do to {rest}?",
    "What do I need to do in order to {rest}?",
    "Can you tell me how to {rest}?",
    "Could you explain how I can {rest}?",
    "Please show me how to {rest}.",
    "I want to {rest}. How do I do that?",
    "I'd like to {rest}, how does that work?",
    "I need to {rest}. How?",
    "steps to {rest}",
    "I don't know how to {rest}, can you help?",
    "Is there a way to {rest}, and what is it?",
    "how does one {rest}?",
    "Trying to {rest}. How is it done?",
)
_WHAT: Final = re.compile(
    r"^what(?:'s| (?P<be>is|are|was|were)) (?P<rest>(?:the|a|an|my|your|some) [^?.!,]{3,60})[?.!]*$",
    re.IGNORECASE,
)
_WHAT_FRAMES: Final = (
    "What {be} {rest}?",
    "Tell me what {rest} {be}.",
    "Can you tell me what {rest} {be}?",
    "Do you know what {rest} {be}?",
    "Could you please tell me what {rest} {be}?",
    "{rest}?",
    "I would like to know what {rest} {be}.",
    "Which {be} {rest}?",
    "please give me {rest}",
)
_WHO: Final = re.compile(
    r"^(?P<asks>who|where|when) (?P<be>is|are|was|were) (?P<rest>[^?.!,]{3,60})[?.!]*$", re.IGNORECASE
)
_WHO_FRAMES: Final = (
    "{asks} {be} {rest}?",
    "Tell me {asks} {rest} {be}.",
    "Can you tell me {asks} {rest} {be}?",
    "Do you know {asks} {rest} {be}?",
    "I want to know {asks} {rest} {be}",
)
_YES_NO: Final = re.compile(r"^(?P<can>can|may|could) i (?P<rest>[^?.!]{3,80})[?.!]*$", re.IGNORECASE)
_YES_NO_FRAMES: Final = (
    "Can I {rest}?",
    "Am I able to {rest}?",
    "Is it possible to {rest}?",
    "Is it possible for me to {rest}?",
    "Would it be possible to {rest}?",
    "I wonder if I can {rest}.",
    "Could I {rest}?",
)
_DO: Final = re.compile(
    r"^(?P<what>write|give|make|create|draft|list|explain|summari[sz]e|translate|suggest|compose|describe) "
    r"(?P<rest>.+?)[.!]*$",
    re.IGNORECASE,
)
_DO_FRAMES: Final = (
    "Please {what} {rest}.",
    "Can you {what} {rest}?",
    "Could you {what} {rest}, please?",
    "I need you to {what} {rest}.",
    "I'd like you to {what} {rest}",
    "{what} {rest} for me",
    "Would you {what} {rest}?",
)
_OF: Final = re.compile(r"\bthe (?P<thing>[a-z]{4,}(?: [a-z]{4,})?) of (?P<whose>[A-Z][a-z]+)\b")
_WHOSE: Final = re.compile(r"\b(?P<whose>[A-Z][a-z]+)['’]s (?P<thing>[a-z]{4,})\b")

_SAME: Final = """
what is|what's; who is|who's; where is|where's; i am|i'm; i have|i've; do not|don't; does not|doesn't
did not|didn't; can not|can't|cannot; will not|won't; is not|isn't; are not|aren't; should not|shouldn't
it is|it's; that is|that's; there is|there's; i will|i'll; i would|i'd; let us|let's
capital|capital city; pin|pin code; puk|puk code; laptop|laptop computer; python|the python language
tv|television|telly; phone|telephone; fridge|refrigerator; photo|photograph; app|application
info|information; flu|influenza; uk|united kingdom; eu|european union; usa|united states|u.s.
vet|veterinarian; javascript|js; kubernetes|k8s; postgres|postgresql; db|database; config|configuration
repo|repository; mins|minutes; hrs|hours; kg|kilos|kilograms; km|kilometers|kilometres
percent|per cent|%; email|e-mail|mail; wifi|wi-fi|wireless network; called|known as
turn on|switch on|enable|activate; turn off|switch off|disable|deactivate
delete|remove|erase|get rid of; sign in|log in|login; sign up|register; sign out|log out; buy|purchase
refund|money back; cheap|inexpensive|low-cost; cheapest|least expensive; fix|repair|mend; show|display
big|large; begin|start; finish|complete; raise|increase; reduce|decrease; lawyer|attorney|solicitor
holiday|vacation; flat|apartment; bike|bicycle; mum|mom|mother; kids|children; movie|film
car|automobile; shop|store; needed|required; allowed|permitted; illegal|against the law|forbidden by law
happens|occurs; use|utilize; employees|staff; salary|wages; color|colour; organize|organise
center|centre; approximately|about|around|roughly; at least|a minimum of|no less than
at most|a maximum of|no more than; error|error message; broken|not working|out of order
doesn't work|isn't working|does not work; quickly|fast; fastest|quickest; biggest|largest
smallest|littlest; hard|difficult; simple|easy; clever|smart|intelligent; sad|unhappy; doctor|physician
medicine|medication; illness|disease; rash|skin rash; meaning|definition; difference|distinction
advantage|benefit|upside; drawback|disadvantage|downside; reason|cause; country|nation
username|user name|login name; settings|preferences; folder|directory; search|look for
choose|select|pick; change|modify|alter; answer|reply|response; help|assistance; luggage|baggage
rubbish|trash|garbage; queue|line; lift|elevator; petrol|gasoline; trousers|pants; crisps|potato chips
biscuit|cookie; rise|go up; drop|go down; invented|came up with; often|frequently; always|at all times
sometimes|now and then; immediately|right away|at once; currently|at the moment|right now|at present
before|prior to; after|following; because of|due to|owing to; in order to|so as to
instead of|in place of|rather than; in spite of|despite; one|1; two|2; three|3; four|4; five|5; six|6
seven|7; eight|8; nine|9; ten|10; twelve|12; fifteen|15; twenty|20; thirty|30; fourteen|14; sixty|60
a hundred|100|one hundred; a thousand|1000|1,000; 24 hours|one day|a day
7 days|one week|a week|seven days; 14 days|two weeks|fourteen days|a fortnight; 30 minutes|half an hour
60 minutes|an hour|one hour; 12 months|a year|one year; half|50%|50 percent; twice|two times
"""
_KOREAN_SAME: Final = """
뭐예요|뭐야|뭔가요|무엇인가요|무엇입니까|뭐죠|뭔지 알려줘
어떻게 해요|어떻게 하나요|어떻게 하죠|어떻게 하면 되나요|어떻게 해야 하나요|어떻게 해
알려줘|알려 줘|알려주세요|알려 주세요|알려줄래|가르쳐 줘|말해줘; 있나요|있어요|있어|있습니까|있을까요
되나요|돼요|돼|됩니까|될까요|되는지 궁금해요; 얼마예요|얼마인가요|얼마야|얼마죠|얼마입니까
언제예요|언제인가요|언제야|언제죠|언제입니까; 어디예요|어디인가요|어디야|어디죠|어디입니까
누구예요|누구인가요|누구야|누구죠; 하나요|해요|하죠|합니까|하는지 알려줘
인가요|이에요|입니까|인지 알려줘; 할까요|할까|하면 될까요
해줘|해 줘|해주세요|해 주세요|해줄래|부탁해|좀 해줘; 써줘|써 줘|작성해줘|작성해 주세요
가능한가요|가능해요|가능해|가능합니까|할 수 있나요; 좋아요|좋나요|좋을까요|좋아|좋은가요
걸려요|걸리나요|걸려|걸립니까; 방법|방법이 뭐예요|방법 알려줘|어떻게 하는지; 변경|바꾸기|수정
삭제|지우기|제거; 구매|구입; 가격|값|비용; 환불|돈 돌려받기; 탈퇴|회원 탈퇴
켜줘|켜 줘|켜 주세요|켜주세요|켜줄래; 꺼줘|꺼 줘|꺼 주세요|꺼주세요|꺼줄래; 지금|현재|지금 현재
오늘|금일; 내일|명일; 빨리|얼른|서둘러; 핸드폰|휴대폰|휴대전화|폰; 컴퓨터|컴; 아이디|계정 이름
와이파이|무선 인터넷; 앱|어플|애플리케이션; 사진|이미지; 영화|무비; 아기|애기; 엄마|어머니; 아빠|아버지
회사|직장; 월급|급여|봉급; 휴가|연차; 이체|송금; 계좌|통장; 수수료|떼는 돈; 보험료|보험 비용; 제일|가장
왜|무슨 이유로|어째서; 추천해줘|추천해 줘|추천 좀|추천해 주세요
"""
_KOREAN_PARTICLE: Final = re.compile(r"(?<=[가-힣]{2})(?:을|를|은|는|이|가)(?= )")
_KOREAN_OPENINGS: Final = ("혹시 ", "저기, ", "질문 있어요. ", "안녕하세요. ", "그런데 ")
_OPENINGS: Final = (
    "Hi, ",
    "Hello! ",
    "Quick question: ",
    "Hey, ",
    "Sorry to ask, but ",
    "Question - ",
    "ok so ",
)
_ENDINGS: Final = (" Thanks!", " please", " thank you", " Thanks in advance.", " Any idea?", "??", " cheers")


def _groups(lines: str) -> tuple[tuple[str, ...], ...]:
    rows = (row.strip() for row in lines.replace("\n", " ").split(";"))
    return tuple(tuple(row.split("|")) for row in rows)


# The first lists end in a line without a semicolon.
_ENGLISH_GROUPS: Final = tuple(
    group for line in _SAME.strip().splitlines() for group in _groups(line.rstrip(";"))
)
_KOREAN_GROUPS: Final = tuple(
    group for line in _KOREAN_SAME.strip().splitlines() for group in _groups(line.rstrip(";"))
)


def reworded(text: str, rng: np.random.Generator) -> str | None:
    """`text` after one to three of the rules that apply; None where none does or nothing is left changed."""
    rules = list(_KOREAN_RULES if _korean(text) else _ENGLISH_RULES)
    wanted = int(rng.integers(1, _MOST_AT_ONCE + 1))
    found, done = text, 0
    for at in rng.permutation(len(rules)).tolist():
        if done == wanted:
            break
        changed = rules[at](found, rng)
        if changed and changed != found:
            found, done = changed, done + 1
    return found if _plain(found) != _plain(text) or found.casefold() != text.casefold() else None


def _framed(pattern: re.Pattern[str], frames: Sequence[str]) -> Rewording:
    def rule(text: str, rng: np.random.Generator) -> str | None:
        match = pattern.match(text.strip())
        if match is None:
            return None
        parts = {name: value for name, value in match.groupdict().items() if value is not None}
        parts = {name: value if name == "rest" else value.lower() for name, value in parts.items()}
        made = _pick(frames, rng).format(**{"be": "is", **parts})
        return made[0].upper() + made[1:] if rng.random() < 0.5 else made

    return rule


def _synonym(text: str, rng: np.random.Generator) -> str | None:
    return _one_of(text, _ENGLISH_GROUPS, r"(?<![\w-])", r"(?![\w-])", rng)


def _korean_synonym(text: str, rng: np.random.Generator) -> str | None:
    return _one_of(text, _KOREAN_GROUPS, r"(?<![가-힣])", r"(?=[\s?.!]|$)", rng)


def _one_of(
    text: str, groups: Sequence[Sequence[str]], before: str, after: str, rng: np.random.Generator
) -> str | None:
    lower = text.casefold()
    found = []
    for group in groups:
        for old in group:
            if old in lower:
                found += [
                    (m, group) for m in re.finditer(before + re.escape(old) + after, text, re.IGNORECASE)
                ]
    if not found:
        return None
    match, group = _pick(found, rng)
    new = _pick([word for word in group if word != match.group().casefold()], rng)
    if match.group()[0].isupper():
        new = new[0].upper() + new[1:]
    return text[: match.start()] + new + text[match.end() :]


def _whose(text: str, rng: np.random.Generator) -> str | None:
    del rng
    if _OF.search(text):
        return _OF.sub(r"\g<whose>'s \g<thing>", text, count=1)
    return _WHOSE.sub(r"the \g<thing> of \g<whose>", text, count=1)


def _styled(text: str, rng: np.random.Generator) -> str | None:
    bare = text.rstrip(" ?.!")
    return _pick(
        [
            bare,
            text.lower(),
            bare.lower(),
            bare + "?",
            _pick(_OPENINGS, rng) + text,
            bare + _pick(_ENDINGS, rng),
        ],
        rng,
    )


def _korean_styled(text: str, rng: np.random.Generator) -> str | None:
    bare = text.rstrip(" ?.!")
    return _pick(
        [
            bare,
            bare + "?",
            bare + "??",
            bare.replace(" ", "", 1),
            _pick(_KOREAN_OPENINGS, rng) + text,
            bare + " ㅠㅠ",
        ],
        rng,
    )


def _without_particle(text: str, rng: np.random.Generator) -> str | None:
    found = list(_KOREAN_PARTICLE.finditer(text))
    if not found:
        return None
    match = _pick(found, rng)
    return text[: match.start()] + text[match.end() :]


_ENGLISH_RULES: Final[tuple[Rewording, ...]] = (
    _framed(_HOW, _HOW_FRAMES),
    _framed(_WHAT, _WHAT_FRAMES),
    _framed(_WHO, _WHO_FRAMES),
    _framed(_YES_NO, _YES_NO_FRAMES),
    _framed(_DO, _DO_FRAMES),
    _synonym,
    _synonym,
    _whose,
    _styled,
)
_KOREAN_RULES: Final[tuple[Rewording, ...]] = (
    _korean_synonym,
    _korean_synonym,
    _without_particle,
    _without_particle,
    _korean_styled,
)


def _pick(items: Sequence[T], rng: np.random.Generator) -> T:
    return items[int(rng.integers(len(items)))]


def _plain(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


def _korean(text: str) -> bool:
    return any("가" <= character <= "힣" for character in text)
