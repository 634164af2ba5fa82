"""What holds personal data or a secret, told by its form."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.id_numbers import IBAN_LENGTHS, is_iban, is_resident_number, is_ssn, passes_luhn
from policies.personal_data import LONG_BASE64, find_personal_data, personal_data_in, texts_in

# Every number and key is made up, or the one that its issuer prints in examples.
HOLDS = {
    "an e-mail address": [
        "mail ann@acme.io",
        "Reply to john.doe+tag@mail.example.co.uk, please",
        "연락은 kim@naver.com으로",
        "a_b@163.com",
        "<x@y.org>",
        "mailto:someone@some-where.de?subject=x",
        "ann@acme.io.",
    ],
    "a phone number": [
        "call +82 10-1234-5678",
        "+82-10-1234-5678",
        "+1 (555) 123-4567",
        "+44 20 7946 0958",
        "+14155552671",
        "+49 30 901820123",
        "010-1234-5678로 전화해",
        "01012345678",
        "010 1234 5678",
        "010.1234.5678",
        "02-123-4567",
        "02)123-4567",
        "(02) 123-4567",
        "031-123-4567",
        "070-1234-5678",
        "(555) 123-4567",
        "(555)123-4567",
        "555-123-4567",
        "555.123.4567",
        "1-800-555-0199",
        "전화번호는 010-9876-5432입니다.",
        "tel:+821012345678",
        "Phone: 415-555-2671",
    ],
    "a card number": [
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "4111111111111111",
        "my card is 5555555555554444, exp 12/29",
        "378282246310005",
        "3782 822463 10005",
        "30569309025904",
        "6011111111111117",
        "3530111333300000",
        "카드번호 4111-1111-1111-1111이야",
        "4222222222222",
        "2223003122003222",
        "6200 0000 0000 0005 ",
        "In 2024 4111 1111 1111 1111 was used",
        "6759649826438453",
    ],
    "an id number": [
        "SSN 123-45-6789",
        "my ssn is 123456789",
        "123-45-6789",
        "900101-1234567",
        "주민번호 900101-1234567입니다",
        "990229-2345678",
        "200101-3123456",
        "주민등록번호: 9001011234567",
        "DE89 3704 0044 0532 0130 00",
        "DE89370400440532013000",
        "GB29 NWBK 6016 1331 9268 19 is my IBAN",
        "FR14 2004 1010 0505 0001 3M02 606",
        "passport no. M12345678",
        "Passport number: C01234567",
        "여권번호 M123A4567",
        "ID AB12 CODE FGHI DE89 3704 0044 0532 0130 00",
    ],
    "a secret key": [
        "sk-abcd1234EFGH5678ijkl9012",
        "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2",
        "sk-ant-api03-abcDEF123_456-xyzabcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAY34FZKBOKMUTVV7A",
        "ghp_a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2",
        "github_pat_11AAAAAAA0aaaaaaaaaaaaaaa",
        "xoxb-123456789012-abcdefGHIJ",
        "AIzaSyA-1234567890abcdefghijklmnopqrstu",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEFghiJKL",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
        "-----BEGIN PRIVATE KEY-----",
        "Authorization: Bearer abcdef1234567890abcdef",
        "hf_abcdefghijklmnopqrstuvwxyzABCDEF12",
        "glpat-abcdefghij1234567890",
        "sk_live_abcdefghijklmnop12345678",
        "lg-0123456789abcdefghij01",
        "내 키는sk-abcd1234EFGH5678ijkl9012야",
    ],
}
HOLDS_NOTHING = [
    "in 2024 and 2025",
    "1998-2003",
    "from 2019-2020 to 2021-2022",
    "2024-01-15",
    "2024-01-15 10:30:00",
    "2024-01-15T10:30:00.123456Z",
    "15.01.2024",
    "01/15/2024",
    "version 1.2.3",
    "v10.0.19041.1234",
    "Python 3.11.4",
    "$1,234,567.89",
    "1234567890 won",
    "₩1,234,567,890",
    "ISBN 978-0-306-40615-7",
    "ISBN 9780306406157",
    "9791187064770",
    "0-306-40615-2",
    "PR #12345",
    "issue 1234567",
    "1234567 + 7654321",
    "1234567 - 7654321",
    "1234567-7654321",
    "12345678 * 87654321",
    "3.141592653589793",
    "1712251234",
    "1712251234567",
    "1712251234567890",
    "1712251234567890123",
    "550e8400-e29b-41d4-a716-446655440000",
    "d41d8cd98f00b204e9800998ecf8427e",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "192.168.100.200",
    "10.0.0.1:8080",
    "2001:0db8:85a3::8a2e:0370:7334",
    "12:34:56",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
    "100 200 300 400 500",
    "2 3 5 7 11 13 17 19 23 29 31",
    "0.0001234567890",
    "1e10",
    "+1234567",
    "x = a + 12345678",
    "5 +123456789",
    "(123) 456",
    "100-200-300",
    "987-65-4321",
    "000-12-3456",
    "123-00-4567",
    "901301-1234567",
    "900230-1234567",
    "900101-9234567",
    "4111 1111 1111 1112",
    "1234567890123456",
    "0000 0000 0000 0000",
    "DE89 3704 0044 0532 0130 01",
    "XX12 3456 7890 1234 5678",
    "HELLO WORLD AB12 CDEF",
    "npm install lodash@4.17.21",
    "icon@2x.png",
    "@app.route('/x')",
    "git@github.com:acme/repo.git",
    "meet @ann tomorrow",
    "A@B.T",
    "root@localhost",
    "task-scheduler-abcdefghijklmnop1234",
    "disk-abcdefghijklmnopqrst1",
    "sk-learn is a library",
    "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "use Bearer tokens in the header",
    "a passport takes 6 weeks",
    "AKIA is a prefix",
    "-----BEGIN CERTIFICATE-----",
    "hf_hub_download",
    "ghp_short",
    "우편번호 06236",
    "2024년 1월 15일",
    "서울 강남구 테헤란로 123",
    "가격은 1,234,567원",
    "사업자등록번호 123-45-67890",
    "오후 3시 30분",
    "1인당 국민소득 35000달러",
    "제123조 제4항",
    "010 Building Technology",
    "1588-1234",
    "RFC 2616",
    "area 51, 90210",
    "9:00-17:30",
    "3x4 = 12",
    "f(100) = 200",
    "12345-6789",
    "2^64 = 18446744073709551616",
    "1000000007",
    "6.02214076e23",
]
SURROUNDINGS = ["{}", "It is {}.", "a ({})", "값: {} 입니다", "before\n{}\nafter", '{{"a": "{}"}}']


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in HOLDS for text in HOLDS[kind]])
def test_found(kind: str, text: str) -> None:
    assert find_personal_data(text) == kind
    assert find_personal_data(f"{'words and 12 ' * 500}\n{text}\n{'2024-01-15, ' * 500}") == kind


@pytest.mark.parametrize("text", HOLDS_NOTHING)
def test_not_found(text: str) -> None:
    assert find_personal_data(text) is None


WORDS = [
    "the",
    "a",
    "quick",
    "fox",
    "여우",
    "빠른",
    "jumps,",
    "over.",
    "(lazy)",
    "dog's",
    "-",
    "/",
    ":",
    "개는",
]
CARDS = [
    "4###-####-####-####",
    "4###############",
    "51## #### #### ####",
    "55##############",
    "37## ###### #####",
    "34#############",
    "36## ###### ####",
    "3530 #### #### ####",
    "6011-####-####-####",
    "62## #### #### #### ###",
]


@given(st.sampled_from(CARDS), st.randoms(use_true_random=False), st.sampled_from(SURROUNDINGS))
def test_every_card_number_is_found_in_its_groups(form: str, rng: random.Random, around: str) -> None:
    drawn = "".join(rng.choice("0123456789") if mark == "#" else mark for mark in form)[:-1]
    last = next(digit for digit in "0123456789" if passes_luhn(_digits(drawn + digit)))
    wrong = str((int(last) + 1) % 10)
    assert find_personal_data(around.format(drawn + last)) == "a card number"
    assert find_personal_data(around.format(drawn + wrong)) != "a card number"


@given(st.lists(st.sampled_from(WORDS)))
def test_prose_holds_nothing(words: list[str]) -> None:
    assert find_personal_data(" ".join(words)) is None


@given(
    st.lists(st.integers(-999_999_999, 999_999_999), max_size=20),
    st.sampled_from([", ", "\n", " + ", ";", " = "]),
)
def test_integers_of_fewer_than_ten_digits_are_nothing(numbers: list[int], between: str) -> None:
    assert find_personal_data(between.join(map(str, numbers))) is None


@given(
    st.integers(0, 99_999_999),
    st.sampled_from(["010-{}-{}", "010{}{}", "010 {} {}", "+82 10-{}-{}"]),
    st.sampled_from(SURROUNDINGS),
)
def test_every_korean_mobile_number_is_found(number: int, form: str, around: str) -> None:
    digits = f"{number:08}"
    assert find_personal_data(around.format(form.format(digits[:4], digits[4:]))) == "a phone number"


@given(st.sampled_from(sorted(IBAN_LENGTHS)), st.integers(min_value=0), st.booleans())
def test_every_iban_is_found_and_none_with_a_wrong_digit(country: str, seed: int, spaced: bool) -> None:
    rng = random.Random(seed)
    account = "".join(rng.choice("0123456789") for _ in range(IBAN_LENGTHS[country] - 4))
    number = int("".join(str(int(character, 36)) for character in account + country) + "00")
    check = 98 - number % 97

    def written(check: int) -> str:
        iban = f"{country}{check:02}{account}"
        return " ".join(iban[i : i + 4] for i in range(0, len(iban), 4)) if spaced else iban

    assert is_iban(written(check))
    assert find_personal_data(f"IBAN: {written(check)}, please") == "an id number"
    assert not is_iban(written(check - 1))


def test_ranges_of_id_numbers() -> None:
    assert is_ssn("899-99-9999")
    assert not any(map(is_ssn, ("666-12-3456", "900-12-3456", "123-45-0000")))
    assert is_resident_number("000229-3000000")
    assert not any(map(is_resident_number, ("000230-3000000", "991301-1000000", "990100-1000000")))


@given(st.text())
def test_any_text_is_answered_and_what_is_found_is_never_repeated(text: str) -> None:
    assert find_personal_data(text) in (None, *HOLDS)


@pytest.mark.parametrize(
    "unit",
    [
        "eyJ-",
        "eyJa.",
        "sk-",
        "Bearer ",
        "-----BEGIN ",
        "a@",
        "1 ",
        "+1 2",
        "0",
        "4111 ",
        "AB12 ",
        "passport ",
        "(",
    ],
)
def test_long_texts_end(unit: str) -> None:
    """Made so that a pattern that goes back over the text would take minutes."""
    assert find_personal_data(unit * (200_000 // len(unit))) is None


def test_texts_of_a_body_at_any_depth_in_order() -> None:
    body: dict[str, Any] = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "n": 3}]},
        ],
        "tools": [{"function": {"description": "finds", "parameters": {"enum": ["x", None, True]}}}],
    }
    wanted = ["m", "system", "be brief", "user", "text", "look", "image_url", "finds", "x"]
    assert list(texts_in(body)) == wanted


def test_files_are_no_texts() -> None:
    base64 = "QUJD" * LONG_BASE64
    files = [
        "data:image/png;base64,AAAA",
        f"data:audio/wav;base64,{base64}",
        base64,
        f"{base64[:76]}\r\n" * 9,
    ]
    texts = [
        f"{base64} words",
        "QUJD",
        "data: ann@acme.io",
        "data:image/png;base64,AAAA and words",
        "Data, more",
    ]
    assert list(texts_in({"input": [*files, *texts]})) == texts


@pytest.mark.parametrize("kind", HOLDS)
def test_a_body_holds_what_any_of_its_texts_holds(kind: str) -> None:
    text = HOLDS[kind][0]
    assert (
        personal_data_in({"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]})
        == kind
    )
    assert personal_data_in({"input": [{"arguments": f'{{"to": "{text}"}}'}]}) == kind
    assert personal_data_in({"messages": [{"role": "user", "content": "hi", "user": text}]}) == kind


def test_who_asks_is_not_what_is_asked() -> None:
    body = {
        "user": "ann@acme.io",
        "safety_identifier": "ann@acme.io",
        "metadata": {"by": "ann@acme.io"},
        "input": "hi",
    }
    assert personal_data_in(body) is None


def test_a_body_as_deep_as_a_body_may_be() -> None:
    deep: Any = "ann@acme.io"
    for _ in range(5000):
        deep = [deep]
    assert personal_data_in({"input": deep}) == "an e-mail address"


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))
