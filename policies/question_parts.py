"""What the features of two questions compare: one text, read once.

A text is read in its beginning and its end; what was left out is known by `clipped` alone.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

import msgspec

from policies import english_words, function_words, korean_words, polarity, synonyms
from policies.argument_order import PREPOSITIONS, Roles
from policies.quantities import CURRENCIES, UNITS, Quantity, quantities
from policies.question_cues import PHRASES, YES_NO, cues

HEAD, TAIL = 400, 200
"""Characters read of a text longer than both together: a question stands first or last."""
ORDERED: Final = 64
"""Content words whose order and roles are compared: what stands beyond is compared as a set."""
_LONGEST_WORD: Final = 40

_TOKEN: Final = re.compile(r"[a-z]+(?:'[a-z]+)?|[가-힣]+|[^\W\d_]+|\+\+|#")
_CAPITALISED: Final = re.compile(r"[A-Z][A-Za-z]*")
_QUOTED: Final = re.compile(r"`+([^`]+)`+|\"([^\"]+)\"|“([^”]+)”|(?<!\w)'([^']{2,})'(?!\w)|「([^」]+)」")
_CODE: Final = re.compile(
    r"\b(?:\w+\(\)?|\w+_\w+|\w+\.\w{1,5}\b|\w*[a-z][A-Z]\w*)|(?<!\w)--?[a-z][\w-]*|[<>=!]=|[/\\]\w+"
)
_SYMBOL: Final = re.compile(r"[+*^=<>|&~\u2190-\u2bff\U0001f000-\U0001faff]|(?<!\w)-(?!\w)")
"""Operators, arrows, emoji, and a minus that joins no words: no word stands for them."""
_QUOTE_MARK: Final = re.compile(r"[`\"“'「]")
_CODE_MARK: Final = re.compile(r"[(_\\/<>=.-]")
_HANGUL: Final = re.compile(r"[가-힣]+")


class Word(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A word by itself. `stem`: without its endings; `concept`: one name for all its synonyms; `content`: it
    carries a fact; `negates`; `bare`: its stem without un-, dis-, 비 ...; `poles` and `opposed`: by which
    names it has opposites, and these; `cues`; `role`: of a Korean particle; `unit`: of a unit; `marked`: it
    negates, or has a unit, opposites or a prefix."""

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
    marked: bool
    trigrams: frozenset[str]


