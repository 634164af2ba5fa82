"""What a Korean word is without its particles and endings, and which part its particle gives it.

No dictionary: a particle is cut off where the form of the syllable before it allows it (은 이 을 과 으로
stand after a final consonant, 는 가 를 와 로 after a vowel), an ending where it is one of a list.
"""

from __future__ import annotations

import re
from typing import Final

_FIRST, _FINALS = 0xAC00, 28  # Unicode 3.12: a syllable is 0xAC00 + (lead * 21 + vowel) * 28 + final
_NO_FINAL, _FINAL_N, _FINAL_L, _FINAL_B, _FINAL_SS = 0, 4, 8, 17, 20

_ROLES: Final = {
    "에서": "source", "에서는": "source", "에서부터": "source", "부터": "source", "에게서": "source",
    "한테서": "source", "으로": "goal", "로": "goal", "까지": "goal", "에": "goal", "에게": "goal",
    "한테": "goal", "이": "subject", "가": "subject", "께서": "subject", "을": "object", "를": "object",
    "보다": "less",
}  # fmt: skip
_AFTER_FINAL: Final = frozenset("은 이 을 과 으로 이나 이랑 이란 이라는".split())  # noqa: SIM905
_AFTER_VOWEL: Final = frozenset("는 가 를 와 로 나 랑 란 라는".split())  # noqa: SIM905
_SHORT_STEM: Final = frozenset(
    {"은", "는", "을", "를", "에서", "부터", "까지", "으로", "보다", "에게", "한테"}
)
"""Particles that may follow one syllable: nouns of two syllables end like the others (회의, 휴가, 지도)."""
_SHORT_NOUNS: Final = frozenset(
    "개소말새쥐닭곰비눈물불해달별땅집방문길차배돈약밥술떡빵꽃옷책병열뼈간폐위장손발피코귀키나너저형왕딸팀앱강산섬금빛"
)
"""Nouns of one syllable, which 이 and 가 may follow."""
_PARTICLE: Final = re.compile(
    r"(?:에서부터|으로부터|에서|에게서|한테서|에게|한테|께서|으로|까지|부터|보다|처럼|만큼|마다|밖에|이라는|라는"
    r"|이나|이랑|이란|하고|은|는|이|가|을|를|에|로|의|와|과|도|만|나|랑|란)$"
)
_HA: Final = re.compile(r"(?:[하해][가-힣]{0,6}|했[가-힣]{0,5}|할[가-힣]{0,3}|합니[까다]|한[다지]?|함)$")
"""The verb 하다 behind a noun: 설치하려면, 설치해 주세요, 설치할까요, 설치했나요 are all about 설치."""
_COPULA: Final = re.compile(
    r"(?:이었나요|였나요|인가요|인가|입니까|입니다|이에요|예요|에요|이야|이죠|이지|인지|인데|일까요?|(?<![어아여])야|죠)$"
)
_ENDING: Final = re.compile(
    r"(?:으려면|려면|으려고|려고|으면서|면서|으면|면|어야|아야|어도|아도|어서|아서|[었았]습니[까다]|[었았]나요"
    r"|[었았]어요?|[었았]을까요?|습니[까다]|니[까다]|을까요?|까요?|나요|는지|은지|는데|은데|는가요?|던가요?|네요|군요"
    r"|지요|어요|아요|으세요|세요|을래요?|래요?|는|은|을|던)$"
)
_POLITE: Final = re.compile(
    r"(?:알려|가르쳐|말해|보여|설명해|해|봐|도와)?(?:줘|주세요|줄래|주실|주십시오|주시|주겠|주라|달라)[가-힣]*"
    r"|알려|알고|싶어요?|싶습니다|싶은데요?|싶다|궁금[가-힣]*|부탁[가-힣]*|좀|제발|혹시|그럼|그러면|그냥|저는|제가|나는|내가|제|내|저"
    r"|것|거|게|건|걸|수|있[가-힣]*|되[가-힣]*|돼[가-힣]*|될[가-힣]*|됩[가-힣]*|하[가-힣]*|해[가-힣]*|할[가-힣]*"
    r"|한|이|그|및|등|또|그리고|때|경우"
)
"""Words that carry no fact: politeness, "can", "to be", "to do", and "tell me"."""


def final(syllable: str) -> int:
    """The number of a Hangul syllable's final consonant, 0 for none; -1 for any other character."""
    offset = ord(syllable) - _FIRST
    return offset % _FINALS if 0 <= offset < 11_172 else -1


def is_function_word(word: str) -> bool:
    return _POLITE.fullmatch(word) is not None


def role(particle: str) -> str:
    """The role that a particle gives, if the word is one: behind a Latin word it stands alone (main에)."""
    return _ROLES.get(particle, "")


def is_particle(word: str) -> bool:
    return _PARTICLE.fullmatch(word) is not None


def is_past(word: str) -> bool:
    """했, 었, 았, 됐 ...: a syllable that ends in ㅆ, except those of 있다 and of the future 겠."""
    return any(final(c) == _FINAL_SS and c not in "있겠" for c in word)


def part(word: str) -> tuple[str, str]:
    """Its stem, and the role that its particle gives it: source, goal, subject, object, less; "" for none."""
    stem, played = word, ""
    while not played:  # 서울은 / 서울까지만: what follows a particle with a role says nothing of it
        found = _PARTICLE.search(stem)
        if found is None or not _may_follow(stem[: found.start()], found[0]):
            break
        stem, played = stem[: found.start()], _ROLES.get(found[0], played)
    if not played:
        verb = _uninflected(word)  # 먹어도 is no 먹어 with the particle 도
        return (verb if verb != word else stem), ""
    # 고양이 is 고양 with the particle 이 by its form, and so it must be in 고양이를.
    twofold = len(stem) > 2 and stem[-1] == "이" and final(stem[-2]) > 0
    return stem[:-1] if twofold else stem, played


def _may_follow(stem: str, particle: str) -> bool:
    if len(stem) < 2 and not (stem and (particle in _SHORT_STEM or stem in _SHORT_NOUNS)):
        return False
    if particle in _AFTER_FINAL:
        end = final(stem[-1])
        return end > 0 and not (particle == "으로" and end == _FINAL_L)
    if particle in _AFTER_VOWEL:
        return final(stem[-1]) == 0 or (particle == "로" and final(stem[-1]) == _FINAL_L)
    return True


def _uninflected(word: str) -> str:
    if len(word) >= 3:
        noun = _HA.sub("", word)
        if noun != word and len(noun) >= 2:
            return noun
    bare = _COPULA.sub("", word)
    if bare and bare != word and len(bare) >= 2:
        word = bare
    stem = _ENDING.sub("", word)
    if not stem or (word[len(stem) :] in ("은", "을") and not final(stem[-1])):
        return word  # 가을, 마을
    if stem != word and final(stem[-1]) in (_FINAL_L, _FINAL_B) and word[len(stem)] in "까니래":
        return stem[:-1] + chr(ord(stem[-1]) - final(stem[-1]))  # 갈까, 갑니까: 가
    return stem
