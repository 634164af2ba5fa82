"""Server-sent events, read from bytes that may be cut anywhere, with the bytes they came as."""

from __future__ import annotations

import re

import msgspec

_BOM = b"\xef\xbb\xbf"
_LINE_END = rb"(?>\r\n|\n|\r)"
_BLANK_LINE = re.compile(_LINE_END + _LINE_END)
_LAST_LINE_END = re.compile(_LINE_END + rb"\Z")
_TAIL_BYTES = 3  # a blank line is at most four bytes, the last of which is new


class Event(msgspec.Struct, frozen=True, gc=False):
    """`raw`: the bytes as they came, the blank line included. `data`: those of the data lines, joined by
    LF; None when there were none (comments, stray line ends). `name`: "message" unless the stream says."""

    raw: bytes
    data: bytes | None
    name: str = "message"


class SseReader:
    """Incremental reader of `text/event-stream` (WHATWG HTML, section 9.2.6).

    Works on bytes, so characters cut in two need no care; the `raw` of all events together are the bytes
    that were fed, wherever they were cut. `id` and `retry` lines are read over: an answer cannot be
    resumed. Differs from the standard in one point: `flush` gives the last event even when the stream ended
    without the blank line after it, which some servers leave out after `[DONE]`.
    """

    def __init__(self, max_event_bytes: int = 16 * 1024 * 1024) -> None:
        self.too_large = False
        """Set once an event was larger than allowed: the events returned are those ahead of it, and no
        more will come."""
        self._max_event_bytes = max_event_bytes
        self._parts: list[bytes] = []  # bytes that end no event yet
        self._size = 0
        self._tail = b""
        self._after_cr = False  # an event ended with a CR whose LF may follow
        self._begun = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes."""
        events: list[Event] = []
        if not data or self.too_large:
            return events
        if self._after_cr:
            self._after_cr = False
            if data[0] == 0x0A:
                events.append(Event(b"\n", None))
                data = data[1:]
        probe = self._tail + data
        if _BLANK_LINE.search(probe) is None:
            self._keep(data, probe)
            return events
        if self._parts:
            data = b"".join([*self._parts, data])
            self._parts.clear()
        if b"\r" in data:
            self._split(data, events)
        else:
            self._split_on_lf(data, events)
        return events

    def simple(self, data: bytes) -> list[bytes] | None:
        """The data of each event, when `data` holds nothing but whole events of one `data:` line each that
        end in LF, as most servers send them; else None, and `feed` is to be called. Event i is 8 bytes
        longer than its data: `data: ` before it, the blank line after it."""
        if self._parts or self._after_cr or b"\r" in data or len(data) > self._max_event_bytes:
            return None
        if not (data.startswith(b"data: ") and data.endswith(b"\n\n")):
            return None
        simple = data[6:-2].split(b"\n\ndata: ")
        if data.count(b"\n") != 2 * len(simple):  # a comment, a further line, another field
            return None
        self._begun = True
        return simple

    def flush(self) -> Event | None:
        """The event left when the stream has ended, if any."""
        raw = b"".join(self._parts)
        self._parts.clear()
        return self._event(raw, raw) if raw else None

    def _split_on_lf(self, data: bytes, events: list[Event]) -> None:
        blocks = data.split(b"\n\n")
        rest = blocks.pop()
        for block in blocks:
            if len(block) > self._max_event_bytes:
                self.too_large = True
                return
            events.append(self._event(block, block + b"\n\n"))
        self._size, self._tail = 0, b""
        if rest:
            self._keep(rest, rest)

    def _split(self, data: bytes, events: list[Event]) -> None:
        at = 0
        for match in _BLANK_LINE.finditer(data):
            if match.start() - at > self._max_event_bytes:
                self.too_large = True
                return
            events.append(self._event(data[at : match.start()], data[at : match.end()]))
            at = match.end()
        self._size, self._tail = 0, b""
        if at < len(data):
            self._keep(data[at:], data[at:])
        else:
            self._after_cr = data.endswith(b"\r")

    def _keep(self, data: bytes, probe: bytes) -> None:
        """`data` ends no event: keep it. `probe` is it with the few bytes before it."""
        self._parts.append(data)
        self._size += len(data)
        self._tail = probe[-_TAIL_BYTES:]
        # A line end at the end may be the first half of the blank line, so it is not yet part of the event.
        last_end = _LAST_LINE_END.search(self._tail)
        if self._size - (len(last_end[0]) if last_end else 0) > self._max_event_bytes:
            self.too_large = True
            self._parts.clear()

    def _event(self, block: bytes, raw: bytes) -> Event:
        if not self._begun:
            self._begun = True
            block = block.removeprefix(_BOM)
        if block.startswith(b"data: ") and b"\n" not in block and b"\r" not in block:
            return Event(raw, block[6:])
        return _parsed(block, raw)


def _parsed(block: bytes, raw: bytes) -> Event:
    data: list[bytes] = []
    name = b""
    for line in block.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    if not data:
        return Event(raw, None)
    return Event(raw, b"\n".join(data), name.decode("utf-8", "replace") or "message")