class Question(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    quantities: frozenset[tuple[Quantity, int]]
    units: frozenset[str]
    names: frozenset[str]
    acronyms: frozenset[str]
    quoted: frozenset[str]
    code: frozenset[str]
    trigrams: frozenset[str]
    hangul: float


def clip(text: str) -> str:
    return text if len(text) <= HEAD + TAIL else f"{text[:HEAD]}\n{text[-TAIL:]}"


def clipped(text: str) -> str:
    """What `clip` leaves out."""
    return text[HEAD:-TAIL] if len(text) > HEAD + TAIL else ""


def _concepts(listed: str) -> dict[str, str]:
    first: dict[str, str] = {}
    for group in listed.split(";"):
        stems = [english_words.stem(word) if word.isascii() else word for word in group.split()]
        name = next((first[stem] for stem in stems if stem in first), stems[0])
        for stem in stems:
            first.setdefault(stem, name)
    return first


_CONCEPTS: Final = _concepts(f"{synonyms.ENGLISH};{synonyms.KOREAN}")
_OPPOSITES: Final = polarity.pairs(polarity.ENGLISH_PAIRS, english_words.stem)
_NONE: Final[frozenset[str]] = frozenset()


@lru_cache(maxsize=16_384)
def read_word(token: str) -> Word:
    """What a word in lower case is by itself. Kept: questions are made of the same few thousand words."""
    token = token[:_LONGEST_WORD]
    if "가" <= token[0] <= "힣":
        stem, role = korean_words.part(token)
        poles = polarity.korean_poles(token)
        function = (
            korean_words.is_function_word(token)
            or korean_words.is_particle(token)
            or token in function_words.KOREAN
        )
        opposed = frozenset[str]().union(*(polarity.KOREAN_OPPOSITES[pole] for pole in poles))
        whole = stem
    else:
        whole, _, _ = token.partition("'")
        if token.endswith("n't"):
            whole = {"ca": "can", "wo": "will", "sha": "shall"}.get(token[:-3], token[:-3])
        stem, role = english_words.stem(whole), ""
        poles = (stem,) if stem in _OPPOSITES else ()
        function = whole in function_words.ENGLISH
        opposed = _OPPOSITES.get(stem, _NONE)
    said = cues(token if not token.isascii() else whole)
    if token.endswith("'ll"):
        said = (*said, "tense:future")
    negates, bare = polarity.is_negation(token), polarity.without_prefix(stem)
    unit = UNITS[whole][1] if whole in UNITS and len(whole) > 1 else CURRENCIES.get(whole, "")
    asks = any(cue.startswith("wh:") for cue in said) and whole not in ("이유", "방법")
    return Word(
        stem=stem,
        concept=_CONCEPTS.get(stem, stem),
        content=not (function or negates or asks or whole in PREPOSITIONS),
        negates=negates,
        bare=bare,
        poles=frozenset(poles),
        opposed=opposed,
        cues=said,
        role=role,
        unit=unit,
        marked=bool(poles or negates or bare or unit),
        trigrams=frozenset([f" {token} "[i : i + 3] for i in range(len(token))]),
    )


@lru_cache(maxsize=2_048)
def read(text: str) -> Question:
    """Read a text that `clip` has made short. Kept: a question is read once for all its candidates."""
    if not text.isascii():
        text = clip(unicodedata.normalize("NFKC", text).replace("’", "'").replace("‘", "'"))
    lower = text.lower()
    counted, rest = quantities(lower)
    tokens = _TOKEN.findall(rest)
    words = [read_word(token) for token in tokens]
    said, negated, order, roles = _follow(tokens, words)
    content = [word for word in words if word.content]
    marked = [word for word in words if word.marked]
    letters = sum(map(len, tokens))
    names, camel = _names(text)
    has_code = camel or _CODE_MARK.search(text, 0, len(text) - 1)  # a full stop at the end is none
    is_quoted = _QUOTE_MARK.search(text)
    return Question(
        words=tuple(tokens),
        all_words=frozenset(tokens),
        stems=frozenset([word.stem for word in content]),
        concepts=frozenset([word.concept for word in content]),
        concept_of={word.stem: word.concept for word in content},
        order=tuple(order[:ORDERED]),
        bare={word.stem: word.bare for word in marked if word.bare},
        poles=frozenset([pole for word in marked for pole in word.poles]),
        opposed={pole: word.opposed for word in marked for pole in word.poles},
        negations=sum([word.negates for word in marked]),
        negated=frozenset(negated),
        cues=frozenset(said),
        roles=frozenset(roles),
        passive=english_words.is_passive(tokens) if "voice:is" in said else "voice:passive" in said,
        form=_form(text, tokens, words, said),
        quantities=_numbered(counted) if counted else frozenset(),
        units=frozenset([word.unit for word in marked if word.unit]),
        names=frozenset([name.lower() for name in names]),
        acronyms=frozenset([name.lower() for name in names if len(name) > 1 and name.isupper()]),
        quoted=frozenset(["".join(groups) for groups in _QUOTED.findall(text)]) if is_quoted else _NONE,
        code=frozenset(_SYMBOL.findall(rest) + (_CODE.findall(text) if has_code else [])),
        trigrams=_NONE.union(*[word.trigrams for word in words]),
        hangul=0.0 if text.isascii() or not letters else sum(map(len, _HANGUL.findall(text))) / letters,
    )


def _names(text: str) -> tuple[list[str], bool]:
    """Capitalised words, but those that begin a sentence and have no second capital, and "I"; and whether a
    capital stands inside a word (camelCase)."""
    names: list[str] = []
    camel = False
    for found in _CAPITALISED.finditer(text):
        name, start = found[0], found.start()
        if start and text[start - 1].islower():
            camel = True
            continue
        before = text[max(start - 2, 0) : start]
        begins = not start or before[-1] == "\n" or before.rstrip().endswith((".", "!", "?"))
        if name != "I" and (not (begins or text[start - 1] in "\"'") or name[1:] != name[1:].lower()):
            names.append(name)
    return names, camel


def _follow(
    tokens: list[str], words: list[Word]
) -> tuple[set[str], list[str], list[str], set[tuple[str, str]]]:
    """The cues, the negated words, the order of the concepts, and their roles: in one walk over the words."""
    said: set[str] = set()
    negated: list[str] = []
    order: list[str] = []
    roles: set[tuple[str, str]] = set()
    role = asked = ""
    negates = joined = latin = False
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
        if order and latin and token >= "가" and (particle_role := korean_words.role(token)):
            roles.add((particle_role, order[-1]))
        latin = token.isascii()
        parts = PREPOSITIONS.get(token)
        if parts is not None:
            role = parts[1]
            before = order[-2:-1] if token == "than" else order[-1:]  # "gold is heavier than lead"
            roles.update((parts[0], concept) for concept in before if parts[0])
        if len(order) > ORDERED:
            role = ""
        if not word.content:
            joined = joined or token in ("and", "or")
            continue
        if role:
            roles.add((role, word.concept))
            role = ""
        if word.role and len(order) <= ORDERED:
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


def _numbered(found: tuple[Quantity, ...]) -> frozenset[tuple[Quantity, int]]:
    """A multiset as a set: each with how many of its like stand before it."""
    seen: dict[Quantity, int] = {}
    numbered = []
    for quantity in found:
        before = seen.get(quantity, 0)
        numbered.append((quantity, before))
        seen[quantity] = before + 1
    return frozenset(numbered)


def _form(text: str, tokens: list[str], words: list[Word], said: set[str]) -> str:
    if not tokens:
        return "statement"
    # "Can you explain it" is a request, "can you freeze it" a question.
    asked_to = tokens[1:2] == ["you"] and "request:command" in said
    if tokens[0] in YES_NO and not asked_to:
        return "yes-no"
    if any(cue.startswith("wh:") for cue in said):
        return "wh"
    if asked_to or "request:command" in words[0].cues or "request:command" in words[-1].cues:
        return "command"
    return "yes-no" if text.rstrip().endswith(("?", "까", "까요", "나요", "가요")) else "statement"
