"""A tool's input as an object and as text."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.messages_tool_input import as_input, as_text, is_whole
from tests.gateway.wire.messages_cases import tool_inputs


@given(tool_inputs)
def test_an_object_survives_both_ways(tool_input: dict[str, Any]) -> None:
    assert as_input(as_text(tool_input)) == tool_input


@pytest.mark.parametrize("text", ['{"a": ', "[1]", "3", "null", "what?", '{"a": 1}}'])
def test_a_text_that_is_no_object_is_kept_as_it_is(text: str) -> None:
    assert as_input(text) == {"_raw": text}
    assert as_text(as_input(text)) == text


@pytest.mark.parametrize("text", ["", " \n", "{}"])
def test_nothing_is_an_empty_object(text: str) -> None:
    assert as_input(text) == {}


def test_no_input_is_written_as_an_empty_object() -> None:
    assert as_text({}) == as_text(None) == "{}"


@given(tool_inputs, st.data())
def test_no_part_of_an_object_is_whole(tool_input: dict[str, Any], data: st.DataObject) -> None:
    text = orjson.dumps(tool_input).decode()
    cut = data.draw(st.integers(0, len(text) - 1))
    assert is_whole(text)
    assert is_whole(text + " \n")
    assert not is_whole(text[:cut])


@pytest.mark.parametrize("text", ["", "}", "[{}", '"}'])
def test_what_is_no_object_is_never_whole(text: str) -> None:
    assert not is_whole(text)
