"""One spelling for each quantity, and another for every other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.quantities import quantities


def found(text: str) -> list[tuple[str, str, str]]:
    return sorted((q.kind, q.value, q.unit) for q in quantities(text)[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1,000 files", "1000 files"),
        ("twenty five people", "25 people"),
        ("two hundred and ten", "210"),
        ("three million", "3 million"),
        ("1000 mg", "1 g"),
        ("1500mg", "1.5 g"),
        ("5 km", "5000 metres"),
        ("60 minutes", "one hour"),
        ("20%", "20 percent"),
        ("$5", "5 dollars"),
        ("€800", "800 euros"),
        ("2023-01-05", "jan 5, 2023"),
        ("2023-01-05", "5 january 2023"),
        ("2023-01-05", "2023년 1월 5일"),
        ("may 5", "5월 5일"),
        ("3 pm", "15:00"),
        ("3:30 pm", "15:30"),
        ("오후 3시 30분", "15:30"),
        ("오후 3시 반", "15:30"),
        ("38.5 degrees celsius", "38.5 °c"),
        ("5만원", "50,000원"),
        ("100달러", "100 dollars"),
        ("두 시간", "2시간"),
        ("세 명", "3명"),
        ("gpt-4", "gpt4"),
        ("v2.1", "2.1"),
        ("in 1988", "1988년에"),
    ],
)
def test_spellings_of_one_quantity(one: str, other: str) -> None:
    assert len(found(one)) == 1
    assert found(one) == found(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5 km", "5 miles"),
        ("5 mg", "5 g"),
        ("$100", "€100"),
        ("100달러", "100유로"),
        ("pr 123", "pr 456"),
        ("#123", "#124"),
        ("python 3.10", "python 3.1"),
        ("1.2.3", "1.2.4"),
        ("cve-2021-44228", "cve-2021-45046"),
        ("covid-19", "covid-20"),
        ("7 am", "7 pm"),
        ("오전 9시", "오후 9시"),
        ("2023-01-05", "2023-05-01"),
        ("jan 5", "feb 5"),
        ("1월 5일", "1월 15일"),
        ("두 살", "여섯 살"),
        ("3", "3%"),
        ("12345678901234567", "12345678901234568"),
        ("5 million", "5 billion"),
    ],
)
def test_two_quantities(one: str, other: str) -> None:
    assert found(one)
    assert found(other)
    assert found(one) != found(other)


@pytest.mark.parametrize("text", ["which one is it", "someone", "한국의 수도", "", "often", "weight"])
def test_no_quantity(text: str) -> None:
    assert quantities(text) == ((), text)


def test_a_quantity_leaves_the_text_and_the_rest_stays() -> None:
    counted, rest = quantities("convert 5 km into miles, please")
    assert [(q.value, q.unit) for q in counted] == [("5000", "m")]
    assert rest.split() == ["convert", "into", "miles,", "please"]


@given(st.text() | st.text("0123456789.,:/- apmkg년월일시분만억$", max_size=60))
def test_any_text_is_read(text: str) -> None:
    counted, rest = quantities(text.lower())
    assert all(q.value for q in counted)
    assert len(rest) <= len(text.lower()) + len(counted)
