from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.batched.text import Detokenizer, StopStrings


def _decode_bytes(tokens: Sequence[int]) -> str:
    """A tokenizer whose tokens are bytes."""
    return bytes(tokens).decode(errors="replace")


def _feed_all(stops: StopStrings, parts: Sequence[str]) -> str:
    return "".join(stops.feed(part) for part in parts)


def test_detokenizer_holds_an_unfinished_character() -> None:
    detokenizer = Detokenizer(_decode_bytes)
    first, *rest = "é".encode()
    assert detokenizer.feed([first]) == ""
    assert detokenizer.feed(rest) == "é"


def test_detokenizer_gives_up_an_unfinished_character_at_the_end() -> None:
    detokenizer = Detokenizer(_decode_bytes)
    detokenizer.feed([*b"ab", 0xF0])
    assert detokenizer.flush() == "ab�"


@given(st.text(alphabet=st.characters(exclude_characters="�", exclude_categories=["Cs"])), st.integers(1, 5))
def test_detokenizer_loses_and_invents_nothing(text: str, step: int) -> None:
    detokenizer = Detokenizer(_decode_bytes)
    tokens = text.encode()
    out = [detokenizer.feed(tokens[at : at + step]) for at in range(0, len(tokens), step)]
    assert "".join(out) + detokenizer.flush() == text
    assert not any("�" in part for part in out)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["one STOP two"], "one "),
        (["one ST", "OP two"], "one "),
        (["one S", "T", "O", "P"], "one "),
        (["one SSTOP"], "one S"),
        (["ab", "END", "STOP"], "ab"),
    ],
)
def test_stop_string_over_pieces(parts: list[str], expected: str) -> None:
    stops = StopStrings(["STOP", "END"])
    assert _feed_all(stops, parts) == expected
    assert stops.stopped
    assert stops.feed("more") == ""


def test_a_beginning_that_is_no_stop_string_goes_out() -> None:
    stops = StopStrings(["STOP"])
    assert _feed_all(stops, ["a ST", "ART and ST"]) == "a START and "
    assert not stops.stopped
    assert stops.flush() == "ST"


@given(
    st.lists(st.text("ab", max_size=3), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_stop_strings_cut_as_if_the_text_came_at_once(parts: list[str], wanted: list[str]) -> None:
    text = "".join(parts)
    found = [at for stop in wanted if (at := text.find(stop)) >= 0]
    stops = StopStrings(wanted)
    out = _feed_all(stops, parts)
    if not found:
        assert out + stops.flush() == text
    else:
        assert stops.stopped
        # Text arrives in order, so the stop string that is complete first ends it.
        ends = {text.find(stop) + len(stop): text.find(stop) for stop in wanted if text.find(stop) >= 0}
        assert len(out) <= min(max(found), ends[min(ends)])
        assert text.startswith(out)
