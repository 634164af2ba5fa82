"""What single words say about how a question asks: who or where, may or must, is or was, all or only.

A cue is a family and a member, "wh:who". English words come whole and in lower case, Korean ones too: the
endings carry the cues.
"""

from __future__ import annotations

import re
from typing import Final

from policies.korean_words import is_past

_ENGLISH: Final = """
    wh:who = who whom whose; wh:what = what; wh:when = when; wh:where = where; wh:why = why; wh:how = how;
    wh:which = which; modal:can = can could able cannot; modal:should = should ought; modal:must = must;
    modal:may = may might; tense:future = will shall gonna; tense:past = was were did had been used
    previously formerly; degree:more = more; degree:less = less fewer; degree:most = most best; degree:least
    = least worst; degree:than = than; joint:and = and both plus; joint:or = or either; scope:all = all
    every each everything everyone whole entire entirely; scope:only = only just solely exclusively;
    scope:except = except excluding besides; scope:some = some few several; scope:any = any anything anyone;
    scope:none = none nothing nobody; scope:last = last final latest; scope:first = first earliest;
    scope:third = third; scope:fourth = fourth; scope:fifth = fifth; scope:next = next; scope:previous =
    previous; scope:half = half; scope:always = always; scope:never = never; scope:both = both; scope:at =
    minimum maximum; voice:is = is are was were be been being get gets got; voice:by = by; symmetric:cue =
    between difference differences compare compared comparison versus vs distance similarity similarities
    common together differ relation relationship; request:command = explain describe give show tell list
    write make find summarize summarise translate convert create generate please define name calculate
    compute provide suggest recommend compare help fix
"""
_KOREAN: Final = {
    "wh:who": "누구|누가|누굴",
    "wh:what": "무엇|뭐|뭘|뭔|무슨",
    "wh:when": "언제",
    "wh:where": "어디",
    "wh:why": "왜|이유|까닭",
    "wh:how": "어떻게|어떡|방법|법$|법[을은이]$",
    "wh:how much": "얼마",
    "wh:how many": "몇|며칠",
    "wh:which": "어느|어떤",
    "modal:can": "가능",
    "modal:must": ".*(?:해야|어야|아야|여야)|반드시|꼭|필수",
    "modal:may": ".*(?:해도|어도|아도|여도)",
    "tense:future": ".*겠|앞으로|예정",
    "tense:past": "예전|과거|원래",
    "degree:more": "더$",
    "degree:less": "덜$",
    "degree:most": "가장$|제일$|최고|최대",
    "degree:least": "최저|최소|최악",
    "degree:than": ".+보다$",
    "joint:and": "그리고|및$|.+[와과랑]$|.+하고$",
    "joint:or": "또는|혹은|아니면|.+이나$",
    "scope:all": "모든|모두|전부|전체|다$|각$|마다|.+마다$",
    "scope:only": "오직|만$|.+만$|.+만[을의이]$|뿐|.+뿐",
    "scope:except": "제외|빼고|말고|.+말고$|.+제외|외에|.+외에",
    "scope:some": "일부|몇몇",
    "scope:any": "아무",
    "scope:last": "마지막|최종",
    "scope:first": "처음|첫",
    "scope:next": "다음",
    "scope:previous": "이전|지난",
    "scope:half": "절반|반$",
    "scope:always": "항상|언제나|늘$",
    "voice:passive": "의해|당하|당한|당했",
    "symmetric:cue": "차이|비교|거리|사이|공통|관계",
    "request:command": ".*(?:줘|주세요|줄래|주십시오|달라)|.*(?:하라|시오|해라)$|알려",
}

_WORDS: Final[dict[str, tuple[str, ...]]] = {}
for _line in _ENGLISH.split(";"):
    _cue, _listed = _line.split("=")
    for _word in _listed.split():
        _WORDS[_word] = (*_WORDS.get(_word, ()), _cue.strip())
_PATTERNS: Final = tuple((cue, re.compile(pattern)) for cue, pattern in _KOREAN.items())
_POSITIVES = """
    test latest request interest west rest forest guest nest honest suggest protest contest harvest
    invest digest arrest chest quest priest manifest modest pest vest zest breast latest earliest
"""
_NOT_SUPERLATIVE: Final = frozenset(_POSITIVES.split())
"""Words in -est that compare nothing."""

PHRASES: Final = {
    ("wh:what", "time"): "wh:when", ("wh:what", "year"): "wh:when", ("wh:what", "day"): "wh:when",
    ("wh:what", "date"): "wh:when", ("wh:what", "place"): "wh:where", ("wh:what", "person"): "wh:who",
    ("wh:how", "come"): "wh:why", ("wh:how", "much"): "wh:how much", ("wh:how", "many"): "wh:how many",
    ("wh:how", "long"): "wh:how long", ("wh:how", "far"): "wh:how far", ("wh:how", "often"): "wh:how often",
    ("wh:how", "old"): "wh:how old", ("wh:how", "big"): "wh:how big", ("wh:how", "tall"): "wh:how tall",
}  # fmt: skip
"""Of a question word and the word behind it: what they ask together."""

_OPENINGS = "is are was were am do does did can could will would should shall may might must has have had"
YES_NO: Final = frozenset(_OPENINGS.split())
"""English words that open a question to be answered by yes or no."""


def cues(word: str) -> tuple[str, ...]:
    """The cues of one word, none for most."""
    if word.isascii():
        found = _WORDS.get(word, ())
        if not found and len(word) > 4 and word.endswith("est") and word not in _NOT_SUPERLATIVE:
            return ("degree:most",)
        return found
    found = tuple(cue for cue, pattern in _PATTERNS if pattern.match(word))
    return (*found, "tense:past") if is_past(word) else found
