"""An upstream's answer passed through as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Self

from backends.forwarding import raw_client_headers
from backends.rejection import Redactor
from backends.transport import UpstreamResponse

MAX_ERROR_BYTES = 1024 * 1024


class HttpRawAnswer:
    """Byte for byte, but for an error that quotes a key: that is taken out."""

    def __init__(
        self, response: UpstreamResponse, begun: Sequence[bytes] = (), *, changed: bool = False
    ) -> None:
        self._response = response
        self._begun = begun
        self._changed = changed

    @classmethod
    async def of(cls, response: UpstreamResponse, redactor: Redactor) -> Self:
        """Reads an error's body first, as far as it is no longer than errors are."""
        encoded = response.headers.get("content-encoding", "identity") != "identity"
        if response.status < 400 or encoded:
            return cls(response)
        pieces: list[bytes] = []
        size = 0
        try:
            async for piece in response:
                pieces.append(piece)
                size += len(piece)
                if size > MAX_ERROR_BYTES:
                    return cls(response, pieces)
        except BaseException:
            response.close()
            raise
        body = b"".join(pieces)
        clean = redactor.text(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        return cls(response, [clean] if clean else [], changed=clean != body)

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        kept = raw_client_headers(self._response.headers.items())
        return [(name, value) for name, value in kept if not (self._changed and name == "content-length")]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._begun:
            yield piece
        async for piece in self._response:
            yield piece

    def close(self) -> None:
        self._response.close()
