"""What tells, of two near questions, whether one answer serves both: cheap, read from the texts alone.

A trained verifier weighs these. They are facts of form, not verdicts: "one is negated" is true of "is it
safe" and "is it not safe", and of "on an empty stomach" and "without eating first".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from policies.argument_order import inversions, swapped
from policies.quantities import Quantity
from policies.question_parts import Question, clip, clipped, read
from policies.word_overlap import overlap

PAIR_FEATURES_VERSION: Final = 1
"""Raised when a feature changes meaning, order or number: a model of another version does not fit."""

PAIR_FEATURES: Final[tuple[str, ...]] = (
    # The embedder's word.
    "similarity",  # the cosine
    "similarity_near_one",  # -log10(1 - cosine) in 0 .. 4: tells .95 from .99
    # Words in common. Shares of the smaller text ("contained") or of both together ("jaccard"), in 0 .. 1.
    "words_jaccard",
    "words_contained",
    "stems_jaccard",  # content words without endings and particles
    "stems_contained",
    "concepts_jaccard",  # the same, synonyms being one
    "concepts_contained",
    "trigrams_jaccard",  # of characters
    "trigrams_contained",
    "same_words",  # the same words, each as often, in any order
    "same_beginning",  # words in common at the start / words of the longer
    "same_end",
    "one_word_replaced",  # as many words, and only one of them differs
    "likeness_of_the_rest",  # letter pairs in common of the content words on one side only: high for a typo
    # Content words on one side only.
    "asked_only",  # share of the asked text's concepts that the cached one lacks: what would go unanswered
    "cached_only",  # share of the cached text's concepts that the asked one lacks
    "fewer_only",  # log(1 + concepts on one side only), of the side with fewer
    "more_only",
    "replaced",  # 1 where each side has concepts of its own, 0 where one side merely adds
    "paired_by_synonym",  # log(1 + stems on one side only that a synonym on the other answers)
    # Length.
    "length_ratio",  # words of the shorter / of the longer
    "length",  # log(1 + words of the longer)
    "cut",  # one of the texts was too long to be read whole
    "cut_differs",  # and what was left out is not the same
    # Numbers, as normalised by policies.quantities.
    "numbers_shared",  # log(1 + quantities in common)
    "numbers_differ",  # each side has some of its own
    "numbers_missing",  # only one side has some of its own
    "values_differ_in_one_unit",  # 5 km and 50 km, 10 mg and 20 mg
    "units_differ",  # 5 km and 5 miles; dollars and euros; or units named without a number
    "dates_differ",  # dates or times, each side has its own
    "ids_differ",  # gpt-4 and gpt-5, CVE numbers, 2fa and 3fa
    # Negation and opposites.
    "negation_count",  # difference of the negations, at most 3
    "negation_parity",  # one has an odd number of negations and of un- and dis- words, the other an even one
    "negated_words_differ",  # as many negations, of other words
    "prefix_negated",  # lock and unlock, 공개 and 비공개
    "opposites",  # log(1 + pairs of opposites, one word on either side)
    # Names.
    "names_differ",  # each side has names of its own, sentence beginnings aside
    "names_missing",  # only one side
    "acronyms_differ",
    # How it is asked.
    "wh_differs",  # both have question words, and none in common
    "wh_missing",  # one has a question word that the other lacks
    "modality_differs",  # can, should, must, may
    "tense_differs",  # is, used to be, will be
    "degree_differs",  # more, less, most, least, -est
    "joint_differs",  # and, or
    "scope_differs",  # all, only, except, any, none, first, last
    "form_differs",  # question, yes-no question, command, statement
    "yes_no_differs",  # one asks for a yes or no, the other with who, what, how ...
    # Order and parts.
    "parts_swapped",  # log(1 + pairs of words in each other's part), "from A to B" and "from B to A"
    "inversions",  # share of shared content words in another order
    "ends_swapped",  # the first and the last shared content word have changed places
    "voice_differs",  # active and passive
    "swapped_by_voice",  # ends swapped or voice changed, but not both: "A hit B" and "A was hit by B"
    "symmetric",  # both compare or join, so that order hardly matters: "difference between A and B"
    # What must be the same to the letter.
    "quoted_differs",  # quoted texts
    "code_differs",  # identifiers, flags, file names, paths, operators, emoji
    "quoted_missing",  # quoted, code or a minus on one side only
    # Form of the words on one side only.
    "endings_differ",  # on one side only: -est, -er, -ly
    # Language.
    "hangul_difference",  # of the shares of Hangul among the letters
    "hangul",  # the larger share
)
"""Names in the order of the columns. What differs is 1 and what does not 0, where nothing else is said."""

SPOKEN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "numbers_differ": "the numbers differ",
        "numbers_missing": "only one has the number",
        "values_differ_in_one_unit": "the amounts differ",
        "units_differ": "the units differ",
        "dates_differ": "the dates or times differ",
        "ids_differ": "the ids or versions differ",
        "negation_count": "one is negated",
        "negation_parity": "one is negated",
        "negated_words_differ": "they deny different things",
        "prefix_negated": "one is negated",
        "opposites": "they name opposites",
        "names_differ": "the names differ",
        "names_missing": "only one has the name",
        "acronyms_differ": "the acronyms differ",
        "wh_differs": "they ask for different things",
        "modality_differs": "can, should, must or may differ",
        "tense_differs": "the tenses differ",
        "degree_differs": "more, less, most or least differ",
        "joint_differs": "and and or differ",
        "scope_differs": "all, only, except, first or last differ",
        "yes_no_differs": "only one asks for yes or no",
        "parts_swapped": "from and to are swapped",
        "ends_swapped": "the words are in another order",
        "swapped_by_voice": "who does it to whom is swapped",
        "inversions": "the words are in another order",
        "same_words": "the words are the same",
        "quoted_differs": "the quoted texts differ",
        "code_differs": "the code or the signs differ",
        "replaced": "the subjects differ",
        "asked_only": "the stored question lacks words of this one",
        "cached_only": "the stored question has words beyond this one's",
        "cut_differs": "they are long and differ",
        "hangul_difference": "the languages differ",
    }
)
"""Of the features that a person understands: the words for a header that explains a decision."""

_ENDINGS: Final = ("est", "er", "ly", "gly", "cal", "ful", "less", "ive", "ous")


def pair_features(asked: str, cached: str, similarity: float) -> list[float]:
    """The features of one pair, ordered as PAIR_FEATURES, all finite. `similarity`: cosine in [-1, 1].

    Symmetric in the two texts, but that `asked_only` and `cached_only` change places. Of a text longer than
    600 characters the first 400 and the last 200 are read.
    """
    a, b = read(clip(asked)), read(clip(cached))
    near = min(max(1.0 - similarity, 1e-4), 1.0) if math.isfinite(similarity) else 1.0
    cut_a, cut_b = clipped(asked), clipped(cached)
    return [
        max(-1.0, min(1.0, similarity)) if math.isfinite(similarity) else 0.0,
        -math.log10(near),
        *overlap(a, b),
        float(bool(cut_a or cut_b)),
        float(cut_a != cut_b),
        *_numbers(a, b),
        *_polarity(a, b),
        *_names(a, b),
        *_asking(a, b),
        *_order(a, b),
        *_verbatim(a, b),
        abs(a.hangul - b.hangul),
        max(a.hangul, b.hangul),
    ]


def _numbers(a: Question, b: Question) -> list[float]:
    units = float(bool(a.units and b.units and a.units != b.units))
    if not a.quantities and not b.quantities:
        return [0.0, 0.0, 0.0, 0.0, units, 0.0, 0.0]
    shared = math.log1p(len(a.quantities & b.quantities))
    only_a = [quantity for quantity, _ in a.quantities - b.quantities]
    only_b = [quantity for quantity, _ in b.quantities - a.quantities]
    if not (only_a and only_b):
        return [shared, 0.0, float(bool(only_a or only_b)), 0.0, units, 0.0, 0.0]
    units_a, units_b = _units(only_a), _units(only_b)
    kinds = {quantity.kind for quantity in only_a} & {quantity.kind for quantity in only_b}
    return [
        shared,
        1.0,
        0.0,
        float(not units_a.isdisjoint(units_b)),
        float(units or bool(units_a and units_b and units_a != units_b)),
        float("date" in kinds or "time" in kinds),
        float("id" in kinds),
    ]


def _units(found: Iterable[Quantity]) -> set[str]:
    return {quantity.unit for quantity in found if quantity.unit}


def _polarity(a: Question, b: Question) -> list[float]:
    prefixed = 0
    if a.bare or b.bare:
        prefixed = sum(bare in b.stems and stem not in b.stems for stem, bare in a.bare.items())
        prefixed += sum(bare in a.stems and stem not in a.stems for stem, bare in b.bare.items())
    return [
        float(min(abs(a.negations - b.negations), 3)),
        float((a.negations + b.negations + prefixed) % 2),
        float(a.negations == b.negations and a.negated != b.negated),
        float(prefixed > 0),
        math.log1p(_opposites(a, b)),
    ]


def _opposites(a: Question, b: Question) -> int:
    only_b = b.poles - a.poles
    if not only_b:
        return 0
    return sum(len(a.opposed[pole] & only_b) for pole in a.poles - b.poles)


def _names(a: Question, b: Question) -> list[float]:
    only_a, only_b = a.names - b.all_words - b.names, b.names - a.all_words - a.names
    acronyms_a, acronyms_b = a.acronyms & only_a, b.acronyms & only_b
    return [
        float(bool(only_a and only_b)),
        float(bool(only_a) != bool(only_b)),
        float(bool(acronyms_a and acronyms_b)),
    ]


def _asking(a: Question, b: Question) -> list[float]:
    differing = a.cues ^ b.cues
    families = {cue.partition(":")[0] for cue in differing}
    wh_a, wh_b = _wh(a), _wh(b)
    return [
        float(bool(wh_a and wh_b and wh_a.isdisjoint(wh_b))),
        float("wh" in families),
        float("modal" in families),
        float("tense" in families),
        float("degree" in families),
        float("joint" in families),
        float("scope" in families),
        float(a.form != b.form),
        float((a.form == "yes-no") != (b.form == "yes-no") and "wh" in (a.form, b.form)),
    ]


def _wh(question: Question) -> set[str]:
    return {cue for cue in question.cues if cue.startswith("wh:")}


def _order(a: Question, b: Question) -> list[float]:
    symmetric = "symmetric:cue" in a.cues and "symmetric:cue" in b.cues
    voice = a.passive != b.passive
    shared_a = [word for word in a.order if word in b.concepts]
    shared_b = [word for word in b.order if word in a.concepts]
    share = inversions(shared_a, shared_b) if shared_a != shared_b else 0.0
    ends = share > 0 and shared_a[0] != shared_b[0] and shared_a[-1] != shared_b[-1]
    return [
        math.log1p(swapped(a.roles, b.roles)),
        share,
        float(ends),
        float(voice),
        float(ends != voice),
        float(symmetric),
    ]


def _verbatim(a: Question, b: Question) -> list[float]:
    quoted_a, quoted_b = a.quoted - b.quoted, b.quoted - a.quoted
    code_a, code_b = a.code - b.code, b.code - a.code
    endings = False
    if a.stems != b.stems:
        endings = _endings(a.stems - b.stems) != _endings(b.stems - a.stems)
    return [
        float(bool(quoted_a and quoted_b)),
        float(bool(code_a and code_b)),
        float(bool(quoted_a) != bool(quoted_b) or bool(code_a) != bool(code_b)),
        float(endings),
    ]


def _endings(words: Iterable[str]) -> set[str]:
    return {ending for word in words for ending in _ENDINGS if len(word) > 4 and word.endswith(ending)}
