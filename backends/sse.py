"""Server-sent events, parsed from bytes that may be cut anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"


class EventSizeError(ValueError):
    """An event is larger than the parser accepts."""


@dataclass(frozen=True, slots=True)
class Event:
    """`data`: the bytes of the data lines, joined by LF. `name`: "message" unless the stream names it."""

    data: bytes
    name: str = "message"


class SseParser:
    """Incremental parser of `text/event-stream` (WHATWG HTML, section 9.2.6).

    Works on bytes, so characters cut in two need no care. `id` and `retry` lines are read over: an answer
    cannot be resumed. Differs from the standard in one point: `flush` gives the last event even when the
    stream ended without the blank line after it, which some servers leave out after `[DONE]`.
    """

    def __init__(self, max_event_bytes: int = 16 * 1024 * 1024) -> None:
        self._max_event_bytes = max_event_bytes
        self._buffer = bytearray()  # line ends already turned into LF
        self._scanned = 0  # bytes of the buffer known to hold no end of an event
        self._after_cr = False
        self._begun = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that `data` completes. Must be iterated: parsing happens as it goes, so that events
        ahead of a fault are seen. Raises EventSizeError."""
        self._append(data)
        if not self._begun and not self._skip_bom():
            return
        buffer = self._buffer
        start = 0
        search = max(self._scanned - 1, 0)
        self._scanned = 0
        try:
            while (end := buffer.find(b"\n\n", search)) >= 0:
                if end - start > self._max_event_bytes:
                    raise self._too_large()
                block = bytes(buffer[start:end])
                start = search = end + 2
                event = _parse_block(block)
                if event is not None:
                    yield event
        finally:
            del buffer[:start]
        self._scanned = len(buffer)
        # A LF at the end may be the first half of the blank line, so it is not yet part of the event.
        if len(buffer) - buffer.endswith(b"\n") > self._max_event_bytes:
            raise self._too_large()

    def flush(self) -> Event | None:
        """The event left when the stream has ended, if any."""
        block = bytes(self._buffer)
        self._buffer.clear()
        self._scanned = 0
        return _parse_block(block)

    def _append(self, data: bytes) -> None:
        # CR, LF and CRLF all end a line. A CR at the end of a piece counts at once, so that no event waits
        # for the next piece; the LF that may follow it is then dropped.
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == 0x0A:
                data = data[1:]
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._buffer += data

    def _skip_bom(self) -> bool:
        """Whether the start of the stream is known to be past any byte order mark."""
        if len(self._buffer) < len(_BOM) and _BOM.startswith(self._buffer):
            return False
        if self._buffer.startswith(_BOM):
            del self._buffer[: len(_BOM)]
        self._begun = True
        return True

    def _too_large(self) -> EventSizeError:
        return EventSizeError(f"an event is larger than {self._max_event_bytes} bytes")


def _parse_block(block: bytes) -> Event | None:
    """The event made of the lines of `block`; None when they hold no data."""
    if block.startswith(b"data: ") and b"\n" not in block:
        return Event(block[6:])
    data: list[bytes] = []
    name = b""
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    if not data:
        return None
    return Event(b"\n".join(data), name.decode("utf-8", "replace") or "message")
