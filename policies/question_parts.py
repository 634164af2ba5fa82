"""What the features of two questions compare: one text, read once.

A text is read in its beginning and its end; what was left out is known by `clipped` alone.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

import msgspec

from policies import function_words, korean_words, polarity, synonyms
from policies.argument_order import PREPOSITIONS, Roles
from policies.quantities import CURRENCIES, UNITS, Quantity, quantities
from policies.question_cues import PHRASES, YES_NO, cues

HEAD, TAIL = 400, 200
"""Characters read of a text longer than both together: a question stands first or last."""
_LONGEST_WORD: Final = 40

_TOKEN: Final = re.compile(r"[a-z]+(?:'[a-z]+)?|[가-힣]+|[^\W\d_]+|\+\+|#")
_NAME: Final = re.compile(r"(?<=[^.!?\s]\s)[A-Z][A-Za-z]*(?:[A-Z+#]|[a-z]+)|\b[A-Z]{2,}\b|\b[A-Z](?=\b(?!'))")
_QUOTED: Final = re.compile(r"`+([^`]+)`+|\"([^\"]+)\"|“([^”]+)”|‘([^’]+)’|(?<!\w)'([^']{2,})'(?!\w)|「([^」]+)」")
_CODE: Final = re.compile(r"\w+\(\)?|\w+_\w+|--?[a-z][\w-]*|\w+\.\w{1,5}\b|[<>=!]=|[/\\]\w+|\w*[a-z][A-Z]\w*")
_HAS_CODE: Final = re.compile(r"[(_\\/<>=]|-[a-z]|\w\.\w|[a-z][A-Z]")
_HANGUL: Final = re.compile(r"[가-힣]+")
_PARTICIPLE: Final = re.compile(r"(?:\w{2,}ed|\w{2,}en|made|built|sent|sold|bought|won|led|told|taught|caught|hit|cut|put|found)$")


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """A word by itself. `stem`: without its endings; `concept`: one name for all its synonyms; `content`: it
    carries a fact; `negates`; `bare`: its stem without un-, dis-, 비 ...; `poles` and `opposed`: by which
    names it has opposites, and these; `cues`; `role`: of a Korean particle; `unit`: of a unit."""

    stem: str
    concept: str
    content: bool
    negates: bool
    bare: str
    poles: frozenset[str]
    opposed: frozenset[str]
    cues: tuple[str, ...]
    role: str
    unit: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One text, read. `stems` and `concepts` are of content words alone; `order` are those concepts as they
    stand, words joined by "and" or "or" sorted; `negated` the words that a negation is next to; `words` all
    words; `kinds` by content stem: "name", "most", "more" or "manner" where its form says so; `form`:
    "yes-no", "wh", "command" or "statement"."""

    words: tuple[str, ...]
    all_words: frozenset[str]
    stems: frozenset[str]
    concepts: frozenset[str]
    concept_of: dict[str, str]
    order: tuple[str, ...]
    bare: dict[str, str]
    poles: frozenset[str]
    opposed: dict[str, frozenset[str]]
    negations: int
    negated: frozenset[str]
    cues: frozenset[str]
    roles: Roles
    passive: bool
    form: str
    quantities: tuple[Quantity, ...]
    units: frozenset[str]
    names: frozenset[str]
    acronyms: frozenset[str]
    quoted: frozenset[str]
    code: frozenset[str]
    trigrams: frozenset[str]
    hangul: float
    length: int


def clip(text: str) -> str:
    return text if len(text) <= HEAD + TAIL else f"{text[:HEAD]}\n{text[-TAIL:]}"


def clipped(text: str) -> str:
    """What `clip` leaves out."""
    return text[HEAD:-TAIL] if len(text) > HEAD + TAIL else ""


def english_stem(word: str) -> str:
    """Without the endings of number, tense and person: a light stemmer, the same for both texts."""
    if len(word) < 4:
        return word
    stem = word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("ing") and len(word) > 5:
        stem = word[:-3]
    elif word.endswith("ed") and len(word) > 4 and not word.endswith("eed"):
        stem = word[:-2]
    elif word.endswith(("ses", "xes", "ches", "shes")):
        stem = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        stem = word[:-1]
    if stem is not word and len(stem) > 3 and stem[-1] == stem[-2] and stem[-1] not in "lsz":
        return stem[:-1]  # stopped, running
    return stem[:-1] if len(stem) > 3 and stem[-1] == "e" else stem


def _concepts(listed: str) -> dict[str, str]:
    first: dict[str, str] = {}
    for group in listed.split(";"):
        stems = [english_stem(word) if word.isascii() else word for word in group.split()]
        name = next((first[stem] for stem in stems if stem in first), stems[0])
        for stem in stems:
            first.setdefault(stem, name)
    return first


_CONCEPTS: Final = _concepts(f"{synonyms.ENGLISH};{synonyms.KOREAN}")
_OPPOSITES: Final = polarity.pairs(polarity.ENGLISH_PAIRS, english_stem)
_NONE: Final[frozenset[str]] = frozenset()


