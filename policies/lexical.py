"""Cheap features of what a user asked, read from its characters and words alone: no model, no I/O.

English and Korean cues. A feature is a property of form (length, numbers, code, choices) or a count of
cue words; counts go in as log(1 + n), so that repeating a cue buys little.
"""

from __future__ import annotations

import math
import re
from typing import Final

import numpy as np
import numpy.typing as npt

LEXICAL_VERSION: Final = 1
"""Raised when a feature changes meaning, order or number: weights of another version do not fit."""

LEXICAL_FEATURES: Final = (
    "length",  # log(1 + characters), a wide character counted as 2.5
    "length_squared",  # the square of `length`: difficulty need not rise evenly with it
    "words",  # log(1 + words)
    "word_length",  # mean letters per Latin word, at most 12; 4.5 where there are fewer than two
    "variety",  # distinct words / words
    "capitals",  # share of the Latin words that begin with a capital
    "digit_share",  # of the characters
    "numbers",  # log(1 + numbers)
    "math_symbols",  # log(1 + operators, relations and Greek or set-theory signs)
    "latex",  # log(1 + LaTeX commands and dollar signs)
    "code",  # log(1 + code markers)
    "questions",  # log(1 + question marks)
    "sentences",  # log(1 + sentence ends)
    "newlines",  # log(1 + line breaks)
    "blanks",  # log(1 + runs of underscores)
    "choices",  # share of the letters A to D that head a line as an option
    "parts",  # log(1 + numbered, lettered or bulleted lines)
    "demanding",  # log(1 + prove, derive, design, optimise, refactor, analyse, compare ...)
    "casual",  # log(1 + greetings, thanks, translate, define, spell ...)
    "recall",  # log(1 + who, when, where, which, capital, name ...)
    "reasoning",  # log(1 + why, how, explain, because ...)
    "quantity",  # log(1 + many, much, total, percent, probability ...)
    "condition",  # log(1 + if, suppose, given, unless, such ...)
    "joining",  # log(1 + and, then, also, finally, step ...)
    "negation",  # log(1 + not, except, never, false ...)
    "technical",  # log(1 + terms of mathematics, science, software, law and medicine)
)
"""Names in the order of the columns."""

_HEAD, _TAIL = 1_500, 500  # characters read of a long prompt: what to do stands first or last

_TOKEN = re.compile(r"[A-Za-z]+|[가-힣]+|[0-9]+(?:[.,][0-9]+)*")
_WIDE = re.compile(r"[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff가-힣]+")
_MATH = re.compile(r"[=+*/^<>≤≥≠≈±×÷√∑∏∫∂∞∈∉⊂⊆∪∩∀∃→⇒⇔%α-ω]")
_LATEX = re.compile(r"\\[A-Za-z]+|\$")
_CODE_MARKS = ("```", "{", "}", ";\n", "()", "=>", "->", "==", "!=", "::", "</", "self.", "0x")
_CODE_LINE = re.compile(
    r"^[ \t]*(?:def|class|import|from|return|for|while|func|fn|let|const|var|public|private|#include|SELECT"
    r"|INSERT|UPDATE|CREATE)\b",
    re.MULTILINE,
)
_SENTENCE = re.compile(r"[.!?。？！]+(?=\s|$)")
_BLANK = re.compile(r"_{2,}")
_CHOICE = re.compile(r"^[ \t]*\(?([A-D])[.):]", re.MULTILINE)
_PART = re.compile(r"^[ \t]*(?:\d{1,2}[.)]|\([a-z0-9]\)|[-*•])[ \t]", re.MULTILINE)

