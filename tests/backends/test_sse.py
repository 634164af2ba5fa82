from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.sse import Event, EventSizeError, SseParser


def parse(*pieces: bytes, max_event_bytes: int = 1 << 20) -> list[Event]:
    parser = SseParser(max_event_bytes)
    events = [event for piece in pieces for event in parser.feed(piece)]
    last = parser.flush()
    return events if last is None else [*events, last]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", [Event(b"a"), Event(b"b")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [Event(b"a"), Event(b"b")]),
        (b"data: a\r\rdata: b\r\r", [Event(b"a"), Event(b"b")]),
        (b"data:a\n\n", [Event(b"a")]),
        (b"data:  a\n\n", [Event(b" a")]),
        (b"data: one\ndata: two\n\n", [Event(b"one\ntwo")]),
        (b": keep-alive\n\ndata: a\n\n", [Event(b"a")]),
        (b": comment\ndata: a\n:\n\n", [Event(b"a")]),
        (b"event: error\ndata: a\n\ndata: b\n\n", [Event(b"a", "error"), Event(b"b")]),
        (b"event: ping\n\ndata: a\n\n", [Event(b"a")]),
        (b"id: 7\nretry: 10\ndata: a\n\n", [Event(b"a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event(b"a")]),
        (b"\n\n\ndata: a\n\n\n\ndata: b\n\n", [Event(b"a"), Event(b"b")]),
        (b"data\n\n", [Event(b"")]),
        ("data: tök→\n\n".encode(), [Event("tök→".encode())]),
        (b"datax: a\n\n", []),
        (b"", []),
    ],
)
def test_reads_what_the_standard_says(stream: bytes, expected: list[Event]) -> None:
    assert parse(stream) == expected
    assert parse(*(stream[i : i + 1] for i in range(len(stream)))) == expected


@pytest.mark.parametrize(
    "stream", [b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r\n", b"data: [DONE]\r"]
)
def test_gives_the_last_event_of_a_stream_without_its_blank_line(stream: bytes) -> None:
    assert parse(stream) == [Event(b"[DONE]")]


def test_does_not_wait_for_the_byte_after_a_cr() -> None:
    parser = SseParser()
    assert list(parser.feed(b"data: a\r\n\r")) == [Event(b"a")]
    assert list(parser.feed(b"\ndata: b\r\n\r\n")) == [Event(b"b")]


_LINE = st.one_of(
    st.sampled_from(["data: x", "data:", "data", "event: error", ":", ": note", "", "data: tök→", "id: 3"]),
    st.text(alphabet="data:evn \ufeffö", max_size=12),
)
_STREAM = st.lists(st.tuples(_LINE, st.sampled_from(["\n", "\r\n", "\r"])), max_size=30).map(
    lambda lines: "".join(line + end for line, end in lines).encode()
)


def _outcome(pieces: list[bytes], max_event_bytes: int) -> tuple[list[Event], bool]:
    """The events before the end or before the parser refused to go on, and whether it refused."""
    parser = SseParser(max_event_bytes)
    events: list[Event] = []
    try:
        for piece in pieces:
            for event in parser.feed(piece):
                events.append(event)  # noqa: PERF402  the error must not lose what came before it
        last = parser.flush()
    except EventSizeError:
        return events, True
    return (events if last is None else [*events, last]), False


@settings(deadline=None)  # a busy machine is no fault of the parser
@given(
    stream=_STREAM,
    cuts=st.lists(st.integers(0, 400), max_size=40),
    max_event_bytes=st.sampled_from([8, 20, 1000]),
)
def test_any_cut_gives_the_same_events(stream: bytes, cuts: list[int], max_event_bytes: int) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert b"".join(pieces) == stream
    whole = _outcome([stream], max_event_bytes)
    assert _outcome(pieces, max_event_bytes) == whole
    assert _outcome([bytes([byte]) for byte in stream], max_event_bytes) == whole


def test_refuses_an_event_that_is_too_large() -> None:
    assert parse(b"data: 4\n\n", max_event_bytes=7) == [Event(b"4")]
    assert parse(b"data: 4", b"\n", b"\n", max_event_bytes=7) == [Event(b"4")]
    with pytest.raises(EventSizeError, match="7 bytes"):
        parse(b"data: 45\n\n", max_event_bytes=7)


def test_refuses_an_event_without_end_before_it_fills_the_memory() -> None:
    parser = SseParser(max_event_bytes=1000)
    assert list(parser.feed(b"x" * 1000)) == []
    with pytest.raises(EventSizeError):
        list(parser.feed(b"x"))


def test_events_ahead_of_one_too_large_are_seen() -> None:
    events = SseParser(max_event_bytes=10).feed(b"data: a\n\ndata: " + b"x" * 100)
    assert next(events) == Event(b"a")
    with pytest.raises(EventSizeError):
        next(events)


def test_events_not_taken_come_with_the_next_piece() -> None:
    parser = SseParser()
    assert list(parser.feed(b"data: a long one")) == []
    assert next(parser.feed(b"\n\ndata: b\n\ndata: c")) == Event(b"a long one")
    assert list(parser.feed(b"\n\n")) == [Event(b"b"), Event(b"c")]
