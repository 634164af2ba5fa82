from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.sse import Event, SseReader

Said = tuple[bytes, str]


def read(*pieces: bytes, max_event_bytes: int = 1 << 20) -> tuple[list[Event], bool]:
    """The events, and whether the reader refused to go on."""
    reader = SseReader(max_event_bytes)
    events = [event for piece in pieces for event in reader.feed(piece)]
    last = None if reader.too_large else reader.flush()
    return (events if last is None else [*events, last]), reader.too_large


def said(events: list[Event]) -> list[Said]:
    return [(event.data, event.name) for event in events if event.data is not None]


def one_by_one(stream: bytes) -> list[bytes]:
    return [stream[i : i + 1] for i in range(len(stream))]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\n\r\ndata: b\r\n\n", [b"a", b"b"]),
        (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: one\ndata: two\n\n", [b"one\ntwo"]),
        (b": keep-alive\n\ndata: a\n\n", [b"a"]),
        (b": comment\ndata: a\n:\n\n", [b"a"]),
        (b"event: ping\n\ndata: a\n\n", [b"a"]),
        (b"id: 7\nretry: 10\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"\n\n\ndata: a\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data\n\n", [b""]),
        ("data: tök→\n\n".encode(), ["tök→".encode()]),
        (b"datax: a\n\n", []),
        (b"", []),
    ],
)
def test_reads_what_the_standard_says(stream: bytes, expected: list[bytes]) -> None:
    wanted = [(data, "message") for data in expected]
    assert said(read(stream)[0]) == wanted
    assert said(read(*one_by_one(stream))[0]) == wanted


def test_an_event_has_the_name_that_the_stream_gives_it() -> None:
    stream = b"event: error\ndata: a\n\ndata: b\n\n"
    assert said(read(stream)[0]) == [(b"a", "error"), (b"b", "message")]


@pytest.mark.parametrize(
    "stream", [b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r\n", b"data: [DONE]\r"]
)
def test_gives_the_last_event_of_a_stream_without_its_blank_line(stream: bytes) -> None:
    assert said(read(stream)[0]) == [(b"[DONE]", "message")]


def test_does_not_wait_for_the_byte_after_a_cr() -> None:
    reader = SseReader()
    assert said(reader.feed(b"data: a\r\n\r")) == [(b"a", "message")]
    assert said(reader.feed(b"\ndata: b\r\n\r\n")) == [(b"b", "message")]


_LINE = st.one_of(
    st.sampled_from(["data: x", "data:", "data", "event: error", ":", ": note", "", "data: tök→", "id: 3"]),
    st.text(alphabet="data:evn \ufeffö", max_size=12),
)
_STREAM = st.lists(st.tuples(_LINE, st.sampled_from(["\n", "\r\n", "\r"])), max_size=30).map(
    lambda lines: "".join(line + end for line, end in lines).encode()
)
_CUTS = st.lists(st.integers(0, 400), max_size=40)


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


@settings(deadline=None)  # a busy machine is no fault of the reader
@given(stream=_STREAM, cuts=_CUTS, max_event_bytes=st.sampled_from([8, 20, 1000]))
def test_any_cut_gives_the_same_events(stream: bytes, cuts: list[int], max_event_bytes: int) -> None:
    whole, refused = read(stream, max_event_bytes=max_event_bytes)
    for pieces in (cut(stream, cuts), one_by_one(stream)):
        events, refused_too = read(*pieces, max_event_bytes=max_event_bytes)
        assert (said(events), refused_too) == (said(whole), refused)


@settings(deadline=None)
@given(stream=_STREAM, cuts=_CUTS)
def test_any_cut_gives_the_same_bytes_out(stream: bytes, cuts: list[int]) -> None:
    events, _ = read(*cut(stream, cuts))
    assert b"".join(event.raw for event in events) == stream


def test_refuses_an_event_that_is_too_large() -> None:
    assert said(read(b"data: 4\n\n", max_event_bytes=7)[0]) == [(b"4", "message")]
    assert said(read(b"data: 4", b"\n", b"\n", max_event_bytes=7)[0]) == [(b"4", "message")]
    assert read(b"data: 45\n\n", max_event_bytes=7) == ([], True)


def test_refuses_an_event_without_end_before_it_fills_the_memory() -> None:
    reader = SseReader(max_event_bytes=1000)
    assert reader.feed(b"x" * 1000) == []
    assert not reader.too_large
    reader.feed(b"x")
    assert reader.too_large


def test_events_ahead_of_one_too_large_are_seen() -> None:
    events, refused = read(b"data: a\n\ndata: " + b"x" * 100, max_event_bytes=10)
    assert said(events) == [(b"a", "message")]
    assert refused


@settings(deadline=None)
@given(stream=_STREAM)
def test_what_is_split_as_simple_is_what_is_read(stream: bytes) -> None:
    simple = SseReader().simple(stream)
    if simple is not None:
        assert [(data, "message") for data in simple] == said(read(stream)[0])
        assert sum(len(data) + 8 for data in simple) == len(stream)


@pytest.mark.parametrize(
    ("stream", "simple"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: \n\n", [b""]),
        (b"data: a\n\n: note\n\n", None),
        (b"data: a\ndata: b\n\n", None),
        (b"data: a\n\n\n\n", None),
        (b"data: a\n\nevent: x\ndata: b\n\n", None),
        (b"data: a\r\n\r\n", None),
        (b"data: a\n\ndata: b", None),
        (b": note\n\ndata: a\n\n", None),
    ],
)
def test_simple_is_nothing_but_one_line_of_data_for_each_event(
    stream: bytes, simple: list[bytes] | None
) -> None:
    assert SseReader().simple(stream) == simple