_ENGLISH: Final = {
    "demanding": """prove proof derive derivation design architect architecture optimise optimize optimal
        refactor analyse analyze analysis compare contrast evaluate critique implement debug diagnose
        rigorous rigorously formalise formalize justify tradeoffs tradeoff trade complexity scalable scale
        concurrency distributed algorithm comprehensive detailed strategy simulate model minimise minimize
        maximise maximize vulnerability bottleneck migrate essay synthesise synthesize""",
    "casual": """hi hello hey thanks thank please bye goodbye morning evening night weather joke translate
        spell synonym antonym define meaning favourite favorite recommend cute happy birthday okay ok yes
        welcome sorry greeting emoji rhyme""",
    "recall": """who whom whose when where which capital name country city year born located wrote invented
        president author colour color day month""",
    "reasoning": """why how explain because therefore conclude infer reason reasoning imply implies
        consequence cause likely best argument""",
    "quantity": """many much total each every per percent percentage probability average sum difference
        twice half times cost price rate ratio remaining left altogether calculate compute solve""",
    "condition": """if suppose assume given unless such let whether provided where subject constraint
        constraints following must exactly""",
    "joining": "and then also finally additionally step steps both next first second",
    "negation": "not no except never false incorrect least none cannot neither nor without wrong",
    "technical": """theorem lemma matrix eigenvalue eigenvalues polynomial integral derivative differential
        equation equations topology group ring field continuous convergence bayesian regression gradient
        quantum entropy momentum molecule reaction enzyme protein gene acid oxidation voltage circuit
        statute liability plaintiff defendant jurisdiction contract constitutional diagnosis patient
        symptoms syndrome kernel thread mutex deadlock database sql api python java rust javascript
        kubernetes tcp cache latency throughput compiler recursion graph tree function array consensus
        encryption tensor neural transformer inflation elasticity monetary equilibrium""",
}
_KOREAN: Final = {
    "demanding": "증명|유도하|유도해|유도과정|설계|최적화|리팩터|리팩토|분석|비교|평가하|평가해|구현|디버그"
    "|디버깅|진단|엄밀|논증|논하|비판|복잡도|확장성|동시성|분산|알고리즘|아키텍처|전략|상세|자세히|최소화|최대화|근거",
    "casual": "안녕|고마워|감사합|감사해|잘 자|반가|번역|영어로|한국어로|뜻이|뜻은|무슨 뜻|농담|날씨"
    "|추천|맞춤법|비슷한 말|반대말|생일|심심|미안",
    "recall": "누구|누가|언제|어디|어느|수도|이름|몇 년|태어|위치",
    "reasoning": "왜|어떻게|설명|이유|때문|따라서|그러므로|원인|추론",
    "quantity": "몇|얼마|모두|합계|확률|평균|퍼센트|비율|배수|계산|구하시오|구하라|구해|풀어",
    "condition": "만약|만일|이라면|다면|일 때|할 때|주어진|가정|조건|제약|다음 중|반드시",
    "joining": "그리고|또한|다음으로|먼저|단계|각각|및 ",
    "negation": "아닌|않은|않는|없는|틀린|제외|못하",
    "technical": "정리|행렬|고유값|고윳값|다항식|적분|미분|방정식|위상|연속|수렴|회귀|양자|엔트로피|운동량"
    "|분자|반응|효소|단백질|유전자|산화|전압|회로|법률|판례|계약|헌법|환자|증상|증후군|커널|스레드|교착|데이터베이스|쿼리"
    "|파이썬|자바|쿠버네티스|캐시|지연|처리량|컴파일러|재귀|그래프|트리|함수|배열|합의|암호|신경망|트랜스포머|물가"
    "|통화|균형",
}
_CUES: Final = tuple(_ENGLISH)
_WORD_CUES: Final[dict[str, tuple[int, ...]]] = {
    word: tuple(i for i, cue in enumerate(_CUES) if word in _ENGLISH[cue].split())
    for cue_words in _ENGLISH.values()
    for word in cue_words.split()
}
_STEM_CUES: Final[dict[str, int]] = {
    stem: cue for cue, name in reversed(tuple(enumerate(_CUES))) for stem in _KOREAN[name].split("|")
}
_STEM: Final = re.compile("|".join(sorted(_STEM_CUES, key=len, reverse=True)))


def lexical_features(text: str) -> npt.NDArray[np.float32]:
    """The features of one prompt: float32 (F,), ordered as LEXICAL_FEATURES, all finite.

    Of a prompt longer than 2,000 characters the first 1,500 and the last 500 are read; `length` counts
    all of it. Takes about 0.05 ms for a prompt of 300 characters.
    """
    whole = len(text)
    if whole > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    tokens = _TOKEN.findall(text)
    numbers = [token for token in tokens if token[0] <= "9"]
    words = " ".join([token for token in tokens if token[0] > "9"]).lower().split()
    latin = [word for word in words if word.isascii()]
    letters = sum(map(len, latin))
    wide = 0 if text.isascii() else sum(map(len, _WIDE.findall(text)))
    read = max(len(text), 1)
    length = math.log1p(whole * (1 + 1.5 * wide / read))
    row = (
        length,
        length * length,
        math.log1p(len(words)),
        min(letters / len(latin), 12.0) if len(latin) > 1 else 4.5,
        len(set(words)) / len(words) if words else 1.0,
        sum("A" <= token[0] <= "Z" for token in tokens) / len(latin) if latin else 0.0,
        sum(map(len, numbers)) / read,
        math.log1p(len(numbers)),
        math.log1p(len(_MATH.findall(text))),
        math.log1p(len(_LATEX.findall(text))),
        math.log1p(sum(map(text.count, _CODE_MARKS)) + len(_CODE_LINE.findall(text))),
        math.log1p(text.count("?") + text.count("？")),
        math.log1p(len(_SENTENCE.findall(text))),
        math.log1p(text.count("\n")),
        math.log1p(len(_BLANK.findall(text))) if "__" in text else 0.0,
        len(set(_CHOICE.findall(text))) / 4,
        math.log1p(len(_PART.findall(text))),
        *(math.log1p(count) for count in _cue_counts(text, latin, wide)),
    )
    return np.array(row, dtype=np.float32)


def _cue_counts(text: str, latin: list[str], wide: int) -> list[int]:
    counts = [0] * len(_CUES)
    for word in latin:
        for cue in _WORD_CUES.get(word, ()):
            counts[cue] += 1
    if wide:
        for stem in _STEM.findall(text):
            counts[_STEM_CUES[stem]] += 1
    return counts
