"""The features: fixed order, finite on anything, symmetric, and each answers to what it is named after."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies import question_parts
from policies.pair_features import PAIR_FEATURES, PAIR_FEATURES_VERSION, SPOKEN, pair_features


def features(asked: str, cached: str) -> dict[str, float]:
    return dict(zip(PAIR_FEATURES, pair_features(asked, cached, 0.9), strict=True))


def test_names_are_distinct_and_their_order_is_that_of_version_1() -> None:
    assert PAIR_FEATURES_VERSION == 1
    assert len(set(PAIR_FEATURES)) == len(PAIR_FEATURES) == 61
    assert PAIR_FEATURES[:3] == ("similarity", "similarity_near_one", "words_jaccard")
    assert PAIR_FEATURES[-2:] == ("hangul_difference", "hangul")
    assert set(SPOKEN) <= set(PAIR_FEATURES)


DIFFER = [
    ("numbers_differ", "Summarise PR 123", "Summarise PR 456"),
    ("numbers_differ", "파일 3개를 지워줘", "파일 4개를 지워줘"),
    ("numbers_missing", "What happened?", "What happened in 1994?"),
    ("values_differ_in_one_unit", "Take 10 mg daily", "Take 20 mg daily"),
    ("values_differ_in_one_unit", "5km 뛰기", "10km 뛰기"),
    ("units_differ", "Run 5 km", "Run 5 miles"),
    ("units_differ", "How many miles is it?", "How many kilometers is it?"),
    ("units_differ", "100달러 환전", "100유로 환전"),
    ("dates_differ", "Flights on Jan 5, 2023", "Flights on 2023-01-06"),
    ("dates_differ", "오전 9시 기차", "오후 9시 기차"),
    ("ids_differ", "Is GPT-4 open?", "Is GPT-5 open?"),
    ("negation_count", "Is it safe?", "Is it not safe?"),
    ("negation_count", "먹어도 되나요", "안 먹어도 되나요"),
    ("negation_count", "갈 수 있는 곳", "갈 수 없는 곳"),
    ("negation_count", "문을 열지 마", "문을 열어"),
    ("negation_parity", "Is it safe?", "Is it unsafe?"),
    ("negated_words_differ", "a cake without eggs but with milk", "a cake with eggs but without milk"),
    ("negated_words_differ", "설탕 없이 우유로", "우유 없이 설탕으로"),
    ("prefix_negated", "Lock the door", "Unlock the door"),
    ("prefix_negated", "공개 저장소", "비공개 저장소"),
    ("opposites", "Turn dark mode on", "Turn dark mode off"),
    ("opposites", "Enabling swap", "Disabled swap"),
    ("opposites", "Commits since May", "Commits until May"),
    ("opposites", "다크 모드 켜는 법", "다크 모드 끄는 법"),
    ("opposites", "가장 큰 도시", "가장 작은 도시"),
    ("names_differ", "Fly to Oslo now", "Fly to Rome now"),
    ("names_missing", "Which city is it?", "Which city in Peru is it?"),
    ("acronyms_differ", "What does NASA do?", "What does ESA do?"),
    ("wh_differs", "Who found it?", "When was it found?"),
    ("wh_differs", "How much is it?", "How long is it?"),
    ("wh_differs", "누가 만들었어?", "언제 만들었어?"),
    ("wh_missing", "How do I do this?", "I do this"),
    ("modality_differs", "Can I leave?", "Must I leave?"),
    ("modality_differs", "먹어도 되나요", "먹어야 되나요"),
    ("tense_differs", "Who is the king?", "Who was the king?"),
    ("tense_differs", "사장은 누구야?", "사장은 누구였어?"),
    ("degree_differs", "the most rain", "the least rain"),
    ("degree_differs", "더 좋은 것", "덜 좋은 것"),
    ("joint_differs", "cats and dogs", "cats or dogs"),
    ("joint_differs", "고양이와 개", "고양이나 개"),
    ("scope_differs", "Delete all rows", "Delete some rows"),
    ("scope_differs", "파일을 모두 지워줘", "PDF만 지워줘"),
    ("form_differs", "Explain DNS", "What is DNS?"),
    ("yes_no_differs", "Is DNS slow?", "Why is DNS slow?"),
    ("parts_swapped", "merge develop into main", "merge main into develop"),
    ("parts_swapped", "from Oslo to Rome", "from Rome to Oslo"),
    ("parts_swapped", "Is gold heavier than lead?", "Is lead heavier than gold?"),
    ("parts_swapped", "서울에서 부산까지", "부산에서 서울까지"),
    ("parts_swapped", "달러를 원으로", "원을 달러로"),
    ("parts_swapped", "고양이가 개를 봤어", "개가 고양이를 봤어"),
    ("parts_swapped", "main에서 dev로 병합", "dev에서 main으로 병합"),
    ("inversions", "convert a CSV to JSON", "convert a JSON to CSV"),
    ("ends_swapped", "Apple sued Samsung", "Samsung sued Apple"),
    ("voice_differs", "Anna wrote it", "It was written by Anna"),
    ("swapped_by_voice", "Apple sued Samsung", "Samsung sued Apple"),
    ("swapped_by_voice", "Did Brutus kill Caesar?", "Was Brutus killed by Caesar?"),
    ("quoted_differs", 'What does "foo" mean?', 'What does "bar" mean?'),
    ("code_differs", "Call list.sort() here", "Call list.pop() here"),
    ("code_differs", "use git log --all", "use git log --graph"),
    ("code_differs", "What is 2 + 3?", "What is 2 - 3?"),
    ("code_differs", "Is x < y", "Is x > y"),
    ("code_differs", "What does 👍 mean?", "What does 👎 mean?"),
    ("quoted_missing", "Convert -5 degrees", "Convert 5 degrees"),
    ("quoted_missing", "What does `x` mean?", "What does it mean?"),
    ("endings_differ", "the tallest tower", "the tall tower"),
    ("hangul_difference", "What is the capital?", "수도가 어디야?"),
    ("one_word_replaced", "red paint for walls", "blue paint for walls"),
    ("paired_by_synonym", "buy a phone", "purchase a phone"),
    ("paired_by_synonym", "핸드폰 구매", "휴대폰 구매"),
    ("replaced", "paint for walls", "paint for floors"),
    ("asked_only", "paint for outside walls", "paint for walls"),
    ("cached_only", "paint for walls", "paint for outside walls"),
    ("likeness_of_the_rest", "recieve mails", "receive mails"),
]


@pytest.mark.parametrize(("name", "asked", "cached"), DIFFER)
def test_a_feature_sees_what_it_is_named_after(name: str, asked: str, cached: str) -> None:
    assert features(asked, cached)[name] > features(cached, cached)[name]
    swap = {"asked_only": "cached_only", "cached_only": "asked_only"}.get(name, name)
    assert features(cached, asked)[swap] == features(asked, cached)[name]


ALIKE = [
    ("numbers_differ", "Convert 5 miles", "convert five miles"),
    ("numbers_differ", "1,000 mg of it", "1 g of it"),
    ("dates_differ", "Flights on 2023-01-05", "Flights on Jan 5, 2023"),
    ("units_differ", "Run 5 km", "Run 5 kilometers"),
    ("negation_parity", "Is it not safe?", "Is it unsafe or safe?"),
    ("names_differ", "What is Rome?", "Tell me what rome is"),
    ("names_missing", "Convert it", "please convert it"),
    ("wh_differs", "What time does it open?", "When does it open?"),
    ("parts_swapped", "Move it from Oslo to Rome", "Move it to Rome from Oslo"),
    ("parts_swapped", "서울에서 부산까지", "부산까지 서울에서"),
    ("inversions", "Difference between TCP and UDP", "Difference between UDP and TCP"),
    ("swapped_by_voice", "Did Brutus kill Caesar?", "Was Caesar killed by Brutus?"),
    ("asked_only", "수도는 어디야?", "수도가 어디인가요?"),
    ("asked_only", "파이썬 설치해줘", "파이썬을 설치해 주세요"),
    ("asked_only", "buy a phone", "purchase the phones"),
    ("code_differs", "Call foo() now", "now call foo()"),
    ("code_differs", "a two-factor login", "a login with two factors"),
    ("quoted_missing", "Flights on 2023-01-05", "Flights on Jan 5, 2023"),
    ("opposites", "Enable it", "Enabled it"),
    ("form_differs", "What is DNS?", "What's DNS?"),
    ("modality_differs", "I can't go", "I cannot go"),
]


@pytest.mark.parametrize(("name", "asked", "cached"), ALIKE)
def test_a_feature_lets_pass_what_is_the_same(name: str, asked: str, cached: str) -> None:
    assert features(asked, cached)[name] == features(cached, asked)[name] == 0


def test_order_of_a_comparison_is_known_to_matter_little() -> None:
    assert features("difference between TCP and UDP", "compare UDP and TCP")["symmetric"] == 1
    assert features("convert TCP to UDP", "convert UDP to TCP")["symmetric"] == 0


@pytest.mark.parametrize("text", ["", "?", "How do I reset my password?", "비밀번호를 잊었어요", "a" * 5_000])
def test_a_text_is_itself(text: str) -> None:
    same = features(text, text)
    assert all(same[name] == 1 for name in PAIR_FEATURES if name.endswith(("jaccard", "contained", "ratio")))
    said = [name for name in SPOKEN if name not in ("same_words", "cut") and same[name]]
    assert said == []


@pytest.mark.parametrize(
    ("similarity", "near"),
    [(1.0, 4.0), (0.99, 2.0), (0.9, 1.0), (0.0, 0.0), (-1.0, 0.0), (1.0000001, 4.0), (math.nan, 0.0)],
)
def test_similarity_is_spread_near_one(similarity: float, near: float) -> None:
    row = pair_features("a", "b", similarity)
    assert row[1] == pytest.approx(near)
    assert -1 <= row[0] <= 1


TEXTS = st.text(max_size=200) | st.text("0123456789.,:/- apmkg년월일시안못않에서로'\"`()_AB", max_size=200)


@given(TEXTS, TEXTS, st.floats(-1, 1))
@example("\x00\ud800", "٣³½Ⅷ", 1.0)
@example("ﷺ" * 700, "İ" * 700, 0.5)
@example("9" * 700, "1e999 0" * 100, 0.5)
def test_every_pair_gives_finite_features_and_symmetric_ones(asked: str, cached: str, cosine: float) -> None:
    row = pair_features(asked, cached, cosine)
    assert len(row) == len(PAIR_FEATURES)
    assert all(type(value) is float and math.isfinite(value) for value in row)
    there, back = features(asked, cached), features(cached, asked)
    back["asked_only"], back["cached_only"] = back["cached_only"], back["asked_only"]
    assert there == back


def test_of_a_long_text_the_beginning_and_the_end_are_read_and_the_cut_is_told() -> None:
    middle = "word " * 300_000
    long = f"How do I merge? {middle} Thanks in advance for merging."
    other = f"How do I merge? {middle}not {middle} Thanks in advance for merging."
    assert len(question_parts.clip(long)) < 700
    assert (features(long, long)["cut"], features(long, long)["cut_differs"]) == (1, 0)
    assert (features(long, other)["cut"], features(long, other)["cut_differs"]) == (1, 1)
    assert (features("short", "short")["cut"], features("short", long)["cut_differs"]) == (0, 1)


@pytest.mark.parametrize("unit", ["a", "aA", "a_", "1", "1a", "a1", "one ", "'", "`", "a-", "(", "가", "no "])
def test_no_megabyte_is_looked_at_longer_than_what_is_read_of_it(unit: str) -> None:
    # Quadratic patterns over a megabyte would take hours, and the suite with them.
    row = pair_features(unit * (1_000_000 // len(unit)), unit * 900_000, 0.9)
    assert all(map(math.isfinite, row))
