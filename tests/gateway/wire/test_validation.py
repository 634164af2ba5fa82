"""JSON against known fields, and what is said of what does not fit."""

from __future__ import annotations

from typing import Any, Literal, get_args

import orjson
import pytest
from msgspec import Struct

from gateway.errors import RequestError
from gateway.wire.validation import MAX_DEPTH, checked, field_error, parse_object

Colour = Literal["red", "blue"]


class Inner(Struct):
    size: int


class Outer(Struct):
    colour: Colour
    inner: list[Inner] | None = None


def refusal(value: Any, **how: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        checked(value, Outer, **how)
    return caught.value


def test_known_fields_are_read_and_unknown_ones_pass() -> None:
    assert checked({"colour": "red", "inner": [{"size": 1}], "later": 3}, Outer) == Outer(
        colour="red", inner=[Inner(size=1)]
    )


def test_the_path_of_a_wrong_field_is_named() -> None:
    error = refusal({"colour": "red", "inner": [{"size": 1}, {"size": "x"}]})
    assert error.param == "inner[1].size"
    assert str(error) == "inner[1].size: expected `int`, got `str`."
    assert error.code == "invalid_value"


def test_the_path_goes_on_below_the_one_given() -> None:
    assert refusal({"colour": "red", "inner": [{}]}, path="a[0]").param == "a[0].inner[0].size"
    assert refusal(3, path="a[0]").param == "a[0]"
    assert refusal(3).param is None


def test_a_missing_field_has_a_code_of_its_own() -> None:
    error = refusal({})
    assert (error.param, error.code) == ("colour", "missing_required_parameter")


def test_the_choices_are_listed() -> None:
    error = refusal({"colour": "green"}, choices={"colour": get_args(Colour)})
    assert str(error) == "colour: expected one of red, blue, got 'green'."


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"\xff"])
def test_a_body_must_be_a_json_object(raw: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        parse_object(raw)
    assert caught.value.code == "invalid_json"


def test_a_field_error_names_the_body_when_no_field_is_to_blame() -> None:
    assert str(field_error(None, "expected `object`")) == "body: expected `object`."


def test_a_body_is_nested_as_deep_as_can_be_written_again() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    orjson.dumps(parse_object(nested(MAX_DEPTH)))
    with pytest.raises(RequestError, match="nested more than 240 levels") as caught:
        parse_object(nested(MAX_DEPTH + 1))
    assert caught.value.status == 400


def test_a_body_may_have_any_number_of_brackets_side_by_side() -> None:
    assert len(parse_object(b'{"a":[' + b"[]," * 999 + b"{}]}")["a"]) == 1000