@lru_cache(maxsize=16_384)
def read_word(token: str) -> Word:
    """What a word in lower case is by itself. Kept, since questions are made of the same few thousand words."""
    token = token[:_LONGEST_WORD]
    if "가" <= token[0] <= "힣":
        stem, role = korean_words.part(token)
        poles = polarity.korean_poles(token)
        function = korean_words.is_function_word(token) or token in function_words.KOREAN
        opposed = frozenset[str]().union(*(polarity.KOREAN_OPPOSITES[pole] for pole in poles))
        whole = stem
    else:
        whole, _, _ = token.partition("'")
        if token.endswith("n't"):
            whole = {"ca": "can", "wo": "will", "sha": "shall"}.get(token[:-3], token[:-3])
        stem, role = english_stem(whole), ""
        poles = (stem,) if stem in _OPPOSITES else ()
        function = whole in function_words.ENGLISH
        opposed = _OPPOSITES.get(stem, _NONE)
    said = cues(token if not token.isascii() else whole)
    if token.endswith("'ll"):
        said = (*said, "tense:future")
    negates = polarity.is_negation(token)
    unit = UNITS[whole][1] if whole in UNITS and len(whole) > 1 else CURRENCIES.get(whole, "")
    asks = any(cue.startswith("wh:") for cue in said) and whole not in ("이유", "방법")
    return Word(
        stem=stem,
        concept=_CONCEPTS.get(stem, stem),
        content=not (function or negates or asks or whole in PREPOSITIONS),
        negates=negates,
        bare=polarity.without_prefix(stem),
        poles=frozenset(poles),
        opposed=opposed,
        cues=said,
        role=role,
        unit=unit,
    )


@lru_cache(maxsize=2_048)
def read(text: str) -> Question:
    """Read a text that `clip` has made short. Kept, so that a question is read once for all its candidates."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).replace("’", "'")
    lower = text.lower()
    counted, rest = quantities(lower)
    tokens = _TOKEN.findall(rest)
    words = [read_word(token) for token in tokens]
    said, negated, order, roles = _follow(tokens, words)
    content = [word for word in words if word.content]
    letters = sum(map(len, tokens))
    squeezed = f" {' '.join(tokens)} "
    names = _NAME.findall(text)
    return Question(
        words=tuple(tokens),
        all_words=frozenset(tokens),
        stems=frozenset([word.stem for word in content]),
        concepts=frozenset([word.concept for word in content]),
        concept_of={word.stem: word.concept for word in content},
        order=tuple(order),
        bare={word.stem: word.bare for word in words if word.bare},
        poles=frozenset([pole for word in words for pole in word.poles]),
        opposed={pole: word.opposed for word in words for pole in word.poles},
        negations=sum([word.negates for word in words]),
        negated=frozenset(negated),
        cues=frozenset(said),
        roles=frozenset(roles),
        passive=_is_passive(tokens, said),
        form=_form(text, tokens, words, said),
        quantities=counted,
        units=frozenset([word.unit for word in words if word.unit]),
        names=frozenset([name.lower() for name in names]),
        acronyms=frozenset([name.lower() for name in names if len(name) > 1 and name.isupper()]),
        quoted=frozenset(["".join(groups) for groups in _QUOTED.findall(text)]),
        code=frozenset(_CODE.findall(text)) if _HAS_CODE.search(text) else _NONE,
        trigrams=frozenset([squeezed[i : i + 3] for i in range(len(squeezed) - 2)]),
        hangul=0.0 if text.isascii() or not letters else sum(map(len, _HANGUL.findall(text))) / letters,
        length=len(text),
    )


def _follow(tokens: list[str], words: list[Word]) -> tuple[set[str], list[str], list[str], set[tuple[str, str]]]:
    """The cues, the negated words, the order of the concepts, and their roles: in one walk over the words."""
    said: set[str] = set()
    negated: list[str] = []
    order: list[str] = []
    roles: set[tuple[str, str]] = set()
    role = asked = ""
    negates = joined = False
    for token, word in zip(tokens, words, strict=True):
        if asked:
            said.add(PHRASES.get((asked, token), asked))
            asked = ""
        for cue in word.cues:
            if cue.startswith("wh:") and token.isascii():
                asked = cue
            else:
                said.add(cue)
        if word.negates:
            if "가" <= token[0] <= "힣" and token not in ("안", "못"):
                negated.append(order[-1] if order else "")  # 않, 없 and 말고 stand behind what they deny
            else:
                negates = True
        parts = PREPOSITIONS.get(token)
        if parts is not None:
            role = parts[1]
            if order and parts[0]:
                roles.add((parts[0], order[-1]))
        if not word.content:
            joined = joined or token in ("and", "or")
            continue
        if role:
            roles.add((role, word.concept))
            role = ""
        if word.role:
            roles.add((word.role, word.concept))
        if negates:
            negated.append(word.concept)
            negates = False
        if joined and order and word.concept < order[-1]:
            order.insert(-1, word.concept)
        else:
            order.append(word.concept)
        joined = False
    if asked:
        said.add(asked)
    return said, negated, order, roles


def _is_passive(tokens: list[str], said: set[str]) -> bool:
    """A participle behind a form of "to be" and before "by", or 당하다, 되다 and 에 의해 behind a noun."""
    if "voice:is" in said:
        return any(_PARTICIPLE.match(token) for token in tokens) and (
            "voice:by" in said or any(_PARTICIPLE.match(token) for token in tokens[-1:])
        )
    return any(token.startswith(("의해", "당하", "당한", "당했")) for token in tokens)


def _form(text: str, tokens: list[str], words: list[Word], said: set[str]) -> str:
    if not tokens:
        return "statement"
    if tokens[0] in YES_NO and not (tokens[0] in ("can", "could", "would", "will") and tokens[1:2] == ["you"]):
        return "yes-no"
    if any(cue.startswith("wh:") for cue in said):
        return "wh"
    if "request:command" in words[0].cues or "request:command" in words[-1].cues:
        return "command"
    return "yes-no" if text.rstrip().endswith(("?", "까", "요", "？")) else "statement"
